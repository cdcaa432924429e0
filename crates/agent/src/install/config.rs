//! Adds the handler to the configurations of containerd and of gVisor's shim. Other settings and comments stay.
//!
//! The handler is written into containerd's own file: containerd 1 replaces all settings of a plugin by those of an imported
//! file.

use toml_edit::{Array, DocumentMut, Item, Table, TableLike, TomlError, value};

/// The pod annotations that containerd passes to the runtime.
const ANNOTATIONS: [&str; 2] = ["dev.gvisor.spec.mount.*", "shoal.dev/*"];

/// Why a configuration cannot be completed.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// Invalid TOML.
    #[error("{0}")]
    Syntax(#[from] TomlError),
    /// An unsupported version.
    #[error(
        "containerd's configuration has version {0}: convert it to version 2 or 3 with `containerd config migrate`"
    )]
    Version(i64),
    /// containerd's Kubernetes plugin is disabled.
    #[error("disabled_plugins contains {0}, which Kubernetes needs: remove it")]
    Disabled(String),
    /// A key that must be a table has another value.
    #[error("{0} is not a table")]
    NoTable(String),
}

/// containerd's configuration with the handler `shoal`.
pub(crate) fn with_handler(text: &str) -> Result<String, ConfigError> {
    let mut document: DocumentMut = text.parse()?;
    if document.is_empty() {
        document["version"] = value(2);
    }
    // The default is version 1.
    let version = document.get("version").and_then(Item::as_integer);
    let plugin = match version.unwrap_or(1) {
        2 => "io.containerd.grpc.v1.cri",
        3 => "io.containerd.cri.v1.runtime",
        other => return Err(ConfigError::Version(other)),
    };
    let disabled = document.get("disabled_plugins").and_then(Item::as_array);
    for name in disabled
        .into_iter()
        .flatten()
        .filter_map(|name| name.as_str())
    {
        if name == "cri" || name == plugin {
            return Err(ConfigError::Disabled(name.to_owned()));
        }
    }
    let path = ["plugins", plugin, "containerd", "runtimes", "shoal"];
    let handler = table(document.as_table_mut(), &path)?;
    set(handler, "runtime_type", "io.containerd.runsc.v1");
    annotate(handler);
    let options = table(handler, &["options"])?;
    set(options, "TypeUrl", "io.containerd.runsc.v1.options");
    set(options, "ConfigPath", super::SETTINGS);
    Ok(document.to_string())
}

/// The settings of the handler's shim and runsc.
pub(crate) fn with_settings(text: &str) -> Result<String, ConfigError> {
    let mut document: DocumentMut = text.parse()?;
    let root = document.as_table_mut();
    set(root, "root", "/run/shoal-runsc");
    set(root, "binary_name", "/usr/local/lib/shoal/shoal-runsc");
    // One shim for each pod.
    root.insert("grouping", value(true));
    let runsc = table(root, &["runsc_config"])?;
    set(runsc, "net-disconnect-ok", "true");
    for (key, usual) in [
        ("platform", "systrap"),
        ("network", "sandbox"),
        ("overlay2", "root:self"),
    ] {
        if !runsc.contains_key(key) {
            set(runsc, key, usual);
        }
    }
    Ok(document.to_string())
}

/// Sets a string. An equal one keeps its quotes and comments.
fn set(table: &mut dyn TableLike, key: &str, text: &str) {
    if table.get(key).and_then(Item::as_str) != Some(text) {
        table.insert(key, value(text));
    }
}

/// Adds the annotations to those that containerd passes already.
fn annotate(handler: &mut dyn TableLike) {
    let there = handler.get("pod_annotations").and_then(Item::as_array);
    let mut all = there.cloned().unwrap_or_else(Array::new);
    let before = all.len();
    for name in ANNOTATIONS {
        if !all.iter().any(|one| one.as_str() == Some(name)) {
            all.push(name);
        }
    }
    if all.len() != before {
        handler.insert("pod_annotations", value(all));
    }
}

/// The table at a path. Creates missing ones.
fn table<'a>(
    mut at: &'a mut dyn TableLike,
    path: &[&str],
) -> Result<&'a mut dyn TableLike, ConfigError> {
    for (depth, key) in path.iter().enumerate() {
        let is_last = depth + 1 == path.len();
        let item = at.entry(key).or_insert_with(|| {
            let mut made = Table::new();
            made.set_implicit(!is_last);
            Item::Table(made)
        });
        at = item
            .as_table_like_mut()
            .ok_or_else(|| ConfigError::NoTable(path[..=depth].join(".")))?;
    }
    Ok(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> DocumentMut {
        text.parse().unwrap()
    }

    #[test]
    fn the_handler_is_added_and_everything_else_stays() {
        let before = "# ours\nversion = 2\n\n[plugins.\"io.containerd.grpc.v1.cri\"]\nsandbox_image = \"pause\" # kept\n\n\
            [plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc]\nruntime_type = \"io.containerd.runc.v2\"\n";
        let after = with_handler(before).unwrap();
        assert!(after.starts_with(before), "{after}");
        let runtimes =
            &parsed(&after)["plugins"]["io.containerd.grpc.v1.cri"]["containerd"]["runtimes"];
        assert_eq!(
            runtimes["shoal"]["runtime_type"].as_str(),
            Some("io.containerd.runsc.v1")
        );
        assert_eq!(
            runtimes["shoal"]["options"]["ConfigPath"].as_str(),
            Some("/etc/containerd/shoal.toml")
        );
        assert_eq!(with_handler(&after).unwrap(), after, "once is enough");
    }

    #[test]
    fn each_version_has_its_place() {
        assert!(with_handler("").unwrap().contains("version = 2"));
        let third = with_handler("version = 3\n").unwrap();
        assert!(third.contains("io.containerd.cri.v1.runtime"), "{third}");
        for old in ["root = \"/x\"\n", "version = 1\n", "version = 9\n"] {
            assert!(
                matches!(with_handler(old), Err(ConfigError::Version(_))),
                "{old}"
            );
        }
    }

    #[test]
    fn what_cannot_be_completed_is_named() {
        for (text, part) in [
            ("version = ", "TOML"),
            (
                "version = 2\ndisabled_plugins = [\"cri\"]\n",
                "disabled_plugins contains cri",
            ),
            ("version = 2\nplugins = 1\n", "plugins is not a table"),
        ] {
            let told = with_handler(text).unwrap_err().to_string();
            assert!(told.contains(part), "{told}");
        }
    }

    #[test]
    fn annotations_of_others_stay_visible() {
        let before = "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.shoal]\n\
            pod_annotations = [\"dev.gvisor.*\"]\n";
        let after = with_handler(before).unwrap();
        let handler = &parsed(&after)["plugins"]["io.containerd.grpc.v1.cri"]["containerd"]["runtimes"]
            ["shoal"];
        let seen: Vec<_> = handler["pod_annotations"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|one| one.as_str())
            .collect();
        assert_eq!(
            seen,
            ["dev.gvisor.*", "dev.gvisor.spec.mount.*", "shoal.dev/*"]
        );
    }

    #[test]
    fn settings_of_the_node_stay() {
        let after = with_settings("[runsc_config]\nplatform = \"kvm\"\n").unwrap();
        let settings = parsed(&after);
        assert_eq!(settings["runsc_config"]["platform"].as_str(), Some("kvm"));
        assert_eq!(
            settings["runsc_config"]["net-disconnect-ok"].as_str(),
            Some("true")
        );
        assert_eq!(
            settings["binary_name"].as_str(),
            Some("/usr/local/lib/shoal/shoal-runsc")
        );
        assert_eq!(with_settings(&after).unwrap(), after);
    }
}
