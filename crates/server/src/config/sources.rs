//! The sources of settings, as strings.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use anyhow::Context;
use shoal_core::similar::nearest;

use super::SETTINGS;

/// The prefix of the server's environment variables.
const PREFIX: &str = "SHOAL_";

/// Variables with this prefix that belong to the client.
const NOT_SETTINGS: [&str; 3] = ["SHOAL_CONFIG", "SHOAL_API_KEY", "SHOAL_URL"];

/// Agent-Sandbox's variables for the same settings. The `SHOAL_` ones win.
const ALIASES: [(&str, &str); 3] = [
    ("SANDBOX_TEMPLATES_CONFIG_FILE", "templates.file"),
    ("SANDBOX_DEFAULT_TEMPLATE", "templates.default"),
    ("SANDBOX_DEFAULT_IMAGE", "templates.default_image"),
];

/// The values of all sources, by dotted name.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sources {
    flags: BTreeMap<String, String>,
    environment: BTreeMap<String, String>,
    /// By variable, because these names do not follow the settings' names.
    aliases: BTreeMap<&'static str, String>,
    file: BTreeMap<String, String>,
    /// Mistakes in the sources themselves.
    pub(super) mistakes: Vec<String>,
    /// Possible mistakes, which do not stop the start.
    warnings: Vec<String>,
}

impl Sources {
    /// Adds flags, which override everything else.
    pub(crate) fn with_flags(
        mut self,
        flags: impl IntoIterator<Item = (&'static str, Option<String>)>,
    ) -> Self {
        let values = flags
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), value?)));
        self.flags.extend(values);
        self
    }

    /// Adds `name=value` for any setting, with the precedence of flags.
    pub(crate) fn with_settings(mut self, settings: &[String]) -> Self {
        let known: Vec<&str> = SETTINGS.iter().map(|setting| setting.name).collect();
        for text in settings {
            match text.split_once('=') {
                Some((name, value)) if known.contains(&name) => {
                    self.flags.insert(name.to_owned(), value.to_owned());
                }
                Some((name, _)) => {
                    self.mistakes
                        .push(format!("--set {name}: {}", unknown(name, &known)));
                }
                None => self
                    .mistakes
                    .push(format!("--set {text}: is not NAME=VALUE")),
            }
        }
        self
    }

    /// Adds the server's variables of an environment.
    pub(crate) fn with_environment(
        mut self,
        variables: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Self {
        for (name, value) in variables {
            if let Some((alias, _)) = ALIASES.iter().find(|(alias, _)| name == *alias) {
                match value.into_string() {
                    Ok(value) => {
                        self.aliases.insert(alias, value);
                    }
                    Err(_) => self.mistakes.push(format!("{alias}: is not UTF-8")),
                }
                continue;
            }
            let Some(name) = name.to_str().filter(|name| name.starts_with(PREFIX)) else {
                continue;
            };
            if NOT_SETTINGS.contains(&name) {
                continue;
            }
            let setting = SETTINGS
                .iter()
                .find(|setting| variable(setting.name) == name);
            match (setting, value.into_string()) {
                (Some(setting), Ok(value)) => {
                    self.environment.insert(setting.name.to_owned(), value);
                }
                (Some(_), Err(_)) => self.mistakes.push(format!("{name}: is not UTF-8")),
                (None, _) => {
                    let known: Vec<String> = SETTINGS
                        .iter()
                        .map(|setting| variable(setting.name))
                        .collect();
                    let known: Vec<&str> = known.iter().map(String::as_str).collect();
                    // Others use the prefix too: Kubernetes sets SHOAL_PORT for a service `shoal`.
                    self.warnings
                        .push(format!("{name}: {}", unknown(name, &known)));
                }
            }
        }
        self
    }

    /// Adds a TOML file.
    ///
    /// # Errors
    /// When it cannot be read or is not TOML.
    pub(crate) fn with_file(mut self, path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read the configuration {}", path.display()))?;
        let table: toml::Table = text
            .parse()
            .with_context(|| format!("the configuration {} is not valid TOML", path.display()))?;
        let mut flat = BTreeMap::new();
        flatten("", &table, &mut flat);
        let known: Vec<&str> = SETTINGS.iter().map(|setting| setting.name).collect();
        for (name, value) in flat {
            if known.contains(&name.as_str()) {
                self.file.insert(name, value);
            } else {
                let word = unknown(&name, &known);
                self.mistakes
                    .push(format!("{name} in {}: {word}", path.display()));
            }
        }
        Ok(self)
    }

    /// Possible mistakes: variables with the prefix that are not settings.
    pub(crate) fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The text of a setting, and the name of its source.
    pub(super) fn get(&self, name: &str) -> Option<(&str, String)> {
        if let Some(text) = self.flags.get(name) {
            return Some((text, format!("--{}", name.replace('.', "-"))));
        }
        if let Some(text) = self.environment.get(name) {
            return Some((text, variable(name)));
        }
        let mut aliases = ALIASES.iter().filter(|(_, setting)| *setting == name);
        let alias = aliases.find_map(|(alias, _)| Some((*alias, self.aliases.get(alias)?)));
        if let Some((alias, text)) = alias {
            return Some((text, alias.to_owned()));
        }
        self.file
            .get(name)
            .map(|text| (text.as_str(), name.to_owned()))
    }
}

/// The environment variable of a setting.
pub(crate) fn variable(name: &str) -> String {
    format!("{PREFIX}{}", name.replace('.', "_").to_ascii_uppercase())
}

/// The message for an unknown name, with the closest known one.
fn unknown(name: &str, known: &[&str]) -> String {
    match nearest(name, known.iter().copied()) {
        Some(candidate) => format!("is not a setting; did you mean {candidate}?"),
        None => "is not a setting".to_owned(),
    }
}

fn flatten(prefix: &str, table: &toml::Table, flat: &mut BTreeMap<String, String>) {
    for (key, value) in table {
        let name = if prefix.is_empty() {
            key.clone()
        } else {
            format!("{prefix}.{key}")
        };
        let text = |value: &toml::Value| match value {
            toml::Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        match value {
            toml::Value::Table(inner) => flatten(&name, inner, flat),
            toml::Value::Array(list) => {
                let joined: Vec<String> = list.iter().map(text).collect();
                flat.insert(name, joined.join(","));
            }
            other => {
                flat.insert(name, text(other));
            }
        }
    }
}
