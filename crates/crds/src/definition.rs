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
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{}.{}", kind.plural, kind.group)},
        "spec": {
            "group": kind.group,
            "scope": "Namespaced",
            "names": {
                "kind": kind.kind,
                "listKind": format!("{}List", kind.kind),
                "plural": kind.plural,
                "singular": kind.singular,
                "shortNames": [kind.short_name],
            },
            "conversion": {
                "strategy": "Webhook",
                "webhook": {
                    "conversionReviewVersions": ["v1"],
                    "clientConfig": conversion.client_config(None),
                },
            },
            "versions": [
                version(kind, "v1alpha1", &kind.v1alpha1),
                version(kind, "v1beta1", &kind.v1beta1),
            ],
        },
    })
}

fn version(kind: &Kind, name: &str, of: &Version) -> Value {
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
    let mut version = json!({"name": name, "served": true, "storage": name == "v1beta1"});
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
    if name == "v1alpha1" {
        version["deprecated"] = true.into();
        version["deprecationWarning"] = format!(
            "{group}/v1alpha1 {kind} is deprecated; use {group}/v1beta1 {kind} instead",
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
    fn one_version_is_stored_and_both_are_served() {
        for definition in definitions(&Conversion::default()) {
            let versions = definition["spec"]["versions"].as_array().unwrap();
            let stored: Vec<&Value> = versions.iter().filter(|v| v["storage"] == true).collect();
            assert_eq!(stored.len(), 1);
            assert_eq!(stored[0]["name"], "v1beta1");
            assert!(versions.iter().all(|version| version["served"] == true));
        }
    }
}
