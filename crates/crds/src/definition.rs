//! The `CustomResourceDefinition` objects.

use serde_json::{Value, json};

use crate::schema::{Kind, Version, kinds};

/// Where the API server converts objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Conversion {
    /// A service of the cluster.
    Service {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// A URL, for an operator outside the cluster.
    Url(String),
}

impl Default for Conversion {
    fn default() -> Self {
        Self::Service {
            namespace: "agent-sandbox-system".to_owned(),
            name: "agent-sandbox-webhook-service".to_owned(),
        }
    }
}

impl Conversion {
    /// The `clientConfig` of the conversion. `authority` is base64 of the PEM certificate that
    /// signs the webhook's certificate; the operator sets it when it starts.
    #[must_use]
    pub fn client_config(&self, authority: Option<&str>) -> Value {
        let mut config = match self {
            Self::Service { namespace, name } => json!({
                "service": {"namespace": namespace, "name": name, "path": "/convert", "port": 443},
            }),
            Self::Url(url) => json!({"url": url}),
        };
        if let Some(authority) = authority {
            config["caBundle"] = authority.into();
        }
        config
    }
}

/// The definitions of all kinds.
#[must_use]
pub fn definitions(conversion: &Conversion) -> Vec<Value> {
    kinds()
        .iter()
        .map(|kind| definition(kind, conversion))
        .collect()
}

/// The names of the definitions that the webhook converts.
#[must_use]
pub fn converted() -> Vec<String> {
    kinds()
        .iter()
        .filter(|kind| kind.versions.len() > 1)
        .map(|kind| format!("{}.{}", kind.plural, kind.group))
        .collect()
}

/// The definitions as one YAML stream.
///
/// # Errors
/// None that a definition can cause; the serializer's signature has them.
pub fn yaml(conversion: &Conversion) -> Result<String, serde_saphyr::ser::Error> {
    let mut text = String::new();
    for definition in definitions(conversion) {
        text.push_str("---\n");
        text.push_str(&serde_saphyr::to_string(&definition)?);
    }
    Ok(text)
}

fn definition(kind: &Kind, conversion: &Conversion) -> Value {
    let mut definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{}.{}", kind.plural, kind.group)},
        "spec": {
            "group": kind.group,
            "scope": if kind.namespaced { "Namespaced" } else { "Cluster" },
            "names": {
                "kind": kind.kind,
                "listKind": format!("{}List", kind.kind),
                "plural": kind.plural,
                "singular": kind.singular,
                "shortNames": [kind.short_name],
            },
        },
    });
    // One version needs no conversion.
    if kind.versions.len() > 1 {
        definition["spec"]["conversion"] = json!({
            "strategy": "Webhook",
            "webhook": {
                "conversionReviewVersions": ["v1"],
                "clientConfig": conversion.client_config(None),
            },
        });
    }
    let newest = kind.versions.last().map(|(name, _)| *name);
    let versions: Vec<Value> = kind
        .versions
        .iter()
        .map(|(name, of)| version(kind, name, of, newest))
        .collect();
    definition["spec"]["versions"] = versions.into();
    definition
}

fn version(kind: &Kind, name: &str, of: &Version, newest: Option<&str>) -> Value {
    let mut schema = json!({
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": of.spec,
        },
    });
    let stored = newest == Some(name);
    let mut version = json!({"name": name, "served": true, "storage": stored});
    if let Some(status) = &of.status {
        schema["properties"]["status"] = status.clone();
        version["subresources"] = json!({"status": {}});
    }
    if of.scale {
        version["subresources"]["scale"] = json!({
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        });
    }
    let columns: Vec<Value> = of
        .columns
        .iter()
        .map(|(name, kind, path)| json!({"name": name, "type": kind, "jsonPath": path}))
        .collect();
    if !columns.is_empty() {
        version["additionalPrinterColumns"] = columns.into();
    }
    if let Some(newest) = newest.filter(|_| !stored) {
        version["deprecated"] = true.into();
        version["deprecationWarning"] = format!(
            "{group}/{name} {kind} is deprecated; use {group}/{newest} {kind} instead",
            group = kind.group,
            kind = kind.kind,
        )
        .into();
    }
    version["schema"] = json!({"openAPIV3Schema": schema});
    version
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yaml_reads_back_as_the_same_definitions() {
        let text = yaml(&Conversion::default()).unwrap();
        let read: Vec<Value> = text
            .split("---\n")
            .filter(|part| !part.is_empty())
            .map(|part| serde_saphyr::from_str(part).unwrap())
            .collect();
        assert_eq!(read, definitions(&Conversion::default()));
    }

    /// `kubectl apply` stores the whole object in an annotation, and all annotations of an object have at
    /// most 256 KiB.
    #[test]
    fn definitions_can_be_applied_by_the_client() {
        for definition in definitions(&Conversion::default()) {
            let size = definition.to_string().len();
            assert!(
                size < 250 * 1024,
                "{}: {size} bytes",
                definition["metadata"]["name"]
            );
        }
    }

    #[test]
    fn the_newest_version_is_stored_and_all_are_served() {
        for definition in definitions(&Conversion::default()) {
            let versions = definition["spec"]["versions"].as_array().unwrap();
            let stored: Vec<&Value> = versions.iter().filter(|v| v["storage"] == true).collect();
            assert_eq!(stored, [versions.last().unwrap()]);
            assert!(versions.iter().all(|version| version["served"] == true));
            let converts = definition["spec"].get("conversion").is_some();
            assert_eq!(converts, versions.len() > 1);
        }
    }

    #[test]
    fn the_webhook_converts_the_kinds_with_several_versions() {
        assert_eq!(
            converted(),
            [
                "sandboxes.agents.x-k8s.io",
                "sandboxclaims.extensions.agents.x-k8s.io",
                "sandboxtemplates.extensions.agents.x-k8s.io",
                "sandboxwarmpools.extensions.agents.x-k8s.io",
            ]
        );
    }

    #[test]
    fn names_of_kinds_and_columns_are_those_of_the_group() {
        let all = definitions(&Conversion::default());
        let find = |name: &str| {
            let of_name = |one: &&Value| one["metadata"]["name"] == name;
            all.iter().find(of_name).unwrap()
        };
        let names: Vec<(&str, &str)> = all
            .iter()
            .filter(|one| one["spec"]["group"] == "agents.kruise.io")
            .map(|one| {
                let names = &one["spec"]["names"];
                (
                    names["plural"].as_str().unwrap(),
                    names["shortNames"][0].as_str().unwrap(),
                )
            })
            .collect();
        assert_eq!(
            names,
            [
                ("sandboxes", "sbx"),
                ("sandboxsets", "sbs"),
                ("sandboxclaims", "sbc"),
                ("sandboxtemplates", "sbt"),
                ("checkpoints", "cp"),
                ("commits", "cmt"),
                ("sandboxupdateops", "suo"),
                ("trafficpolicies", "tp"),
                ("globaltrafficpolicies", "gtp"),
                ("securityprofiles", "sp"),
                ("globalsecurityprofiles", "gsp"),
                ("poolautoscalers", "pa"),
            ]
        );
        let columns =
            &find("sandboxes.agents.kruise.io")["spec"]["versions"][0]["additionalPrinterColumns"];
        assert_eq!(
            columns[2]["jsonPath"],
            r".metadata.labels.agents\.kruise\.io/sandbox-claimed"
        );
        let scale =
            &find("sandboxsets.agents.kruise.io")["spec"]["versions"][0]["subresources"]["scale"];
        assert_eq!(scale["labelSelectorPath"], ".status.selector");
    }
}
