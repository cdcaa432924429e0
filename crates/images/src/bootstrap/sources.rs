//! The package mirrors in this machine's apt configuration.
//!
//! No mirror is named in this program: an image's packages come from the same sources as those of
//! its machine, which the operator chose.
//!
//! apt's files are parsed here, because `apt-get indextargets` does not say enough. It omits
//! sources whose indexes are not downloaded, as in most container images, and it does not print
//! `Signed-By`.

mod deb822;
mod one_line;
mod release;

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use self::release::{Distribution, base};
use super::recipe::Suite;
use super::{BootstrapConfig, Fault, Stage};
use crate::manifest::architecture;

/// The key that signs Ubuntu's releases since 2018: F6ECB3762474EDA9D21B7022871920D1991BC93C.
const UBUNTU_KEY: &str = include_str!("sources/ubuntu.asc");

/// The components of Ubuntu that correspond to Debian's `main`.
pub(super) const UBUNTU_COMPONENTS: [&str; 2] = ["main", "universe"];

/// The largest configuration file that is read.
const FILE_MAX: u64 = 1 << 20;

/// A package source in apt's configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) uris: Vec<String>,
    pub(super) suites: Vec<String>,
    pub(super) components: Vec<String>,
    pub(super) architectures: Vec<String>,
    pub(super) trusted: bool,
    pub(super) signed_by: Option<SignedBy>,
}

/// The keys that must have signed a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SignedBy {
    /// `Signed-By` in one line: key files, or fingerprints.
    Named(String),
    /// Embedded keys.
    Keys(String),
}

/// The sources configured on this machine.
#[derive(Debug)]
pub(super) struct Apt {
    entries: Vec<Entry>,
    here: Option<Distribution>,
    directory: PathBuf,
    ubuntu: Option<String>,
}

/// One suite of one mirror.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Source {
    uri: String,
    suite: String,
    components: Vec<String>,
    trusted: bool,
    signed_by: Option<SignedBy>,
}

/// The sources of one release. Without any, they are those that `mmdebstrap` knows of Ubuntu.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Sources(Vec<Source>);

/// Sources written to disk.
pub(super) enum SourceFiles {
    /// Chosen by this machine's operator.
    Listed(SourceList),
    /// The sources of Ubuntu that `mmdebstrap` knows, and writes into the image.
    Usual {
        /// The file with the key that signs them.
        keyring: PathBuf,
    },
}

/// A list of sources on disk.
pub(super) struct SourceList {
    /// The file for apt.
    pub(super) list: PathBuf,
    /// Its contents.
    pub(super) text: String,
    /// The key files that it names: their paths on this machine and in the image.
    pub(super) keys: Vec<(PathBuf, String)>,
}

impl Apt {
    /// Reads `sources.list` and `sources.list.d`; files that apt ignores are skipped.
    pub(super) fn read(config: &BootstrapConfig) -> Result<Self, Fault> {
        let mut entries = Vec::new();
        let list = config.apt.join("sources.list");
        if let Some(text) = read(&list)? {
            entries.extend(one_line::parse(&text));
        }
        let parts = config.apt.join("sources.list.d");
        let mut paths = match fs::read_dir(&parts) {
            Ok(found) => found
                .map(|entry| entry.map(|entry| entry.path()))
                .collect::<io::Result<Vec<_>>>()
                .map_err(|e| Fault::io("list", &parts, e))?,
            Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(e) => return Err(Fault::io("list", &parts, e)),
        };
        paths.sort();
        for path in paths {
            let extension = path.extension().and_then(|e| e.to_str());
            let parse: fn(&str) -> Vec<Entry> = match extension {
                Some("list") => one_line::parse,
                Some("sources") => deb822::parse,
                _ => continue,
            };
            if let Some(text) = read(&path)? {
                entries.extend(parse(&text));
            }
        }
        let here = read(&config.os_release)?.and_then(|text| Distribution::of_os_release(&text));
        Ok(Self {
            entries,
            here,
            directory: config.apt.clone(),
            ubuntu: config.ubuntu_mirror.clone(),
        })
    }

    /// The sources of a release with its updates. If it is not configured, those of another release
    /// of the same distribution are used, because its mirror usually has both. A machine without any source
    /// of Ubuntu gets its releases from the configured mirror, or from where `mmdebstrap` gets them.
    pub(super) fn sources_for(&self, suite: &Suite) -> Result<Sources, Fault> {
        let suite = suite.as_str();
        let configured = self.sources(|name| (base(name) == suite).then(|| name.to_owned()));
        if configured.0.iter().any(|source| source.suite == suite) {
            return Ok(configured);
        }
        let wanted = Distribution::of_suite(suite).or(self.here);
        let sibling = self
            .all_suites()
            .map(base)
            .find(|name| wanted.is_some() && Distribution::of_suite(name).or(self.here) == wanted);
        let translated = self.sources(|name| {
            let extra = name.strip_prefix(sibling?)?;
            // A rolling release has no separate updates.
            let rolling = !extra.is_empty() && release::is_rolling(suite);
            (!rolling && base(name) == sibling?).then(|| format!("{suite}{extra}"))
        });
        if translated.0.iter().any(|source| source.suite == suite) {
            return Ok(translated);
        }
        if Distribution::of_suite(suite) == Some(Distribution::Ubuntu) {
            return Ok(self.of_ubuntu(suite));
        }
        Err(Fault::Tool {
            tool: "mmdebstrap",
            detail: format!(
                "no package source for {suite:?} is configured in {}, nor one of another \
                 release of its distribution",
                self.directory.display()
            ),
        })
    }

    /// A release of Ubuntu from the configured mirror.
    fn of_ubuntu(&self, suite: &str) -> Sources {
        let from = |uri: &String| {
            let pockets = ["", "-updates", "-security"].into_iter();
            let source = pockets.map(|pocket| Source {
                uri: uri.clone(),
                suite: format!("{suite}{pocket}"),
                components: UBUNTU_COMPONENTS.map(str::to_owned).to_vec(),
                trusted: false,
                signed_by: Some(SignedBy::Keys(UBUNTU_KEY.to_owned())),
            });
            source.collect()
        };
        Sources(self.ubuntu.as_ref().map(from).unwrap_or_default())
    }

    /// The sources for this machine's architecture, with suites renamed by `wanted`.
    fn sources<'a>(&'a self, wanted: impl Fn(&'a str) -> Option<String>) -> Sources {
        let mut sources: Vec<Source> = Vec::new();
        for entry in self.entries.iter().filter(|entry| entry.is_for_here()) {
            for suite in entry.suites.iter().filter_map(|suite| wanted(suite)) {
                for uri in &entry.uris {
                    let source = Source {
                        uri: uri.clone(),
                        suite: suite.clone(),
                        components: entry.components.clone(),
                        trusted: entry.trusted,
                        signed_by: entry.signed_by.clone(),
                    };
                    if !sources.contains(&source) {
                        sources.push(source);
                    }
                }
            }
        }
        Sources(sources)
    }

    fn all_suites(&self) -> impl Iterator<Item = &str> {
        let here = self.entries.iter().filter(|entry| entry.is_for_here());
        here.flat_map(|entry| entry.suites.iter().map(String::as_str))
    }
}

impl Entry {
    fn is_for_here(&self) -> bool {
        let here = architecture();
        self.architectures.is_empty() || self.architectures.iter().any(|name| name == here)
    }
}

impl Sources {
    /// Writes the sources in apt's format, with their embedded keys.
    pub(super) fn write(&self, stage: &Stage) -> Result<SourceFiles, Fault> {
        if self.0.is_empty() {
            let keyring = stage.path().join("ubuntu.asc");
            fs::write(&keyring, UBUNTU_KEY).map_err(|e| Fault::io("write", &keyring, e))?;
            return Ok(SourceFiles::Usual { keyring });
        }
        let mut text = String::new();
        let mut keys: Vec<(PathBuf, String)> = Vec::new();
        for source in &self.0 {
            let mut options = Vec::new();
            match &source.signed_by {
                Some(SignedBy::Named(named)) => {
                    for file in named.split([',', ' ']).filter(|part| part.starts_with('/')) {
                        keys.push((file.into(), file.to_owned()));
                    }
                    options.push(format!("signed-by={}", named.replace(' ', ",")));
                }
                Some(SignedBy::Keys(armored)) => {
                    let name = format!("source-{}.asc", keys.len());
                    let path = stage.path().join(&name);
                    fs::write(&path, armored).map_err(|e| Fault::io("write", &path, e))?;
                    options.push(format!("signed-by={}", path.display()));
                    keys.push((path, format!("/etc/apt/keyrings/{name}")));
                }
                None => (),
            }
            if source.trusted {
                options.push("trusted=yes".to_owned());
            }
            let options = match &*options.join(" ") {
                "" => String::new(),
                options => format!("[{options}] "),
            };
            let (uri, suite, parts) = (&source.uri, &source.suite, source.components.join(" "));
            text.push_str(&format!("deb {options}{uri} {suite} {parts}\n"));
        }
        let list = stage.path().join("sources.list");
        fs::write(&list, &text).map_err(|e| Fault::io("write", &list, e))?;
        Ok(SourceFiles::Listed(SourceList { list, text, keys }))
    }
}

/// Reads a configuration file; `None` if it does not exist, or is not text.
fn read(path: &Path) -> Result<Option<String>, Fault> {
    let mut bytes = Vec::new();
    match File::open(path).and_then(|file| file.take(FILE_MAX).read_to_end(&mut bytes)) {
        Ok(_) => Ok(String::from_utf8(bytes).ok()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Fault::io("read", path, e)),
    }
}

#[cfg(test)]
mod tests;
