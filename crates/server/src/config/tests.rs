use std::time::Duration;

use shoal_core::resources::MilliCpu;
use shoal_engine::{AllowedRuntimes, BuildOnDemand, CustomImages, Endless};

use super::*;

fn sources(toml: &str, environment: &[(&str, &str)], flags: &[(&'static str, &str)]) -> Sources {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("shoal.toml");
    std::fs::write(&file, toml).unwrap();
    let environment = environment
        .iter()
        .map(|(name, value)| (name.into(), value.into()));
    let flags = flags
        .iter()
        .map(|(name, value)| (*name, Some((*value).to_owned())));
    Sources::default()
        .with_file(&file)
        .unwrap()
        .with_environment(environment)
        .with_flags(flags)
}

#[test]
fn the_defaults_are_a_valid_configuration() {
    let config = Config::read(&Sources::default()).unwrap();
    assert_eq!(config.listen.to_string(), "127.0.0.1:3000");
    assert_eq!(config.limits.max_timeout, Duration::from_secs(24 * 3600));
    assert_eq!(config.limits.never_timeout, Endless::Admins);
    assert_eq!(config.disk, DiskConfig::Auto);
    assert_eq!(config.limits.rate.calls, None);
    assert_eq!(config.runtime.allowed, AllowedRuntimes::Default);
    assert_eq!(config.limits.logs_per_team, Mib(256));
}

#[test]
fn a_flag_wins_over_the_environment_and_that_over_the_file() {
    let file = "data = '/f'\nlisten = '127.0.0.1:1'\n[network]\ndns = ['9.9.9.9', '8.8.8.8']\n";
    let environment = [
        ("SHOAL_DATA", "/e"),
        ("SHOAL_LISTEN", "127.0.0.1:2"),
        ("PATH", "/bin"),
    ];
    let config = Config::read(&sources(file, &environment, &[("listen", "127.0.0.1:3")])).unwrap();
    assert_eq!(config.data, PathBuf::from("/e"));
    assert_eq!(config.listen.port(), 3);
    assert_eq!(config.network.dns.len(), 2);
}

#[test]
fn all_mistakes_are_reported_at_once_with_source_and_reason() {
    let file = "lisen = 'x'\nstarts = 0\n[disk]\nsize = 'much'\n";
    let environment = [
        ("SHOAL_TLS", "maybe"),
        ("SHOAL_LISTN", "1"),
        ("SHOAL_API_KEY", "k"),
    ];
    let mistakes = Config::read(&sources(file, &environment, &[("listen", "here")])).unwrap_err();
    let text = mistakes.to_string();
    for part in [
        "5 mistake(s)",
        "is not a setting; did you mean listen?",
        "--listen: \"here\" is not an address like 127.0.0.1:3000",
        "SHOAL_TLS: \"maybe\" is not self-signed or <certificate>,<key>",
        "starts: \"0\" is not a number above zero",
        "disk.size: \"much\" is not a size like 512MiB or 10GiB",
    ] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
}

#[test]
fn an_unknown_variable_is_a_warning_with_a_suggestion() {
    let environment = [
        ("SHOAL_LISTN", "1"),
        // Kubernetes sets these for a service named `shoal`.
        ("SHOAL_SERVICE_HOST", "10.0.0.1"),
        ("SHOAL_PORT", "tcp://10.0.0.1:80"),
        ("SHOAL_API_KEY", "k"),
        ("SHOAL_LOG_LEVEL", "debug"),
    ];
    let sources = sources("", &environment, &[]);
    assert_eq!(Config::read(&sources).unwrap().log.level, "debug");
    let warnings = sources.warnings();
    assert_eq!(warnings.len(), 3, "{warnings:?}");
    assert_eq!(
        warnings[0],
        "SHOAL_LISTN: is not a setting; did you mean SHOAL_LISTEN?"
    );
    assert!(warnings[1].starts_with("SHOAL_SERVICE_HOST: is not a setting"));
}

#[test]
fn values_that_cannot_work_are_mistakes_too() {
    let directory = tempfile::tempdir().unwrap();
    let there = directory.path().join("there.pem");
    std::fs::write(&there, "").unwrap();
    let tls = format!("{},/nowhere/key.pem", there.display());
    let environment = [
        ("SHOAL_LOG_LEVEL", "wran"),
        ("SHOAL_TLS", tls.as_str()),
        ("SHOAL_METRICS_LISTEN", "0.0.0.0:9100"),
        ("SHOAL_STARTS", "0"),
    ];
    let text = Config::read(&sources("", &environment, &[]))
        .unwrap_err()
        .to_string();
    for part in [
        "4 mistake(s)",
        "SHOAL_LOG_LEVEL: \"wran\" is neither a level",
        "did you mean warn?",
        "SHOAL_TLS: cannot read the key /nowhere/key.pem: No such file",
        "SHOAL_METRICS_LISTEN: 0.0.0.0:9100 is reachable from other machines",
        "metrics.public",
    ] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
}

#[test]
fn metrics_listen_on_public_addresses_only_with_permission() {
    let said = |listen: &str, public: &str| {
        let environment = [
            ("SHOAL_METRICS_LISTEN", listen),
            ("SHOAL_METRICS_PUBLIC", public),
        ];
        Config::read(&sources("", &environment, &[])).map(|config| config.metrics_listen)
    };
    for address in ["127.0.0.1:9100", "[::1]:9100"] {
        assert_eq!(said(address, "false").unwrap(), address.parse().ok());
    }
    for address in ["0.0.0.0:9100", "192.0.2.1:9100", "[::]:9100"] {
        assert!(said(address, "false").is_err(), "{address}");
        assert_eq!(said(address, "true").unwrap(), address.parse().ok());
    }
}

#[test]
fn the_backend_is_this_machine_or_a_cluster() {
    let read = |environment: &[(&str, &str)]| Config::read(&sources("", environment, &[]));
    assert_eq!(read(&[]).unwrap().backend, BackendSettings::Machine);
    let cluster = [
        ("SHOAL_BACKEND", "kubernetes"),
        ("SHOAL_KUBERNETES_TEAM", "agents"),
    ];
    let expected = BackendSettings::Kubernetes {
        namespace: "shoal-system".parse().unwrap(),
        team: "agents".parse().unwrap(),
        config_map: "shoal-templates".to_owned(),
        pool_namespaces: Vec::new(),
        blueprint_file: "config/sandbox.yaml".into(),
        sessions: false,
    };
    assert_eq!(read(&cluster).unwrap().backend, expected);
    let text = read(&[("SHOAL_BACKEND", "k8s")]).unwrap_err().to_string();
    assert!(text.contains("machine or kubernetes"), "{text}");
}

#[test]
fn every_setting_is_read() {
    // A setting that is never read would accept anything.
    for setting in SETTINGS {
        let free_text = [
            "data",
            "envd",
            "kubernetes.blueprint_file",
            "templates.file",
            "runtime.runsc",
            "runtime.runc",
        ];
        if !free_text.contains(&setting.name) {
            let sources = Sources::default().with_flags([(setting.name, Some("\u{1}".to_owned()))]);
            assert!(Config::read(&sources).is_err(), "{}", setting.name);
        }
    }
}

#[test]
fn the_printed_settings_are_the_defaults() {
    let said: String = settings_file()
        .lines()
        .filter_map(|line| line.strip_prefix("# "))
        .filter(|line| line.contains(" = ") && !line.ends_with(" = \"\""))
        .map(|line| format!("{line}\n"))
        .collect();
    let config = Config::read(&sources(&said, &[], &[])).unwrap();
    assert_eq!(config, Config::read(&Sources::default()).unwrap());
}

#[test]
fn registries_are_hosts_as_in_image_names() {
    let said = |text: &str| Config::read(&sources("", &[("SHOAL_IMAGES_PLAIN_HTTP", text)], &[]));
    assert!(
        Config::read(&Sources::default())
            .unwrap()
            .templates
            .plain_http
            .is_empty()
    );
    let two = said("registry.lan:5000, 192.0.2.1:80").unwrap();
    assert_eq!(
        two.templates.plain_http,
        ["registry.lan:5000", "192.0.2.1:80"]
    );
    for bad in [
        "http://registry.lan",
        "registry.lan/team",
        "registry",
        "a b:1",
    ] {
        let text = said(bad).unwrap_err().to_string();
        assert!(
            text.contains("is not registries separated by commas"),
            "{text}"
        );
    }
}

#[test]
fn agent_sandboxes_variables_configure_templates_too() {
    let standard = Config::read(&Sources::default()).unwrap().templates;
    assert_eq!(standard.file, PathBuf::from("config/templates.json"));
    assert_eq!(standard.defaults.template.unwrap().as_str(), "base");
    assert_eq!(standard.custom_images, CustomImages::Admins);
    assert_eq!(standard.build_on_demand, BuildOnDemand::Admins);
    let environment = [
        ("SANDBOX_TEMPLATES_CONFIG_FILE", "/etc/templates.json"),
        ("SANDBOX_DEFAULT_TEMPLATE", "aio"),
        ("SANDBOX_DEFAULT_IMAGE", "ghcr.io/a/b:1"),
        ("SHOAL_TEMPLATES_DEFAULT", "ours"),
    ];
    let said = Config::read(&sources("[templates]\nfile = 'x'\n", &environment, &[]));
    let said = said.unwrap().templates;
    assert_eq!(said.file, PathBuf::from("/etc/templates.json"));
    assert_eq!(said.defaults.template.unwrap().as_str(), "ours");
    assert_eq!(said.defaults.image.unwrap().as_str(), "ghcr.io/a/b:1");
    let bad = [("SANDBOX_DEFAULT_IMAGE", "a b")];
    let mistakes = Config::read(&sources("", &bad, &[])).unwrap_err();
    let text = mistakes.to_string();
    assert!(
        text.contains("SANDBOX_DEFAULT_IMAGE: \"a b\" is not an image name"),
        "{text}"
    );
}

#[test]
fn runtimes_and_limits_are_read_by_name() {
    let environment = [
        ("SHOAL_RUNTIME_ALLOWED", "runsc, runc"),
        ("SHOAL_LIMITS_MEMORY_PER_SANDBOX", "2GiB"),
        ("SHOAL_LIMITS_CPU_PER_SANDBOX", "1.5"),
        ("SHOAL_LIMITS_FORKS", "7"),
    ];
    let config = Config::read(&sources("", &environment, &[])).unwrap();
    let AllowedRuntimes::Named(named) = &config.runtime.allowed else {
        panic!("{:?}", config.runtime.allowed);
    };
    assert_eq!(named.len(), 2);
    let limits = &config.limits;
    assert_eq!(limits.per_sandbox.memory, Some(Mib(2048)));
    assert_eq!(limits.per_sandbox.cpu, Some(MilliCpu(1500)));
    assert_eq!(limits.forks, Some(7));
    let any = [("SHOAL_RUNTIME_ALLOWED", "any")];
    let config = Config::read(&sources("", &any, &[])).unwrap();
    assert_eq!(config.runtime.allowed, AllowedRuntimes::Any);
    for (name, wrong) in [
        ("SHOAL_RUNTIME_ALLOWED", "docker"),
        ("SHOAL_LIMITS_FORKS", "0"),
        ("SHOAL_LIMITS_DISK_PER_TEAM", "much"),
    ] {
        assert!(
            Config::read(&sources("", &[(name, wrong)], &[])).is_err(),
            "{name}"
        );
    }
}
