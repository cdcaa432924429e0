//! The list of settings.

use std::fmt::Write;

use super::sources;

/// One setting.
pub(crate) struct Setting {
    /// The dotted name.
    pub(crate) name: &'static str,
    /// The default; empty for none.
    pub(crate) default: &'static str,
    /// A description for people.
    pub(crate) about: &'static str,
}

macro_rules! settings {
    ($($name:literal = $default:literal, $about:literal;)*) => {
        /// Every setting: the only list of them.
        pub(crate) const SETTINGS: &[Setting] = &[
            $(Setting { name: $name, default: $default, about: $about },)*
        ];
    };
}

settings! {
    "backend" = "machine", "where sandboxes run: machine, or kubernetes, as custom resources of agents.kruise.io";
    "data" = "/var/lib/shoal", "the data directory";
    "listen" = "127.0.0.1:3000", "address of the API and of all sandboxes";
    "domain" = "", "domain of sandbox host names: {port}-{sandbox}.<domain>";
    "tls" = "", "self-signed, or <certificate>,<key> in PEM; default: no TLS";
    "metrics.listen" = "off", "address of GET /metrics for Prometheus, or off; requires no key";
    "metrics.public" = "false", "whether metrics.listen may be an address that other machines reach";
    "log.level" = "info", "log level: error, warn, info, debug, trace, or a filter";
    "log.format" = "text", "log format: text or json";
    "envd" = "", "path of the daemon for sandboxes; default: shoal-envd beside this program";
    "starts" = "", "maximum number of parallel sandbox starts; default: the number of processors plus one";
    "limits.max_timeout" = "24h", "longest life of a sandbox";
    "limits.never_timeout" = "admin", "keys that may create sandboxes without a deadline: admin or any";
    "limits.sandboxes" = "1000", "maximum number of sandboxes";
    "limits.sandboxes_per_team" = "1000", "maximum number of a team's sandboxes, without paused ones";
    "limits.cpu_per_team" = "", "maximum processors of a team's running sandboxes together; default: no limit";
    "limits.memory_per_team" = "", "maximum memory of a team's running sandboxes together; default: eight times the machine's";
    "limits.disk_per_team" = "", "maximum use of the sandboxes' disk by a team; default: four fifths";
    "limits.snapshots_per_team" = "1000", "maximum number of a team's snapshots";
    "limits.cpu_per_sandbox" = "", "maximum processors of a sandbox; default: all of the machine";
    "limits.memory_per_sandbox" = "", "maximum memory of a sandbox; default: the machine's, minus a reserve for the server";
    "limits.disk_per_sandbox" = "", "maximum disk of a sandbox; default: 10GiB, or a quarter of a smaller disk";
    "limits.free_memory" = "", "memory of the machine that creates and resumes leave free, or off; default: 4 %, at most 1GiB";
    "limits.forks" = "", "maximum number of forks in one request, up to 100; default: 16 for each processor";
    "limits.uploads_per_team" = "", "maximum size of a team's uploads for builds; default: 16GiB, or half of limits.uploads";
    "limits.uploads" = "", "maximum size of all uploads for builds; default: a quarter of the file system of the data directory";
    "limits.logs_per_team" = "256MiB", "maximum size of a team's sandbox logs together";
    "limits.keep_ended" = "7d", "how long the log of an ended sandbox is kept";
    "parking.after" = "asked", "idle time after which a gVisor sandbox is parked: saved with its memory and ended until it is needed; asked: only sandboxes with the label shoal/parking; or off";
    "parking.backoff" = "32", "how many times longer that is, at most, for a sandbox that is woken soon after it was parked";
    "parking.disk_room" = "1GiB", "free space that parking leaves on the sandboxes' disk";
    "rate.calls" = "0", "maximum calls of a team to one route in rate.per; 0 for no limit";
    "rate.per" = "1s", "the time window of rate.calls";
    "gateway.connections" = "2500", "maximum number of concurrent requests into a sandbox";
    "gateway.trusted_proxies" = "", "proxies whose X-Forwarded-For, -Proto and -Host are forwarded, separated by commas, like 10.0.0.0/8; those of other clients are replaced";
    "templates.file" = "config/templates.json", "the template catalogue; a relative path is in the data directory";
    "kubernetes.sessions" = "false", "with the backend kubernetes: whether this replica serves sessions, which its data directory keeps: one replica of a cluster may";
    "templates.default" = "base", "template of a request without template and image";
    "templates.default_image" = "", "image of such a request if that template does not exist";
    "templates.custom_images" = "admin", "keys whose requests may name an image: admin or any";
    "templates.build_on_demand" = "admin", "keys whose requests may start the build of a built-in template such as code-interpreter-v1: admin or any";
    "images.plain_http" = "", "registries without TLS, separated by commas, like registry.lan:5000; those on loopback never use it";
    "images.private_registries" = "", "registries at private addresses that tenants may name (with templates.custom_images=any), separated by commas, like registry.lan:5000";
    "images.ubuntu_mirror" = "", "mirror of Ubuntu's packages, like http://mirror.lan/ubuntu; default: that of this machine's apt, else the one that mmdebstrap knows";
    "sessions.template" = "session-v1", "template of the machines of sessions";
    "sessions.ssh_networks" = "public", "networks of the external machines of sessions: `public` and ranges, separated by commas; empty for none";
    "sessions.fallback" = "base", "template of such a machine while sessions.template is not built; empty to refuse commands until then";
    "sessions.contents" = "", "bucket for the contents of session files, like s3://bucket/prefix; default: the data directory";
    "sessions.privileged" = "false", "whether sessions may ask for privileged machines, in which Docker runs: see SECURITY.md";
    "sessions.docker_template" = "session-docker-v1", "template of privileged machines of sessions";
    "runtime.default" = "runsc", "the default runtime: runsc, or runc for trusted code only";
    "runtime.allowed" = "", "runtimes that keys without admin rights may choose, separated by commas, or any; default: the default runtime only";
    "runtime.runsc" = "runsc", "path of gVisor's runsc";
    "runtime.runc" = "runc", "path of runc, for trusted code";
    "runtime.platform" = "systrap", "how gVisor intercepts system calls: systrap, ptrace or kvm";
    "mcp.enabled" = "true", "whether agents reach sandboxes by the Model Context Protocol at /mcp";
    "mcp.template" = "", "template of the sandbox of an MCP session; default: templates.default";
    "mcp.idle_timeout" = "30m", "how long an MCP session lives without a request; its sandbox ends with it";
    "mcp.sessions_per_team" = "100", "maximum number of a team's MCP sessions";
    "mcp.origins" = "", "origins of web pages that may use /mcp beside those of this machine, separated by commas, like https://agents.example";
    "network.range" = "10.79.0.0/16", "private address range of network slots";
    "network.dns" = "", "name servers of sandboxes, separated by commas; default: the host's";
    "network.warm_slots" = "16", "number of network slots to keep ready";
    "snapshots.export_key" = "", "file with the secret that seals exported snapshots; machines with the same secret accept each other's exports; default: a secret of this installation";
    "audit.enabled" = "true", "whether to write an audit log to <data>/audit";
    "audit.size" = "16MiB", "size at which an audit log file is rotated, for each team";
    "audit.keep" = "8", "number of rotated audit log files to keep, for each team";
    "kubernetes.namespace" = "shoal-system", "with the backend kubernetes: the namespace of the Secrets with API keys";
    "kubernetes.team" = "default", "with the backend kubernetes: the namespace in which the first API key acts";
    "kubernetes.config_map" = "shoal-templates", "with the backend kubernetes: the ConfigMap with the template catalogue, in kubernetes.namespace";
    "kubernetes.pool_namespaces" = "", "with the backend kubernetes: the namespaces in which entries of the catalogue have pools, separated by commas; kubernetes.team if empty";
    "kubernetes.blueprint_file" = "config/sandbox.yaml", "with the backend kubernetes: the first blueprint, like the catalogue of templates.file; a relative path is in the data directory";
    "disk.backend" = "auto", "how the sandboxes' disk is limited: auto, btrfs or plain";
    "disk.size" = "", "size of the sandboxes' disk; default: a quarter of the free space";
}

/// A configuration file with every setting as a comment.
pub(crate) fn settings_file() -> String {
    let mut text = String::from("# Uncomment what you change, and pass this file with --config.\n");
    for setting in SETTINGS {
        let Setting {
            name,
            default,
            about,
        } = setting;
        let variable = sources::variable(name);
        // Writing into a string cannot fail.
        let _ = write!(text, "\n# {about} ({variable})\n# {name} = {default:?}\n");
    }
    text
}
