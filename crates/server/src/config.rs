//! What an operator says: a function from texts to a value. Of the machine it looks only at whether
//! the files of a certificate can be read.
//!
//! Each setting has a dotted name, the same in the file (`[network]` `range = …`), in the
//! environment (`SHOAL_NETWORK_RANGE`) and, for the common ones, as a flag. Flags win over the
//! environment, and that over the file. All settings are read before anything else happens, and
//! all mistakes are told in one run.

mod filter;
mod limits;
mod read;
mod sources;
mod units;

use std::fmt::Write;
use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use ipnet::{IpNet, Ipv4Net};
use shoal_core::image::ImageName;
use shoal_core::quantity::duration as parse_duration;
use shoal_core::resources::{Mib, MilliCpu};
use shoal_engine::{AllowedRuntimes, BuildOnDemand, CustomImages, Defaults, Endless};
use shoal_node::DiskConfig;
use shoal_oci::RuntimeKind;

pub(crate) use self::limits::LimitsConfig;
use self::read::Reader;
pub(crate) use self::sources::Sources;
use self::units::parse_size;

/// How the log is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogFormat {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// Where the certificate comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Tls {
    /// Made here, with an authority of its own, kept in the data directory.
    SelfSigned,
    /// Files in PEM.
    Files {
        /// The certificate and those that vouch for it.
        certificate: PathBuf,
        /// Its key.
        key: PathBuf,
    },
}

/// What sandboxes start from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TemplatesConfig {
    /// The file with the catalogue.
    pub(crate) file: PathBuf,
    /// What a request means that names nothing.
    pub(crate) defaults: Defaults,
    /// Whose requests may name an image.
    pub(crate) custom_images: CustomImages,
    /// Whose requests begin a build of the installation's own templates.
    pub(crate) build_on_demand: BuildOnDemand,
}

/// How much of the audit log is kept of each team.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AuditConfig {
    /// The size at which a file is full.
    pub(crate) bytes: u64,
    /// How many full files are kept.
    pub(crate) keep: usize,
}

/// Everything that is configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Config {
    pub(crate) data: PathBuf,
    pub(crate) listen: SocketAddr,
    pub(crate) domain: Option<String>,
    pub(crate) tls: Option<Tls>,
    pub(crate) metrics_listen: Option<SocketAddr>,
    pub(crate) log_level: String,
    pub(crate) log_format: LogFormat,
    pub(crate) envd: Option<PathBuf>,
    pub(crate) starts: Option<usize>,
    pub(crate) max_timeout: Duration,
    pub(crate) never_timeout: Endless,
    pub(crate) sandboxes: usize,
    pub(crate) sandboxes_per_team: usize,
    pub(crate) cpu_per_team: Option<MilliCpu>,
    pub(crate) limits: LimitsConfig,
    pub(crate) keep_ended: Duration,
    pub(crate) rate_calls: Option<NonZeroU32>,
    pub(crate) rate_per: Duration,
    pub(crate) connections: usize,
    pub(crate) trusted_proxies: Vec<IpNet>,
    pub(crate) templates: TemplatesConfig,
    pub(crate) plain_http: Vec<String>,
    /// Registries at addresses that are not public and that tenants may name.
    pub(crate) private_registries: Vec<String>,
    pub(crate) runtime: RuntimeKind,
    pub(crate) runtimes_allowed: AllowedRuntimes,
    pub(crate) runsc: PathBuf,
    pub(crate) runc: PathBuf,
    pub(crate) platform: String,
    pub(crate) network_range: Ipv4Net,
    pub(crate) network_dns: Vec<Ipv4Addr>,
    pub(crate) warm_slots: usize,
    pub(crate) disk: DiskConfig,
    pub(crate) export_key: Option<PathBuf>,
    /// None when no audit log is kept.
    pub(crate) audit: Option<AuditConfig>,
}

/// One setting: its name, what it is, and what it is when nothing is said.
pub(crate) struct Setting {
    /// The dotted name.
    pub(crate) name: &'static str,
    /// What is taken when nothing is said; empty for none.
    pub(crate) default: &'static str,
    /// What it is, for people.
    pub(crate) about: &'static str,
}

macro_rules! settings {
    ($($name:literal = $default:literal, $about:literal;)*) => {
        /// Every setting there is: the only list of them.
        pub(crate) const SETTINGS: &[Setting] = &[
            $(Setting { name: $name, default: $default, about: $about },)*
        ];
    };
}

settings! {
    "data" = "/var/lib/shoal", "where everything is kept";
    "listen" = "127.0.0.1:3000", "address of the API and of all sandboxes";
    "domain" = "", "name below which sandboxes have theirs: {port}-{sandbox}.<domain>";
    "tls" = "", "self-signed, or <certificate>,<key> in PEM";
    "metrics.listen" = "off", "address of GET /metrics for Prometheus, or off; no key is asked for there";
    "metrics.public" = "false", "whether metrics.listen may be an address that other machines reach";
    "log.level" = "info", "what is logged: error, warn, info, debug, trace, or a filter";
    "log.format" = "text", "text or json";
    "envd" = "", "the daemon for sandboxes; beside this program when nothing is said";
    "starts" = "", "how many sandboxes are started at once; one more than there are processors when nothing is said";
    "limits.max_timeout" = "24h", "the longest life of a sandbox";
    "limits.never_timeout" = "admin", "whose requests may make sandboxes without a deadline: admin (keys) or any";
    "limits.sandboxes" = "1000", "how many sandboxes there may be";
    "limits.sandboxes_per_team" = "1000", "how many sandboxes a team may have that are not paused";
    "limits.cpu_per_team" = "", "how many processors the running sandboxes of a team may have together; no limit when nothing is said";
    "limits.memory_per_team" = "", "how much memory the running sandboxes of a team may have together; eight times what the machine has when nothing is said";
    "limits.disk_per_team" = "", "how much of the disk of sandboxes a team may hold; four fifths when nothing is said";
    "limits.snapshots_per_team" = "1000", "how many snapshots a team may keep";
    "limits.cpu_per_sandbox" = "", "how many processors a sandbox may have; those of the machine when nothing is said";
    "limits.memory_per_sandbox" = "", "how much memory a sandbox may have; that of the machine without what is kept for the server when nothing is said";
    "limits.disk_per_sandbox" = "", "how much a sandbox may write; 10GiB when nothing is said, or a quarter of a disk that is smaller than that";
    "limits.forks" = "", "how many forks a request may ask for, up to 100; 16 for each processor when nothing is said";
    "limits.uploads_per_team" = "", "how much a team may have sent for builds; 16GiB when nothing is said, or half of limits.uploads";
    "limits.uploads" = "", "how much all teams may have sent for builds; a quarter of the file system of `data` when nothing is said";
    "limits.logs_per_team" = "256MiB", "how large the logs of a team's sandboxes may be together";
    "limits.keep_ended" = "7d", "how long the log of an ended sandbox is kept";
    "rate.calls" = "0", "how many calls of a route a team may make in rate.per; 0 for any number";
    "rate.per" = "1s", "the time in which rate.calls are counted";
    "gateway.connections" = "2500", "how many requests a sandbox may have at once";
    "gateway.trusted_proxies" = "", "proxies in front of this server, by commas, like 10.0.0.0/8: what they say of a client (X-Forwarded-For, -Proto, -Host) is passed on, what others say is replaced";
    "templates.file" = "config/templates.json", "the catalogue of templates, below `data` unless it begins with /";
    "templates.default" = "base", "the template of a sandbox for which neither template nor image is named";
    "templates.default_image" = "", "its image, when there is no such template";
    "templates.custom_images" = "admin", "whose requests may name an image: admin (keys) or any";
    "templates.build_on_demand" = "admin", "whose requests begin a build of the installation's own templates, like code-interpreter-v1: admin (keys) or any";
    "images.plain_http" = "", "registries that are asked without TLS, by commas, like registry.lan:5000; those on this machine's loopback always are";
    "images.private_registries" = "", "registries at addresses that are not public and that tenants may name all the same (templates.custom_images=any), by commas, like registry.lan:5000";
    "runtime.default" = "runsc", "what runs sandboxes that ask for none: runsc, or runc for trusted code alone";
    "runtime.allowed" = "", "runtimes that keys may choose that are no admin's, by commas, or any; the default one alone when nothing is said";
    "runtime.runsc" = "runsc", "the gVisor runtime";
    "runtime.runc" = "runc", "the reference runtime, for trusted code";
    "runtime.platform" = "systrap", "how gVisor intercepts calls: systrap, ptrace or kvm";
    "network.range" = "10.79.0.0/16", "where network slots have their addresses";
    "network.dns" = "", "name servers of sandboxes, by commas; the host's when nothing is said";
    "network.warm_slots" = "16", "how many network slots are kept ready";
    "snapshots.export_key" = "", "a file with the secret that exports of snapshots are sealed with, the same on machines that take in each other's; a secret of this installation when nothing is said";
    "audit.enabled" = "true", "whether <data>/audit tells who did what";
    "audit.size" = "16MiB", "how large a file of the audit log grows, for each team";
    "audit.keep" = "8", "how many full files of the audit log are kept, for each team";
    "disk.backend" = "auto", "how the disk of sandboxes is bounded: auto, btrfs or plain";
    "disk.size" = "", "how much disk all sandboxes have; a quarter of the free space";
}

/// A configuration file that changes nothing: every setting with what it is when nothing is said.
pub(crate) fn settings_file() -> String {
    let mut text = String::from("# Put what you change into a file, and name it with --config.\n");
    for setting in SETTINGS {
        let Setting {
            name,
            default,
            about,
        } = setting;
        let variable = sources::variable(name);
        // Writing into a text cannot fail.
        let _ = write!(text, "\n# {about} ({variable})\n# {name} = {default:?}\n");
    }
    text
}

impl Config {
    /// Reads the settings.
    ///
    /// # Errors
    /// Every mistake there is.
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
        let data = reader.parse("data", "a path");
        let listen = reader.parse("listen", "an address like 127.0.0.1:3000");
        let domain = reader.optional("domain", "a name", parse_domain);
        let tls = read_tls(reader);
        let metrics_listen = read_metrics_listen(reader);
        let log_level: Option<String> = reader.parse("log.level", "a level");
        if let Some(Err(why)) = log_level.as_deref().map(filter::check) {
            reader.refuse("log.level", why);
        }
        let log_format = reader.with("log.format", "text or json", |text| match text {
            "text" => Some(LogFormat::Text),
            "json" => Some(LogFormat::Json),
            _ => None,
        });
        let envd = reader.optional("envd", "a path", |text| Some(text.into()));
        let number = "a number above zero";
        let positive = |text: &str| text.parse::<usize>().ok().filter(|n| *n > 0);
        let starts = reader.optional("starts", number, positive);
        let duration = "a time like 90s, 5m, 24h or 7d";
        let max_timeout = reader.with("limits.max_timeout", duration, parse_duration);
        let never_timeout =
            reader.with("limits.never_timeout", "admin or any", |text| match text {
                "admin" => Some(Endless::Admins),
                "any" => Some(Endless::Everyone),
                _ => None,
            });
        let sandboxes = reader.with("limits.sandboxes", number, positive);
        let sandboxes_per_team = reader.with("limits.sandboxes_per_team", number, positive);
        let processors = "a number of processors like 8 or 0.5";
        let cpu_per_team = reader.optional("limits.cpu_per_team", processors, parse_processors);
        let limits = limits::read(reader);
        let keep_ended = reader.with("limits.keep_ended", duration, parse_duration);
        let rate_calls = reader.with("rate.calls", "a number", |text| {
            text.parse::<u32>().ok().map(NonZeroU32::new)
        });
        let rate_per = reader.with("rate.per", duration, |text| {
            parse_duration(text).filter(|time| !time.is_zero())
        });
        let connections = reader.with("gateway.connections", number, positive);
        let trusted_proxies = reader.with(
            "gateway.trusted_proxies",
            "addresses or ranges by commas, like 10.0.0.0/8",
            |text| parts(text).map(parse_proxies).collect(),
        );
        let templates = read_templates(reader);
        let plain_http = reader.with(
            "images.plain_http",
            "registries by commas, like registry.lan:5000",
            |text| parts(text).map(parse_registry).collect(),
        );
        let private_registries = reader.with(
            "images.private_registries",
            "registries by commas, like registry.lan:5000",
            |text| parts(text).map(parse_registry).collect(),
        );
        let runtime = reader.with("runtime.default", "runsc or runc", |text| match text {
            "runsc" => Some(RuntimeKind::Runsc),
            "runc" => Some(RuntimeKind::Runc),
            _ => None,
        });
        let runtimes_allowed = reader.optional(
            "runtime.allowed",
            "runsc, runc, both by commas, or any",
            parse_allowed,
        );
        let runtimes_allowed = runtimes_allowed.map(Option::unwrap_or_default);
        let runsc = reader.parse("runtime.runsc", "a path");
        let runc = reader.parse("runtime.runc", "a path");
        let platform = reader.with("runtime.platform", "systrap, ptrace or kvm", |text| {
            matches!(text, "systrap" | "ptrace" | "kvm").then(|| text.to_owned())
        });
        let network_range = reader.with(
            "network.range",
            "a private range like 10.79.0.0/16",
            parse_range,
        );
        let network_dns = reader.with("network.dns", "IPv4 addresses by commas", |text| {
            parts(text).map(|part| part.parse().ok()).collect()
        });
        let warm_slots = reader.parse("network.warm_slots", "a number");
        let disk = read_disk(reader);
        let export_key = reader.optional("snapshots.export_key", "an absolute path", |text| {
            // Where a daemon is started from says nothing.
            Some(PathBuf::from(text)).filter(|path| path.is_absolute())
        });
        let audit = read_audit(reader);
        Some(Self {
            data: data?,
            listen: listen?,
            domain: domain?,
            tls: tls?,
            metrics_listen: metrics_listen?,
            log_level: log_level?,
            log_format: log_format?,
            envd: envd?,
            starts: starts?,
            max_timeout: max_timeout?,
            never_timeout: never_timeout?,
            sandboxes: sandboxes?,
            sandboxes_per_team: sandboxes_per_team?,
            cpu_per_team: cpu_per_team?,
            limits: limits?,
            keep_ended: keep_ended?,
            rate_calls: rate_calls?,
            rate_per: rate_per?,
            connections: connections?,
            trusted_proxies: trusted_proxies?,
            templates: templates?,
            plain_http: plain_http?,
            private_registries: private_registries?,
            runtime: runtime?,
            runtimes_allowed: runtimes_allowed?,
            runsc: runsc?,
            runc: runc?,
            platform: platform?,
            network_range: network_range?,
            network_dns: network_dns?,
            warm_slots: warm_slots?,
            disk: disk?,
            export_key: export_key?,
            audit: audit?,
        })
    }
}

/// What is between commas.
fn parts(text: &str) -> impl Iterator<Item = &str> {
    let parts = text.split(',').map(str::trim);
    parts.filter(|part| !part.is_empty())
}

/// A registry as images' names have it: a host, and a port if any.
fn parse_registry(text: &str) -> Option<String> {
    let image: Option<ImageName> = format!("{text}/x").parse().ok();
    let is_host = !text.contains('/') && text.contains(['.', ':']);
    image.filter(|_| is_host).map(|_| text.to_owned())
}

fn read_templates(reader: &mut Reader<'_>) -> Option<TemplatesConfig> {
    let file = reader.parse("templates.file", "a path");
    let template = reader.optional("templates.default", "a template's name", |text| {
        text.parse().ok()
    });
    let name = "an image's name like python:3.11";
    let image = reader.optional("templates.default_image", name, |text| text.parse().ok());
    let custom_images = reader.with(
        "templates.custom_images",
        "admin or any",
        |text| match text {
            "admin" => Some(CustomImages::Admins),
            "any" => Some(CustomImages::Everyone),
            _ => None,
        },
    );
    let build_on_demand = reader.with(
        "templates.build_on_demand",
        "admin or any",
        |text| match text {
            "admin" => Some(BuildOnDemand::Admins),
            "any" => Some(BuildOnDemand::Everyone),
            _ => None,
        },
    );
    Some(TemplatesConfig {
        file: file?,
        defaults: Defaults {
            template: template?,
            image: image?,
        },
        custom_images: custom_images?,
        build_on_demand: build_on_demand?,
    })
}

fn parse_allowed(text: &str) -> Option<AllowedRuntimes> {
    if text == "any" {
        return Some(AllowedRuntimes::Any);
    }
    let known = parts(text).map(|name| match name {
        "runsc" | "runc" => name.parse().ok(),
        _ => None,
    });
    known.collect::<Option<_>>().map(AllowedRuntimes::Named)
}

fn read_disk(reader: &mut Reader<'_>) -> Option<DiskConfig> {
    let size: Option<Option<Mib>> =
        reader.optional("disk.size", "a size like 512MiB or 10GiB", parse_size);
    let backend = reader.with("disk.backend", "auto, btrfs or plain", |text| {
        matches!(text, "auto" | "btrfs" | "plain").then(|| text.to_owned())
    });
    Some(match (backend?.as_str(), size?) {
        ("plain", _) => DiskConfig::Plain,
        // Whoever says how large it is to be wants it.
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

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "within the bounds that are checked"
)]
fn parse_processors(text: &str) -> Option<MilliCpu> {
    let number: f64 = text.parse().ok()?;
    (0.001..=1e6)
        .contains(&number)
        .then_some(MilliCpu((number * 1000.0) as u32))
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

/// What is counted tells a stranger much, and is told to whoever asks.
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
                "{address} is reached by other machines, and no key is asked for there: listen on \
                 127.0.0.1, or say metrics.public = true"
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

/// A range of addresses, or one address.
fn parse_proxies(text: &str) -> Option<IpNet> {
    let address = || text.parse::<IpAddr>().ok().map(IpNet::from);
    text.parse().ok().or_else(address)
}

fn parse_range(text: &str) -> Option<Ipv4Net> {
    let range: Ipv4Net = text.parse().ok()?;
    // Between one slot and as many as a machine could ever carry; never public addresses.
    let fits = (8..=30).contains(&range.prefix_len());
    (fits && range.network().is_private()).then(|| range.trunc())
}

/// What is wrong with the configuration, all of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the configuration has {} mistake(s):\n  {}", .0.len(), .0.join("\n  "))]
pub(crate) struct Mistakes(pub(crate) Vec<String>);

#[cfg(test)]
mod tests;
