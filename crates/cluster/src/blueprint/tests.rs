use serde_json::{Value, json};
use shoal_core::catalogue::Entry;
use shoal_core::resources::{Mib, MilliCpu, RequestedResources};

use super::render::{can_become, requested};
use super::*;

const POOLED: &str = r#"{
    "name": "code", "image": "example.org/code:1", "port": 49999, "description": "d",
    "resources": {"cpu": "0.2", "memory": "200Mi", "cpuLimit": "1", "memoryLimit": "1Gi"},
    "pool": {
        "size": 3, "probePort": 8888, "warmupCmd": "/warmup.sh,a b", "startupCmd": "/startup.sh",
        "resources": {"cpu": "0", "memory": "60Mi", "cpuLimit": "0.2", "memoryLimit": "100Mi"}
    }
}"#;

fn entry(text: &str) -> Entry {
    serde_json::from_str(text).unwrap()
}

fn with(change: &Value) -> Entry {
    let mut fields = json!({"name": "code", "image": "example.org/code:1", "description": "d"});
    let fields_of = fields.as_object_mut().unwrap();
    fields_of.extend(change.as_object().unwrap().clone());
    serde_json::from_value(fields).unwrap()
}

fn rendered(blueprint: &str, entry: &Entry) -> Result<Rendered, InvalidBlueprint> {
    let image = entry.image.as_ref().unwrap().parse().unwrap();
    Blueprint::parse(blueprint)?.render(entry, &image)
}

fn main_of(entry: &Entry) -> Value {
    let rendered = rendered(DEFAULT, entry).unwrap();
    rendered.template.spec["containers"][0].clone()
}

#[test]
fn a_member_of_a_pool_warms_up_with_little() {
    let rendered = rendered(DEFAULT, &entry(POOLED)).unwrap();
    let main = &rendered.template.spec["containers"][0];
    assert_eq!(main["image"], "example.org/code:1");
    assert_eq!(main["command"], json!(["/warmup.sh", "a", "b"]));
    assert_eq!(main["startupProbe"]["tcpSocket"]["port"], 8888);
    let little = json!({
        "requests": {"cpu": "0", "memory": "60Mi"}, "limits": {"cpu": "0.2", "memory": "100Mi"},
    });
    assert_eq!(main["resources"], little);
    let in_use = json!({
        "requests": {"cpu": "0.2", "memory": "200Mi"}, "limits": {"cpu": "1", "memory": "1Gi"},
    });
    assert_eq!(rendered.resources, in_use);
    assert!(can_become(&little, &in_use), "the claim raises them");
    let labels = &rendered.template.metadata.labels;
    assert_eq!(
        (labels["sbx-template"].as_str(), labels["sbx-pool"].as_str()),
        ("code", "true")
    );
}

#[test]
fn the_images_own_program_runs_without_a_command() {
    let main = main_of(&with(&json!({"port": 8080, "args": ["--serve"]})));
    assert_eq!(main.get("command"), None);
    assert_eq!(main["args"], json!(["--serve"]));
    assert_eq!(main["startupProbe"]["tcpSocket"]["port"], 8080);
    let unprobed = main_of(&with(&json!({"port": 8080, "noStartupProbe": true})));
    assert_eq!(unprobed.get("startupProbe"), None);
    let minimal = main_of(&with(&json!({})));
    assert_eq!(
        (minimal.get("command"), minimal.get("startupProbe")),
        (None, None)
    );
    let started = main_of(&with(
        &json!({"startCmd": "serve", "args": ["a b"], "readyCmd": "ready"}),
    ));
    assert_eq!(started["command"], json!(["/bin/sh", "-c", "serve 'a b'"]));
    assert_eq!(started["startupProbe"]["exec"]["command"][2], "ready");
}

#[test]
fn values_cannot_become_fields() {
    let line = "x\nhostPath: /\n\"}]}";
    let main = main_of(&with(&json!({"args": [line], "env": {"A": line}})));
    assert_eq!(main["args"], json!([line]));
    assert_eq!(main["env"], json!([{"name": "A", "value": line}]));
}

#[test]
fn the_blueprints_fields_stay_and_the_entrys_come_first() {
    let own = r"
apiVersion: apps/v1
kind: ReplicaSet
metadata: {annotations: {team: platform}}
spec:
  template:
    metadata: {labels: {tier: batch}}
    spec:
      restartPolicy: Always
      tolerations: [{key: agents, operator: Exists}]
      containers:
        - {name: proxy, image: 'example.org/proxy:1'}
        - name: sandbox
          env: [{name: A, value: blueprint}, {name: B, value: blueprint}]
          resources: {limits: {memory: 256Mi}}
";
    let said = json!({"env": {"A": "entry"}, "resources": {"memory": "1Gi"}, "runtime": "gvisor"});
    let rendered = rendered(own, &with(&said)).unwrap();
    let pod = &rendered.template.spec;
    let names: Vec<_> = pod["containers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["name"])
        .collect();
    assert_eq!(
        names,
        ["sandbox", "proxy"],
        "the sandbox's container is the first"
    );
    assert_eq!(pod["tolerations"][0]["key"], "agents");
    assert_eq!(pod["runtimeClassName"], "gvisor");
    let main = &pod["containers"][0];
    let variables = json!([{"name": "B", "value": "blueprint"}, {"name": "A", "value": "entry"}]);
    assert_eq!(main["env"], variables);
    let grown = json!({"limits": {"memory": "1Gi"}, "requests": {"memory": "1Gi"}});
    assert_eq!(main["resources"], grown, "a limit is not below the request");
    assert_eq!(rendered.template.metadata.labels["tier"], "batch");
    assert_eq!(rendered.template.metadata.annotations["team"], "platform");
}

#[test]
fn a_text_that_renders_no_replica_set_is_refused_with_a_reason() {
    let set = |spec: Value| {
        json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "spec": spec}).to_string()
    };
    let of_pod = |pod: Value| set(json!({"template": {"spec": pod}}));
    let labelled = |key: &str| {
        let mut labels = Map::new();
        labels.insert(key.to_owned(), "x".into());
        set(json!({"template": {"metadata": {"labels": labels}, "spec": {"containers": [{}]}}}))
    };
    for (text, said) in [
        ("[".to_owned(), "no YAML"),
        (
            "kind: Deployment\napiVersion: apps/v1".to_owned(),
            "renders no ReplicaSet",
        ),
        ("image: {{.Sandbox.Image}}".to_owned(), "placeholders"),
        (set(json!({"replicas": 2})), "spec.replicas"),
        (set(json!({"minReadySeconds": 3})), "minReadySeconds"),
        (set(json!({})), "spec.template.spec"),
        (of_pod(json!({"containers": []})), "no containers"),
        (
            of_pod(json!({"containers": [{}], "restartPolicy": "Never"})),
            "restartPolicy",
        ),
        (
            of_pod(json!({"containers": [{"name": "sandbox"}, {"name": "b"}]})),
            "`image`",
        ),
        (labelled("sbx-user"), "reserved"),
        (labelled("owner"), "reserved"),
        (labelled("agents.kruise.io/kept-by"), "reserved"),
        (labelled("security.agents.kruise.io/x"), "reserved"),
        (labelled("a b"), "cannot be a label"),
        ("x".repeat(BYTES_MAX + 1), "at most"),
    ] {
        let error = Blueprint::parse(&text).unwrap_err().to_string();
        assert!(error.contains(said), "{text}: {error}");
    }
}

#[test]
fn an_entry_that_is_not_carried_out_is_refused() {
    for (change, said) in [
        (
            json!({"metadata": {"agents.kruise.io/restore-from": "x"}}),
            "reserved",
        ),
        (json!({"metadata": {"sbx-user": "x"}}), "reserved"),
        (
            json!({"network": {"denyOut": ["10.0.0.0/8"]}}),
            "allowInternetAccess",
        ),
        (json!({"user": "root"}), "number of a user"),
    ] {
        let error = rendered(DEFAULT, &with(&change)).unwrap_err().to_string();
        assert!(
            error.contains(said) && error.contains("\"code\""),
            "{error}"
        );
    }
    let closed = with(&json!({"network": {"allowInternetAccess": false}}));
    let labels = rendered(DEFAULT, &closed).unwrap().template.metadata.labels;
    assert_eq!(labels["agents.kruise.io/allow-internet-access"], "false");
}

#[test]
fn a_request_sets_limits() {
    let own = json!({"requests": {"cpu": "200m", "memory": "500Mi"}, "limits": {"cpu": "1", "memory": "2Gi"}});
    let asked = RequestedResources {
        cpu: Some(MilliCpu(100)),
        memory: Some(Mib(4096)),
        ..RequestedResources::default()
    };
    let expected = json!({"requests": {"cpu": "100m", "memory": "500Mi"}, "limits": {"cpu": "100m", "memory": "4096Mi"}});
    assert_eq!(requested(own, &asked), expected);
}

#[test]
fn a_change_that_no_running_pod_takes_is_known_before() {
    let of = |cpu: [&str; 2], memory: [&str; 2]| json!({"requests": {"cpu": cpu[0], "memory": memory[0]}, "limits": {"cpu": cpu[1], "memory": memory[1]}});
    let member = of(["100m", "200m"], ["60Mi", "100Mi"]);
    assert!(can_become(&member, &of(["1", "2"], ["1Gi", "2Gi"])));
    assert!(
        !can_become(&member, &of(["1", "1"], ["1Gi", "1Gi"])),
        "it would be guaranteed"
    );
    assert!(
        !can_become(&member, &of(["1", "2"], ["10Mi", "50Mi"])),
        "memory shrinks"
    );
    assert!(
        !can_become(&member, &json!({"limits": {"cpu": "2", "memory": "2Gi"}})),
        "requests go"
    );
    assert!(!can_become(&json!({}), &member), "it had no class");
    let guaranteed = json!({"limits": {"cpu": "1", "memory": "1Gi"}});
    assert!(can_become(&guaranteed, &of(["2", "2"], ["1Gi", "1Gi"])));
}
