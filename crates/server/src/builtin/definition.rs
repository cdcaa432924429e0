//! The definition of a built-in template (`template.toml`): packages and files.

use std::collections::BTreeMap;
use std::io;

use anyhow::{Context, ensure};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use shoal_core::build::{Action, Base, FilesHash, Plan, Source, Stage, Step};
use shoal_core::resources::{Mib, MilliCpu, Resources};
use shoal_core::template::TemplateRef;
use shoal_engine::{BuiltinDefinition, PreparedBuiltin};
use tar::{Builder, Header};

use super::mirrors::Mirrors;
use super::optional::{self, Optional};
use super::release::Release;

/// The directory of pip's settings during the build. The last step that needs them removes them.
const MIRRORS: &str = "/root/.mirrors";

/// Removes them.
const REMOVE: &str = " && rm -r /root/.mirrors";

/// The file's content.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    /// One line for people.
    description: String,
    /// The template that it is based on. The steps of one that is built on demand too come first, in the same build.
    from: String,
    /// The release that its system has in place of that template's, where this machine's mirrors have it.
    #[serde(default)]
    release: Option<String>,
    /// Processors of its sandboxes.
    processors: u32,
    /// Memory of its sandboxes, in MiB.
    memory_mb: u32,
    /// Debian packages.
    #[serde(default)]
    apt: Vec<String>,
    /// Python packages, as arguments for pip.
    #[serde(default)]
    pip: Vec<String>,
    /// Components that are omitted when the mirrors lack their packages.
    #[serde(default)]
    optional: Vec<Optional>,
    /// npm packages for all users, left out where no registry of npm is reachable.
    #[serde(default)]
    npm: Vec<String>,
    /// Shell lines that run as root after the installation.
    #[serde(default)]
    run: Vec<String>,
    /// The user of its sandboxes, in place of the base's. It is created, with `sudo`, before the shell lines run.
    #[serde(default)]
    user: Option<String>,
    /// The directory in which commands start.
    #[serde(default)]
    workdir: Option<String>,
    /// The start command.
    #[serde(default)]
    start: Option<String>,
    /// The ready command.
    #[serde(default)]
    ready: Option<String>,
    /// Target paths and the names of the files beside the definition.
    #[serde(default)]
    files: BTreeMap<String, String>,
}

/// A definition with its files.
#[derive(Debug)]
pub(super) struct Definition {
    written: Written,
    from: TemplateRef,
    release: Option<Release>,
    /// A tar of the files.
    archive: Vec<u8>,
    /// The definition that it extends.
    below: Option<Box<Self>>,
}

impl Definition {
    /// Parses a definition; `files` are those beside it, by name.
    ///
    /// # Errors
    /// When it has unknown fields or names a missing file.
    pub(super) fn read(text: &str, files: &[(&str, &str)]) -> anyhow::Result<Self> {
        let written: Written = toml::from_str(text)?;
        let optional = written.optional.iter().flat_map(Optional::packages);
        let named = written.apt.iter().chain(&written.pip).chain(&written.npm);
        for package in named.chain(optional) {
            ensure!(is_package(package), "{package:?} is not a package name");
        }
        for Optional { name, .. } in &written.optional {
            ensure!(is_package(name), "{name:?} is not a valid name");
        }
        let mut placed = Vec::new();
        for (path, name) in &written.files {
            let found = files.iter().find(|(known, _)| known == name);
            let (_, text) = found.with_context(|| format!("the file {name} is missing"))?;
            let path = path.strip_prefix('/');
            let path =
                path.with_context(|| format!("{name}: the target path must begin with /"))?;
            placed.push((path.to_owned(), (*text).to_owned()));
        }
        Ok(Self {
            from: written.from.parse()?,
            release: written.release.as_deref().map(Release::of).transpose()?,
            archive: archive(&placed)?,
            below: None,
            written,
        })
    }

    /// Whether it is based on the template with this name.
    pub(super) fn is_from(&self, name: &str) -> bool {
        self.written.from == name
    }

    /// The same, after the steps of `below`.
    pub(super) fn over(self, below: Self) -> Self {
        Self {
            below: Some(Box::new(below)),
            ..self
        }
    }

    pub(super) fn description(&self) -> &str {
        &self.written.description
    }

    pub(super) fn resources(&self) -> Resources {
        Resources {
            cpu: MilliCpu(self.written.processors * 1000),
            memory: Mib(self.written.memory_mb),
            ..Resources::default()
        }
    }

    /// The system below it, if it is not that of `from`.
    pub(super) fn release(&self) -> Option<&Release> {
        match &self.below {
            Some(below) => below.release(),
            None => self.release.as_ref(),
        }
    }

    fn base(&self) -> Base {
        if let Some(below) = &self.below {
            return below.base();
        }
        let otherwise = self.from.clone().into();
        match &self.release {
            Some(release) => Base::Release {
                image: release.image.clone(),
                otherwise,
            },
            None => Base::Template(otherwise),
        }
    }

    /// The steps that need the machine's mirrors. The last one removes their settings.
    fn installing(&self, mirrors: FilesHash) -> Vec<Action> {
        let written = &self.written;
        let mut lines = Vec::new();
        if !written.pip.is_empty() {
            lines.push(pip_install(&written.pip));
        }
        if !written.npm.is_empty() {
            lines.push(npm_install(&written.npm));
        }
        if !written.optional.is_empty() {
            lines.push(optional::script(&written.optional));
        }
        let Some(last) = lines.last_mut() else {
            return Vec::new();
        };
        last.push_str(REMOVE);
        let copied = copy(mirrors, MIRRORS);
        std::iter::once(copied)
            .chain(lines.into_iter().map(as_root))
            .collect()
    }

    /// Its steps, after those of the definition that it extends. `archives` gets the files that they copy.
    fn actions(
        &self,
        mirrors: &FilesHash,
        archives: &mut Vec<(FilesHash, Vec<u8>)>,
    ) -> io::Result<Vec<Action>> {
        let written = &self.written;
        let mut actions = match &self.below {
            Some(below) => below.actions(mirrors, archives)?,
            None => Vec::new(),
        };
        if !written.apt.is_empty() {
            let packages = written.apt.join(" ");
            actions.push(as_root(format!(
                "export DEBIAN_FRONTEND=noninteractive; apt-get update -qq && \
                 apt-get install -qq --no-install-recommends {packages} && \
                 apt-get clean && rm -rf /var/lib/apt/lists/*"
            )));
        }
        actions.extend(self.installing(mirrors.clone()));
        if !written.files.is_empty() {
            let files = hash(&self.archive)?;
            archives.push((files.clone(), self.archive.clone()));
            actions.push(copy(files, "/"));
        }
        if let Some(user) = &written.user {
            let (name, sudo) = (user.clone(), true);
            actions.push(Action::User { name, sudo });
        }
        actions.extend(written.workdir.clone().map(Action::Workdir));
        actions.extend(written.run.iter().cloned().map(as_root));
        Ok(actions)
    }

    /// The commands of its sandboxes; those that it does not name are of the definition that it extends.
    fn command(&self, named: impl Fn(&Written) -> &Option<String> + Copy) -> Option<String> {
        let own = named(&self.written).clone();
        own.or_else(|| self.below.as_ref()?.command(named))
    }

    fn plan(&self, actions: Vec<Action>) -> Plan {
        let steps = actions.into_iter().map(|action| Step {
            action,
            line: None,
            force: false,
        });
        Plan {
            stages: vec![Stage {
                base: self.base(),
                steps: steps.collect(),
            }],
            keep_env: Vec::new(),
            start: self.command(|written| &written.start),
            ready: self.command(|written| &written.ready),
            force: false,
        }
    }
}

impl BuiltinDefinition for Definition {
    fn prepare(&self) -> io::Result<PreparedBuiltin> {
        let mirrors = archive(&Mirrors::of_this_machine()?.files(MIRRORS))?;
        let of_mirrors = hash(&mirrors)?;
        let mut files = Vec::new();
        let actions = self.actions(&of_mirrors, &mut files)?;
        files.push((of_mirrors, mirrors));
        Ok(PreparedBuiltin {
            plan: self.plan(actions),
            files,
        })
    }
}

/// The command that installs Python packages from the machine's configured index.
pub(super) fn pip_install(packages: &[String]) -> String {
    let packages: Vec<String> = packages.iter().map(|p| format!("'{p}'")).collect();
    format!(
        "PIP_CONFIG_FILE={MIRRORS}/pip.conf pip install --no-cache-dir \
         --disable-pip-version-check --root-user-action=ignore --progress-bar=off {}",
        packages.join(" ")
    )
}

/// The command that installs npm packages for all users from the machine's configured registry, or says that it cannot.
fn npm_install(packages: &[String]) -> String {
    let names = packages.join(" ");
    let words: Vec<String> = packages.iter().map(|p| format!("'{p}'")).collect();
    format!(
        "{{ NPM_CONFIG_USERCONFIG={MIRRORS}/npmrc npm install --global --prefix=/usr/local --fetch-retries=1 --no-fund --no-audit {} || \
         echo 'left out: {names}: the registry of npm does not answer' >&2; }}",
        words.join(" ")
    )
}

/// Whether a text is a package name with versions, and safe in a quoted shell word.
fn is_package(text: &str) -> bool {
    let good = |c: char| c.is_ascii_alphanumeric() || "-_.+:~<>=!,[]@".contains(c);
    text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.chars().all(good)
}

fn as_root(command: String) -> Action {
    Action::Run {
        command,
        user: Some("root".to_owned()),
    }
}

fn copy(files: FilesHash, target: &str) -> Action {
    Action::Copy {
        source: Source::Upload(files),
        path: ".".to_owned(),
        target: target.to_owned(),
        owner: Some("root".to_owned()),
        mode: None,
    }
}

/// A reproducible tar. Files that begin with `#!` are executable.
fn archive(files: &[(String, String)]) -> io::Result<Vec<u8>> {
    let mut tar = Builder::new(Vec::new());
    for (path, text) in files {
        let mut header = Header::new_gnu();
        header.set_mode(if text.starts_with("#!") { 0o755 } else { 0o644 });
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(text.len() as u64);
        tar.append_data(&mut header, path, text.as_bytes())?;
    }
    tar.into_inner()
}

fn hash(archive: &[u8]) -> io::Result<FilesHash> {
    let digest = hex::encode(Sha256::digest(archive));
    digest.parse().map_err(io::Error::other)
}

#[cfg(test)]
mod tests;
