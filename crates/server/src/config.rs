//! The configuration: a function from strings to [`Config`]. Of the machine it reads only whether the
//! files of a certificate can be opened.
//!
//! Each setting has one dotted name, used in the file (`[network]` `range = …`), in the environment
//! (`SHOAL_NETWORK_RANGE`) and, for common ones, as a flag. Flags override the environment, which
//! overrides the file. All settings are read before anything else happens, and all mistakes are
//! reported in one run.

mod filter;
mod limits;
mod mcp;
mod network;
mod parking;
mod read;
mod runtime;
pub(crate) mod settings;
pub(crate) mod sources;
mod templates;
mod units;

use std::fs::File;
use std::net::SocketAddr;
use std::path::PathBuf;

use shoal_core::auth::TeamSlug;
use shoal_core::parking::ParkingSettings;
use shoal_core::resources::Mib;
use shoal_node::DiskConfig;

pub(crate) use self::limits::LimitsConfig;
pub(crate) use self::mcp::McpSettings;
pub(crate) use self::network::NetworkSettings;
use self::read::Reader;
pub(crate) use self::runtime::RuntimeSettings;
use self::settings::SETTINGS;
pub(crate) use self::settings::settings_file;
pub(crate) use self::sources::Sources;
pub(crate) use self::templates::TemplatesConfig;
use self::units::parse_size;

/// Where sandboxes run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BackendSettings {
    /// On this machine.
    Machine,
    /// In the Kubernetes cluster of the environment.
    Kubernetes {
        /// The namespace of the Secrets with API keys.
        namespace: TeamSlug,
        /// The namespace in which the first key acts.
        team: TeamSlug,
        /// The ConfigMap with the template catalogue.
        config_map: String,
        /// The namespaces with pools of the catalogue's entries.
        pool_namespaces: Vec<String>,
        /// The file with the first blueprint.
        blueprint_file: PathBuf,
        /// Whether this replica serves sessions.
        sessions: bool,
    },
}

/// The format of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogFormat {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// The settings `log.*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LogConfig {
    /// A level or a filter.
    pub(crate) level: String,
    pub(crate) format: LogFormat,
}

/// The source of the certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Tls {
    /// Generated with its own authority and stored in the data directory.
    SelfSigned,
    /// PEM files.
    Files {
        /// The certificate and its chain.
        certificate: PathBuf,
        /// Its key.
        key: PathBuf,
    },
}

/// How much of the audit log is kept for each team.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AuditConfig {
    /// The size at which a file is rotated.
    pub(crate) bytes: u64,
    /// The number of rotated files to keep.
    pub(crate) keep: usize,
}

/// The whole configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Config {
    pub(crate) backend: BackendSettings,
    pub(crate) data: PathBuf,
    pub(crate) listen: SocketAddr,
    pub(crate) domain: Option<String>,
    pub(crate) tls: Option<Tls>,
    pub(crate) metrics_listen: Option<SocketAddr>,
    pub(crate) log: LogConfig,
    pub(crate) limits: LimitsConfig,
    pub(crate) templates: TemplatesConfig,
    pub(crate) runtime: RuntimeSettings,
    pub(crate) mcp: McpSettings,
    pub(crate) network: NetworkSettings,
    /// None to park no sandbox.
    pub(crate) parking: Option<ParkingSettings>,
    pub(crate) disk: DiskConfig,
    pub(crate) export_key: Option<PathBuf>,
    /// None to write no audit log.
    pub(crate) audit: Option<AuditConfig>,
}

impl Config {
    /// Reads the settings.
    ///
    /// # Errors
    /// All mistakes.
    pub(crate) fn read(sources: &Sources) -> Result<Self, Mistakes> {
        let mut reader = Reader::new(sources);
        let config = Self::read_all(&mut reader);
        let mistakes = reader.finish();
        match config {
            Some(config) if mistakes.is_empty() => Ok(config),
            _ => Err(Mistakes(mistakes)),
        }
    }

    fn read_all(reader: &mut Reader<'_>) -> Option<Self> {
        let backend = read_backend(reader);
        let data = reader.parse("data", "a path");
        let listen = reader.parse("listen", "an address like 127.0.0.1:3000");
        let domain = reader.optional("domain", "a name", parse_domain);
        let tls = read_tls(reader);
        let metrics_listen = read_metrics_listen(reader);
        let log = read_log(reader);
        let limits = limits::read(reader);
        let templates = templates::read(reader);
        let runtime = runtime::read(reader);
        let mcp = mcp::read(reader);
        let network = network::read(reader);
        let parking = parking::read(reader);
        let disk = read_disk(reader);
        let export_key = reader.optional("snapshots.export_key", "an absolute path", |text| {
            // A relative path would depend on where the daemon was started.
            Some(PathBuf::from(text)).filter(|path| path.is_absolute())
        });
        let audit = read_audit(reader);
        Some(Self {
            backend: backend?,
            data: data?,
            listen: listen?,
            domain: domain?,
            tls: tls?,
            metrics_listen: metrics_listen?,
            log: log?,
            limits: limits?,
            templates: templates?,
            runtime: runtime?,
            mcp: mcp?,
            network: network?,
            parking: parking?,
            disk: disk?,
            export_key: export_key?,
            audit: audit?,
        })
    }
}

fn read_backend(reader: &mut Reader<'_>) -> Option<BackendSettings> {
    let namespace = reader.parse("kubernetes.namespace", "the name of a namespace");
    let team = reader.parse("kubernetes.team", "the name of a namespace");
    let config_map = reader.with("kubernetes.config_map", "the name of a ConfigMap", |text| {
        let good = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'.');
        (!text.is_empty() && text.bytes().all(good)).then(|| text.to_owned())
    });
    let pool_namespaces = reader.with(
        "kubernetes.pool_namespaces",
        "names of namespaces separated by commas",
        |text| {
            let names = read::items(text).map(|name| name.parse::<TeamSlug>().ok());
            names.map(|name| Some(name?.to_string())).collect()
        },
    );
    let blueprint_file = reader.parse("kubernetes.blueprint_file", "a path");
    let sessions = reader.parse("kubernetes.sessions", "true or false");
    let in_cluster = reader.with("backend", "machine or kubernetes", |text| match text {
        "machine" => Some(false),
        "kubernetes" => Some(true),
        _ => None,
    })?;
    Some(if in_cluster {
        BackendSettings::Kubernetes {
            namespace: namespace?,
            team: team?,
            config_map: config_map?,
            pool_namespaces: pool_namespaces?,
            blueprint_file: blueprint_file?,
            sessions: sessions?,
        }
    } else {
        BackendSettings::Machine
    })
}

fn read_log(reader: &mut Reader<'_>) -> Option<LogConfig> {
    let level: Option<String> = reader.parse("log.level", "a level");
    if let Some(Err(why)) = level.as_deref().map(filter::check) {
        reader.refuse("log.level", why);
    }
    let format = reader.with("log.format", "text or json", |text| match text {
        "text" => Some(LogFormat::Text),
        "json" => Some(LogFormat::Json),
        _ => None,
    });
    Some(LogConfig {
        level: level?,
        format: format?,
    })
}

fn read_disk(reader: &mut Reader<'_>) -> Option<DiskConfig> {
    let size: Option<Option<Mib>> =
        reader.optional("disk.size", "a size like 512MiB or 10GiB", parse_size);
    let backend = reader.with("disk.backend", "auto, btrfs or plain", |text| {
        matches!(text, "auto" | "btrfs" | "plain").then(|| text.to_owned())
    });
    Some(match (backend?.as_str(), size?) {
        ("plain", _) => DiskConfig::Plain,
        // A size implies btrfs.
        ("btrfs", size) | (_, size @ Some(_)) => DiskConfig::Btrfs { size },
        (_, None) => DiskConfig::Auto,
    })
}

fn read_audit(reader: &mut Reader<'_>) -> Option<Option<AuditConfig>> {
    let enabled: bool = reader.parse("audit.enabled", "true or false")?;
    let size = reader.with("audit.size", "a size like 1MiB or 1GiB", |text| {
        parse_size(text).filter(|size| size.0 > 0)
    })?;
    let keep = reader.with("audit.keep", "a number from 1 to 1000", |text| {
        text.parse().ok().filter(|keep| (1..=1000).contains(keep))
    })?;
    Some(enabled.then_some(AuditConfig {
        bytes: size.bytes(),
        keep,
    }))
}

fn parse_domain(text: &str) -> Option<String> {
    let label = |l: &str| {
        let good = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
        (1..=63).contains(&l.len()) && l.bytes().all(good) && !l.starts_with('-')
    };
    let good = text.contains('.') && text.split('.').all(label);
    good.then(|| text.to_ascii_lowercase())
}

fn read_tls(reader: &mut Reader<'_>) -> Option<Option<Tls>> {
    let tls = reader.optional("tls", "self-signed or <certificate>,<key>", parse_tls)?;
    if let Some(Tls::Files { certificate, key }) = &tls {
        for (what, file) in [("certificate", certificate), ("key", key)] {
            if let Err(error) = File::open(file) {
                let file = file.display();
                reader.refuse(
                    "tls",
                    format_args!("cannot read the {what} {file}: {error}"),
                );
            }
        }
    }
    Some(tls)
}

/// Metrics reveal much and require no key, so other machines need an explicit permission.
fn read_metrics_listen(reader: &mut Reader<'_>) -> Option<Option<SocketAddr>> {
    let listen = reader.with("metrics.listen", "an address or off", |text| {
        if text == "off" {
            Some(None)
        } else {
            text.parse().ok().map(Some)
        }
    })?;
    let public: bool = reader.parse("metrics.public", "true or false")?;
    if let Some(address) = listen.filter(|address: &SocketAddr| !address.ip().is_loopback())
        && !public
    {
        reader.refuse(
            "metrics.listen",
            format_args!(
                "{address} is reachable from other machines, and metrics require no key: listen on \
                 127.0.0.1, or set metrics.public = true"
            ),
        );
    }
    Some(listen)
}

fn parse_tls(text: &str) -> Option<Tls> {
    match text.split_once(',') {
        None if text == "self-signed" => Some(Tls::SelfSigned),
        Some((certificate, key)) if !certificate.is_empty() && !key.is_empty() => {
            Some(Tls::Files {
                certificate: certificate.into(),
                key: key.into(),
            })
        }
        _ => None,
    }
}

/// All mistakes in the configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the configuration has {} mistake(s):\n  {}", .0.len(), .0.join("\n  "))]
pub(crate) struct Mistakes(pub(crate) Vec<String>);

#[cfg(test)]
mod tests;
