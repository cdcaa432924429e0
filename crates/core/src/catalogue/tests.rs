#![allow(clippy::too_many_lines, reason = "a scenario reads from top to bottom")]
use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::merge::{SettingsLayer, Source, merge};
use super::*;
use crate::image::ImageName;
use crate::resources::{Mib, MilliCpu};
use crate::snapshot::Contents;

fn catalogue(entries: Value) -> Result<Catalogue, InvalidCatalogue> {
    Catalogue::parse(&entries.to_string())
}

fn plain(name: &str) -> Value {
    json!({"name": name, "image": "python:3.11-slim", "description": "Python"})
}

/// The example entries of Agent-Sandbox's documentation.
fn agent_sandbox() -> Catalogue {
    let faas = json!({
        "name": "faas-code",
        "pattern": "faas-code-(?P<name>.+)\\.(?P<version>.+)$",
        "image": "ghcr.io/agent-sandbox/<name>:<version>",
        "type": "dynamic",
        "port": 49999,
        "description": "Dynamic code interpreter for any runtime"
    });
    let runtime = json!({
        "name": "runtime",
        "pattern": "^(?P<name>[a-z]+)-(?P<version>[0-9.]+)$",
        "image": "ghcr.io/runtimes/<name>:<version>",
        "type": "dynamic",
        "port": 8080,
        "description": "Generic runtime template for versioned environments"
    });
    let interpreter = json!({
        "name": "code-interpreter",
        "image": "ghcr.io/agent-sandbox/code-interpreter:0.4.0",
        "port": 49999,
        "resources": {"cpu": "0.2", "memory": "200Mi", "cpuLimit": "1", "memoryLimit": "1Gi"},
        "pool": {
            "size": 3, "probePort": 8888,
            "warmupCmd": "/root/.server/warmup.sh", "startupCmd": "/root/.server/startup.sh,-p 1",
            "resources": {"cpu": "0", "memory": "60Mi", "cpuLimit": "0.2", "memoryLimit": "100Mi"}
        },
        "noStartupProbe": false,
        "description": "E2B-compatible code interpreter environment"
    });
    catalogue(json!([interpreter, faas, runtime, plain("python")])).unwrap()
}

fn image_of(catalogue: &Catalogue, asked: &str) -> Option<String> {
    let found = catalogue.resolve(asked).unwrap()?;
    Some(image(&found).to_string())
}

fn image(found: &Match) -> &ImageName {
    match &found.origin {
        Origin::Image(image) => image,
        Origin::Template(template) => panic!("a template: {template}"),
    }
}

#[test]
fn the_examples_of_agent_sandbox_resolve_as_documented() {
    let catalogue = agent_sandbox();
    for (asked, image) in [
        ("faas-code-python.3.11", "ghcr.io/agent-sandbox/python:3.11"),
        ("faas-code-nodejs.18", "ghcr.io/agent-sandbox/nodejs:18"),
        ("faas-code-golang.1.21", "ghcr.io/agent-sandbox/golang:1.21"),
        ("python-3.11", "ghcr.io/runtimes/python:3.11"),
        (
            "code-interpreter",
            "ghcr.io/agent-sandbox/code-interpreter:0.4.0",
        ),
        (
            "Code-Interpreter",
            "ghcr.io/agent-sandbox/code-interpreter:0.4.0",
        ),
        ("python", "python:3.11-slim"),
    ] {
        assert_eq!(
            image_of(&catalogue, asked).as_deref(),
            Some(image),
            "{asked}"
        );
    }
    // A dynamic entry does not match its own name.
    for asked in ["faas-code", "nothing", "", "zzfaas-code-go.1"] {
        assert_eq!(image_of(&catalogue, asked), None, "{asked}");
    }
}

#[test]
fn an_exact_name_wins_over_a_pattern_and_an_earlier_pattern_over_a_later() {
    let dynamic = |name: &str, registry: &str| {
        json!({"name": name, "type": "dynamic", "description": "d",
               "pattern": "x-(?P<name>[a-z]+)-(?P<version>.+)",
               "image": format!("{registry}/<name>:<version>")})
    };
    let list = json!([dynamic("one", "a"), dynamic("two", "b"), plain("x-y-1")]);
    let catalogue = catalogue(list).unwrap();
    assert_eq!(
        image_of(&catalogue, "x-y-1").as_deref(),
        Some("python:3.11-slim")
    );
    assert_eq!(image_of(&catalogue, "x-y-2").as_deref(), Some("a/y:2"));
}

#[test]
fn a_capture_is_one_component_of_an_image_name() {
    let catalogue = agent_sandbox();
    for asked in [
        "faas-code-evil.example/x.1",
        "faas-code-x.1@sha256:00",
        "faas-code-<version>.1",
        "faas-code-x y.1",
    ] {
        let error = catalogue.resolve(asked).unwrap_err();
        assert_eq!(
            (error.entry.as_str(), error.asked.as_str()),
            ("faas-code", asked)
        );
    }
}

#[test]
fn every_field_of_agent_sandbox_is_parsed() {
    let catalogue = agent_sandbox();
    let entry = catalogue.entry("code-interpreter").unwrap();
    let pool = entry.pool.as_ref().unwrap();
    assert_eq!((pool.size, pool.probe_port.unwrap().get()), (3, 8888));
    assert_eq!(entry.warmup_argv().unwrap(), ["/root/.server/warmup.sh"]);
    assert_eq!(
        entry.startup_argv().unwrap(),
        ["/root/.server/startup.sh", "-p", "1"]
    );
    let idle = pool.resources.as_ref().unwrap();
    assert_eq!(
        (idle.most_cpu(), idle.most_memory()),
        (Some(MilliCpu(200)), Some(Mib(100)))
    );
    assert_eq!(entry.port.unwrap().get(), 49_999);
}

#[test]
fn our_own_fields_are_parsed() {
    let catalogue = catalogue(json!([{
        "name": "ours", "image": "i:1", "description": "d", "args": ["a", "b c"],
        "metadata": {"k": "v"}, "runtime": "runc", "persistentContents": ["filesystem"],
        "env": {"A": "1"}, "user": "app", "workdir": "/app", "startCmd": "serve", "readyCmd": "curl x",
        "network": {"allowInternetAccess": false, "allowOut": ["1.1.1.1"], "allowPublicTraffic": false},
        "pool": {"size": 2, "minReady": 1, "max": 8, "scaleDownAfter": "5m", "keepRunning": true, "hot": 1}
    }, {
        "name": "seconds", "image": "i:1", "description": "d", "pool": {"size": 1, "scaleDownAfter": 90}
    }]))
    .unwrap();
    let entry = catalogue.entry("ours").unwrap();
    let layer = SettingsLayer::from(entry.as_ref());
    assert_eq!(layer.persistent, Some(Contents::Filesystem));
    assert_eq!(layer.network.allow_public_traffic, Some(false));
    assert_eq!(layer.network.egress.internet, Some(false));
    let after = |name: &str| {
        let pool = catalogue.entry(name).unwrap().pool.clone().unwrap();
        pool.scale_down_after.unwrap().time()
    };
    let pool = entry.pool.as_ref().unwrap();
    assert_eq!((pool.keep_running, pool.hot), (Some(true), Some(1)));
    assert_eq!(after("ours"), Duration::from_secs(300));
    assert_eq!(after("seconds"), Duration::from_secs(90));
}

#[test]
fn arguments_go_to_the_start_command_and_its_port_is_probed() {
    let start = |more: Value| {
        let mut entry = plain("x");
        entry
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        let catalogue = catalogue(json!([entry])).unwrap();
        let start = catalogue.entry("x").unwrap().start();
        start.map(|start| (start.command, start.ready))
    };
    let line =
        |command: &str, ready: Option<&str>| Some((command.to_owned(), ready.map(str::to_owned)));
    assert_eq!(
        start(json!({"port": 80, "args": ["a"]})),
        None,
        "nothing is started"
    );
    assert_eq!(
        start(json!({"startCmd": "serve", "args": ["a", "b c", "it's"]})),
        line(r"serve 'a' 'b c' 'it'\''s'", None)
    );
    let probe = Some("exec 3<>/dev/tcp/127.0.0.1/80");
    assert_eq!(
        start(json!({"startCmd": "serve", "port": 80})),
        line("serve", probe)
    );
    let waited = json!({"startCmd": "serve", "port": 80, "noStartupProbe": false});
    assert_eq!(start(waited), line("serve", probe));
    let unwaited = json!({"startCmd": "serve", "port": 80, "noStartupProbe": true});
    assert_eq!(start(unwaited), line("serve", None));
    let own = json!({"startCmd": "serve", "port": 80, "readyCmd": "test -e /up"});
    assert_eq!(start(own), line("serve", Some("test -e /up")));
    assert_eq!(start(json!({"readyCmd": "true"})), line("", Some("true")));
}

#[test]
fn a_stored_catalogue_parses_to_an_equal_one() {
    let written = agent_sandbox().to_json();
    assert_eq!(Catalogue::parse(&written).unwrap(), agent_sandbox());
    assert!(written.contains(r#""cpuLimit":"0.2""#), "{written}");
}

fn with(field: &str, value: Value) -> Value {
    let mut entry = plain("x");
    entry[field] = value;
    entry
}

#[test]
fn a_mistake_names_the_entry_and_the_field() {
    for (entry, part) in [
        (
            json!({"name": "x", "image": "i"}),
            "missing field `description`",
        ),
        (
            json!({"name": "x", "description": "d"}),
            "`image`: is missing: say an image, or a `template`",
        ),
        (
            with("template", json!("base")),
            "`template`: cannot be said beside `image`",
        ),
        (
            json!({"name": "x", "description": "d", "template": "a b"}),
            "`template`: invalid template",
        ),
        (
            json!({"name": "x", "description": "d", "template": "base", "startCmd": "y"}),
            "`startCmd`: cannot be said beside `template`",
        ),
        (
            json!({"name": "x", "description": "d", "template": "base", "type": "dynamic",
                "pattern": "x-(?P<name>.+)-(?P<version>.+)"}),
            "`template`: cannot be said where `type` is",
        ),
        (
            json!({"image": "i", "description": "d"}),
            "entry 1: missing field `name`",
        ),
        (with("colour", json!(1)), "unknown field `colour`"),
        (
            with("pool", json!({"size": -1})),
            "`pool.size`: invalid value",
        ),
        (
            with("pool", json!({"size": 1, "sise": 1})),
            "`pool.sise`: unknown field",
        ),
        (
            with("pool", json!({"size": 1, "minReady": 2})),
            "`pool.minReady`: must be at most",
        ),
        (
            with("pool", json!({"size": 9, "max": 2})),
            "`pool.max`: must be at least",
        ),
        (
            with("pool", json!({"size": 1001})),
            "`pool.size`: must be at most 1000",
        ),
        (
            with("pool", json!({"size": 1, "scaleDownAfter": "soon"})),
            "is no time",
        ),
        (
            with("pool", json!({"size": 1, "warmupCmd": ","})),
            "`pool.warmupCmd`: \",\" is no command",
        ),
        (with("image", json!("a b")), "`image`: invalid image name"),
        (
            with("image", json!("x:<version>")),
            "`image`: invalid image name",
        ),
        (with("name", json!("a b")), "`name`: \"a b\" is no name"),
        (with("port", json!(0)), "`port`:"),
        (with("port", json!(70_000)), "`port`:"),
        (
            with("type", json!("magic")),
            "`type`: unknown variant `magic`",
        ),
        (with("type", json!("dynamic")), "`pattern`: is missing"),
        (
            with("resources", json!({"cpu": "lots"})),
            "`resources.cpu`: \"lots\" is no quantity",
        ),
        (
            with("resources", json!({"cpu": "2", "cpuLimit": "1"})),
            "is below `cpu`",
        ),
        (
            with("resources", json!({"memory": "2Gi", "memoryLimit": "1Gi"})),
            "is below `memory`",
        ),
        (
            with("resources", json!({"memoryLimit": "1Mi"})),
            "memory (MiB) must be between",
        ),
        (with("env", json!({"A=B": "1"})), "`env.A=B`: cannot be set"),
        (
            with("metadata", json!({"shoal/parking": "soon"})),
            "`metadata.shoal/parking`: must be `off`, or an idle time",
        ),
        (
            with("workdir", json!("app")),
            "`workdir`: must be an absolute path",
        ),
        (
            with("persistentContents", json!(["memory"])),
            "`persistentContents`:",
        ),
        (
            with("network", json!({"allowOut": ["a.example"]})),
            "`network.allowOut[0]`:",
        ),
        (
            with("runtime", json!("Run")),
            "`runtime`: invalid runtime name",
        ),
        (json!([]), "entry 1: must be an object"),
    ] {
        let error = catalogue(json!([plain("good"), entry]))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("entry 1") && error.contains(part),
            "{part}: {error}"
        );
    }
}

#[test]
fn a_dynamic_entry_needs_both_groups() {
    let mut entry = with("type", json!("dynamic"));
    entry["pattern"] = json!("x-(?P<name>.+)");
    let error = catalogue(json!([entry])).unwrap_err().to_string();
    assert!(
        error.contains("`pattern`: has no group (?P<version>...)"),
        "{error}"
    );
}

#[test]
fn names_are_unique_ignoring_case_and_all_mistakes_are_listed() {
    let error = catalogue(json!([plain("a"), {"name": 7}, plain("A")])).unwrap_err();
    let InvalidCatalogue::Entries(problems) = error else {
        panic!("{error}");
    };
    let told: Vec<String> = problems.iter().map(ToString::to_string).collect();
    assert!(told[0].starts_with("entry 1"), "{told:?}");
    assert_eq!(
        told[1],
        "entry 2 (\"A\"), `name`: is another entry's name already"
    );
}

#[test]
fn a_text_that_is_not_a_list_or_too_large_is_refused() {
    assert!(catalogue(json!({})).is_err());
    assert!(Catalogue::parse("[").is_err());
    let large = format!("[{}]", " ".repeat(BYTES_MAX));
    assert!(matches!(
        Catalogue::parse(&large),
        Err(InvalidCatalogue::TooLarge(_))
    ));
    let many: Vec<Value> = (0..=ENTRIES_MAX).map(|n| plain(&format!("e{n}"))).collect();
    assert!(matches!(
        catalogue(json!(many)),
        Err(InvalidCatalogue::TooMany { .. })
    ));
    assert!(catalogue(json!([])).unwrap().entries().is_empty());
}

#[test]
fn probable_mistakes_are_warned_about_and_accepted() {
    let odd = json!([
        with("name", json!("Code_Interpreter")),
        {"name": "wide", "image": "r/<name>", "type": "dynamic", "description": "d",
         "pattern": "(?P<name>.+)[-.](?P<version>.+?)", "pool": {"size": 0}},
        {"name": "tight", "image": "i:1", "description": "d",
         "resources": {"cpu": "1", "cpuLimit": "1", "memory": "100Mi", "memoryLimit": "1Gi"},
         "pool": {"size": 1, "resources": {"cpu": "2"}}},
        {"name": "same", "image": "i:1", "description": "d", "resources": {"memoryLimit": "1Gi"},
         "pool": {"size": 1, "resources": {"memory": "1Gi", "cpu": "0.1"}}},
        {"name": "still", "image": "i:1", "description": " ", "pattern": "x",
         "args": ["a"]},
    ]);
    let told: Vec<String> = catalogue(odd)
        .unwrap()
        .lint()
        .iter()
        .map(ToString::to_string)
        .collect();
    for part in [
        "Code_Interpreter: `name`",
        "wide: `pattern`: means almost any name",
        "wide: `pattern`: has a repetition",
        "wide: `image`: has no <version>",
        "wide: `pool`",
        "tight: `resources`: cpuLimit of 1",
        "tight: `resources`: memoryLimit of 1Gi",
        "tight: `pool`: has resources that are not below",
        "same: `pool`: has resources that are not below",
        "still: `pattern`: means nothing",
        "still: `description`",
        "still: `args`",
    ] {
        assert!(
            told.iter().any(|line| line.starts_with(part)),
            "{part}: {told:#?}"
        );
    }
    assert_eq!(
        agent_sandbox().lint().len(),
        1,
        "{:?}",
        agent_sandbox().lint()
    );
}

#[test]
fn a_request_overrides_a_template_which_overrides_its_image() {
    let request = SettingsLayer {
        cpu: Some(MilliCpu(500)),
        env: BTreeMap::from([("A".to_owned(), "request".to_owned())]),
        ..SettingsLayer::default()
    };
    let template = SettingsLayer {
        cpu: Some(MilliCpu(200)),
        memory: Some(Mib(300)),
        env: ["A", "B"]
            .map(|name| (name.to_owned(), "template".to_owned()))
            .into(),
        ..SettingsLayer::default()
    };
    let image = SettingsLayer {
        user: Some("app".to_owned()),
        env: ["A", "B", "C"]
            .map(|name| (name.to_owned(), "image".to_owned()))
            .into(),
        ..SettingsLayer::default()
    };
    let layers = [
        (Source::Request, request),
        (Source::Template, template),
        (Source::Image, image),
    ];
    let merged = merge(&layers);
    // Agent-Sandbox's example: a request of 500m overrides a template's 200m.
    assert_eq!(
        (merged.cpu.value, merged.cpu.from),
        (MilliCpu(500), Source::Request)
    );
    assert_eq!(
        (merged.memory.value, merged.memory.from),
        (Mib(300), Source::Template)
    );
    assert_eq!(
        (merged.user.value.as_str(), merged.user.from),
        ("app", Source::Image)
    );
    assert_eq!(merged.disk.from, Source::Default);
    let env: Vec<&str> = merged
        .env
        .values()
        .map(|value| value.value.as_str())
        .collect();
    assert_eq!(env, ["request", "template", "image"]);
    let rows = merged.rows();
    let cpu = rows.iter().find(|row| row.field == "cpu").unwrap();
    assert_eq!(
        (cpu.value.clone(), cpu.from),
        (json!("500m"), Source::Request)
    );
    assert!(
        rows.iter()
            .any(|row| row.field == "env.C" && row.from == Source::Image)
    );
}

fn of_network(from: Source, said: Value) -> (Source, SettingsLayer) {
    let entry = json!([{"name": "x", "image": "i", "description": "d", "network": said}]);
    let catalogue = Catalogue::parse(&entry.to_string()).unwrap();
    (
        from,
        SettingsLayer::from(catalogue.entry("x").unwrap().as_ref()),
    )
}

#[test]
fn outbound_rules_are_merged_one_by_one() {
    let entry =
        json!({"allowInternetAccess": false, "allowOut": ["1.1.1.1"], "denyOut": ["2.2.2.2"]});
    let template = of_network(Source::Template, entry);
    let asked = |said: Value| {
        let request = of_network(Source::Request, said);
        merge(&[request, template.clone()]).egress
    };
    // A layer that sets one rule does not set the others.
    let servers = asked(json!({"dnsServers": ["9.9.9.9"]}));
    assert_eq!(servers.dns_servers.from, Source::Request);
    assert_eq!(
        (servers.internet.value, servers.internet.from),
        (Some(false), Source::Template)
    );
    assert_eq!(
        (servers.allow.value.len(), servers.deny.value.len()),
        (1, 1)
    );
    let denied = asked(json!({"denyOut": ["3.3.3.3"]}));
    assert_eq!(denied.deny.value, ["3.3.3.3".parse().unwrap()]);
    assert_eq!(denied.internet.value, Some(false));
    // A layer that disables internet access discards allow rules below it, but not its own.
    let closed = asked(json!({"allowInternetAccess": false}));
    assert!(closed.allow.value.is_empty());
    let opened = asked(json!({"allowInternetAccess": false, "allowOut": ["4.4.4.4"]}));
    assert_eq!(opened.allow.value, ["4.4.4.4".parse().unwrap()]);
}

#[test]
fn the_group_of_an_image_user_is_dropped() {
    let image = |user: Option<&str>| crate::image::Image {
        name: "i".parse().unwrap(),
        digest: String::new(),
        layers: Vec::new(),
        size_bytes: 0,
        user: user.map(str::to_owned),
        workdir: None,
        env: Vec::new(),
        entrypoint: Vec::new(),
        cmd: Vec::new(),
        created_at: crate::clock::Timestamp::from_unix_seconds(0),
    };
    assert_eq!(
        SettingsLayer::from(&image(Some("node:node")))
            .user
            .as_deref(),
        Some("node")
    );
    for nobody in [Some(""), Some(":7"), None] {
        assert_eq!(SettingsLayer::from(&image(nobody)).user, None);
    }
}

fn layer() -> impl Strategy<Value = SettingsLayer> {
    let number = || proptest::option::of(1u32..9000);
    let texts = proptest::collection::btree_map("[a-c]", "[a-z]{0,3}", 0..4);
    (
        number(),
        number(),
        proptest::option::of("[a-z]{1,4}"),
        texts,
    )
        .prop_map(|(cpu, memory, user, env)| SettingsLayer {
            cpu: cpu.map(MilliCpu),
            memory: memory.map(Mib),
            user,
            env,
            ..SettingsLayer::default()
        })
}

proptest! {
    #[test]
    fn each_value_comes_from_the_highest_layer_that_sets_it(
        request in layer(), template in layer(), image in layer(),
    ) {
        let layers = [
            (Source::Request, request), (Source::Template, template), (Source::Image, image),
        ];
        let merged = merge(&layers);
        let first = layers.iter().find(|(_, layer)| layer.cpu.is_some());
        prop_assert_eq!(merged.cpu.from, first.map_or(Source::Default, |(from, _)| *from));
        if let Some((_, layer)) = first {
            prop_assert_eq!(Some(merged.cpu.value), layer.cpu);
        }
        for (name, value) in &merged.env {
            let first = layers.iter().find_map(|(from, layer)| {
                Some((*from, layer.env.get(name)?.clone()))
            });
            prop_assert_eq!(first, Some((value.from, value.value.clone())));
        }
    }

    #[test]
    fn parsing_any_text_never_panics(text in ".{0,200}") {
        let _ = Catalogue::parse(&text);
        let _ = agent_sandbox().resolve(&text);
    }

    #[test]
    fn an_image_of_a_dynamic_entry_is_always_in_its_repository(text in "faas-code-[!-~]{1,40}") {
        if let Ok(Some(found)) = agent_sandbox().resolve(&text) {
            let rest = image(&found).as_str().strip_prefix("ghcr.io/agent-sandbox/");
            prop_assert!(rest.is_some_and(|rest| !rest.contains('/') && !rest.contains('@')));
        }
    }
}

#[test]
fn the_digest_of_members_changes_only_with_their_inputs() {
    let digest = |change: fn(&mut Value), image: &str| {
        let mut entry = json!({
            "name": "warm", "image": "i:1", "description": "d",
            "pool": {"size": 3, "warmupCmd": "a,b", "resources": {"memory": "100Mi"}}
        });
        change(&mut entry);
        let catalogue = Catalogue::parse(&json!([entry]).to_string()).unwrap();
        catalogue.entries()[0].member_digest(image)
    };
    let before = digest(|_| (), "sha256:1");
    let unchanged: [fn(&mut Value); 6] = [
        |entry| entry["port"] = json!(80),
        |entry| entry["description"] = json!("e"),
        |entry| entry["pool"]["size"] = json!(5),
        |entry| entry["pool"]["max"] = json!(9),
        |entry| entry["pool"]["startupCmd"] = json!("c"),
        |entry| entry["metadata"] = json!({"a": "b"}),
    ];
    for same in unchanged {
        assert_eq!(digest(same, "sha256:1"), before);
    }
    let changed: [fn(&mut Value); 5] = [
        |entry| entry["image"] = json!("i:2"),
        |entry| entry["pool"]["warmupCmd"] = json!("c"),
        |entry| entry["pool"]["resources"] = json!({"memory": "101Mi"}),
        |entry| entry["env"] = json!({"A": "b"}),
        |entry| entry["resources"] = json!({"cpuLimit": "2"}),
    ];
    for other in changed {
        assert_ne!(digest(other, "sha256:1"), before);
    }
    assert_ne!(digest(|_| (), "sha256:2"), before);
    // With a start command, a member is ready when its port answers.
    let at_80 = |entry: &mut Value| {
        entry["startCmd"] = json!("serve");
        entry["port"] = json!(80);
    };
    let at_81 = |entry: &mut Value| {
        entry["startCmd"] = json!("serve");
        entry["port"] = json!(81);
    };
    assert_ne!(digest(at_80, "sha256:1"), digest(at_81, "sha256:1"));
}
