//! The machine's configuration of pip and npm, for builds that install packages.
//!
//! As with apt, this program names no mirror: a build uses the one that the operator configured, and
//! trusts the machine's certificate authorities, so an internal mirror works too.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// The pip settings that builds use, and their environment variables.
const SETTINGS: [(&str, &str); 3] = [
    ("index-url", "PIP_INDEX_URL"),
    ("extra-index-url", "PIP_EXTRA_INDEX_URL"),
    ("trusted-host", "PIP_TRUSTED_HOST"),
];

/// The files of certificate authorities in distributions.
const BUNDLES: [&str; 3] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
];

/// pip's settings inside a build.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Mirrors {
    settings: BTreeMap<&'static str, String>,
    /// The registry of npm.
    npm: Option<String>,
    authorities: Option<String>,
}

impl Mirrors {
    /// The settings of this machine's pip.
    ///
    /// # Errors
    /// When a configured file cannot be read.
    pub(super) fn of_this_machine() -> io::Result<Self> {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        Self::found(&files_of_pip(&variable), &variable)
    }

    /// Later files override earlier ones, and the environment overrides all.
    fn found(files: &[PathBuf], variable: &dyn Fn(&str) -> Option<String>) -> io::Result<Self> {
        let mut said = BTreeMap::new();
        for file in files {
            match std::fs::read_to_string(file) {
                Ok(text) => said.extend(settings(&text)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(unreadable(file, &error)),
            }
        }
        let mut mirrors = Self::default();
        for (setting, name) in SETTINGS {
            let value = variable(name).or_else(|| said.get(setting).cloned());
            if let Some(value) = value {
                mirrors.settings.insert(setting, value);
            }
        }
        let bundle = ["PIP_CERT", "SSL_CERT_FILE"].into_iter().find_map(variable);
        let bundle = bundle.or_else(|| said.get("cert").cloned());
        let usual = || BUNDLES.into_iter().find(|path| Path::new(path).exists());
        if let Some(path) = bundle.or_else(|| usual().map(str::to_owned)) {
            let text = std::fs::read_to_string(&path);
            let text = text.map_err(|error| unreadable(Path::new(&path), &error))?;
            mirrors.authorities = Some(text);
        }
        mirrors.npm = registry_of_npm(variable)?;
        Ok(mirrors)
    }

    /// The files that configure a pip and an npm whose settings are in `directory`.
    pub(super) fn files(&self, directory: &str) -> Vec<(String, String)> {
        let mut text = String::from("[global]\n");
        for (setting, value) in &self.settings {
            text += &format!("{setting} = {value}\n");
        }
        let mut npm = String::new();
        if let Some(registry) = &self.npm {
            npm += &format!("registry={registry}\n");
        }
        let mut files = Vec::new();
        if let Some(authorities) = &self.authorities {
            text += &format!("cert = {directory}/authorities.pem\n");
            npm += &format!("cafile={directory}/authorities.pem\n");
            files.push(("authorities.pem".to_owned(), authorities.clone()));
        }
        files.push(("npmrc".to_owned(), npm));
        files.push(("pip.conf".to_owned(), text));
        files
    }
}

/// The registry that this machine's npm uses, if one is configured. Accounts are not read.
fn registry_of_npm(variable: &dyn Fn(&str) -> Option<String>) -> io::Result<Option<String>> {
    let named = ["NPM_CONFIG_REGISTRY", "npm_config_registry"];
    if let Some(registry) = named.into_iter().find_map(variable) {
        return Ok(Some(registry));
    }
    let Some(home) = variable("HOME") else {
        return Ok(None);
    };
    let file = Path::new(&home).join(".npmrc");
    let text = match std::fs::read_to_string(&file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        read => read.map_err(|error| unreadable(&file, &error))?,
    };
    // The last one counts.
    let mut settings = text.lines().rev().filter_map(|line| line.split_once('='));
    let found = settings.find(|(key, _)| key.trim() == "registry");
    Ok(found.map(|(_, value)| value.trim().trim_matches('"').to_owned()))
}

fn unreadable(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// pip's configuration files, in its order.
fn files_of_pip(variable: &dyn Fn(&str) -> Option<String>) -> Vec<PathBuf> {
    let mut files = vec![
        PathBuf::from("/etc/xdg/pip/pip.conf"),
        "/etc/pip.conf".into(),
    ];
    if let Some(home) = variable("HOME") {
        let home = Path::new(&home);
        files.extend([
            home.join(".pip/pip.conf"),
            home.join(".config/pip/pip.conf"),
        ]);
    }
    files.extend(variable("PIP_CONFIG_FILE").map(PathBuf::from));
    files
}

/// The settings of a pip file in `[global]` or `[install]`. Values may continue on indented lines, which
/// are joined.
fn settings(text: &str) -> BTreeMap<String, String> {
    let mut found: BTreeMap<String, String> = BTreeMap::new();
    let (mut wanted, mut last) = (false, None::<String>);
    for line in text.lines() {
        let trimmed = line.trim();
        if trimmed.is_empty() || trimmed.starts_with(['#', ';']) {
            continue;
        }
        if let Some(section) = trimmed.strip_prefix('[') {
            wanted = matches!(section.trim_end_matches(']'), "global" | "install");
            last = None;
        } else if line.starts_with([' ', '\t'])
            && let Some(value) = last.as_ref().and_then(|key| found.get_mut(key))
        {
            *value = format!("{value} {trimmed}").trim().to_owned();
        } else if wanted && let Some((key, value)) = trimmed.split_once(['=', ':']) {
            let key = key.trim().replace('_', "-");
            found.insert(key.clone(), value.trim().to_owned());
            last = Some(key);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_wins_over_files_and_the_later_file_over_the_earlier() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = directory.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let bundle = write("bundle", "authorities");
        let one = write(
            "one",
            "[global]\nindex_url = a\nextra-index-url =\n  b\n  c\n[list]\nx=y",
        );
        let other = write("other", "# no\n[install]\nindex-url: d\ntrusted-host = e\n");
        let none = directory.path().join("none");
        write(
            ".npmrc",
            "//x/:_authToken=secret\nregistry = http://npm.example/\n",
        );
        let variable = |name: &str| match name {
            "PIP_TRUSTED_HOST" => Some("f".to_owned()),
            "HOME" => Some(directory.path().display().to_string()),
            "PIP_CERT" => Some(bundle.display().to_string()),
            _ => None,
        };
        let mirrors = Mirrors::found(&[one, none, other], &variable).unwrap();
        let files = mirrors.files("/there");
        assert_eq!(files[0], ("authorities.pem".into(), "authorities".into()));
        let npmrc = "registry=http://npm.example/\ncafile=/there/authorities.pem\n";
        assert_eq!(files[1], ("npmrc".into(), npmrc.into()));
        assert_eq!(
            files[2].1,
            "[global]\nextra-index-url = b c\nindex-url = d\ntrusted-host = f\n\
             cert = /there/authorities.pem\n"
        );
    }

    #[test]
    fn a_bundle_that_is_named_and_is_not_there_is_told() {
        let variable = |name: &str| (name == "PIP_CERT").then(|| "/none/such".to_owned());
        let failed = Mirrors::found(&[], &variable).unwrap_err();
        assert!(failed.to_string().contains("/none/such"));
    }
}
