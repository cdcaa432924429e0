mod round_trips;

use serde_json::{Value, json};

use super::*;
use crate::names::annotation::BETA_TEMPLATE_POLICY;

fn alpha_sandbox(replicas: Value) -> Value {
    json!({
        "apiVersion": "agents.x-k8s.io/v1alpha1", "kind": "Sandbox", "metadata": {"name": "a"},
        "spec": {"podTemplate": {"spec": {"containers": []}}, "replicas": replicas},
    })
}

fn to_beta(object: Value) -> Value {
    let group = object["apiVersion"]
        .as_str()
        .unwrap()
        .split_once('/')
        .unwrap()
        .0
        .to_owned();
    convert(object, &format!("{group}/v1beta1")).unwrap()
}

fn to_alpha(object: Value) -> Value {
    let group = object["apiVersion"]
        .as_str()
        .unwrap()
        .split_once('/')
        .unwrap()
        .0
        .to_owned();
    convert(object, &format!("{group}/v1alpha1")).unwrap()
}

#[test]
fn replicas_are_the_operating_mode() {
    for (replicas, mode) in [
        (json!(0), "Suspended"),
        (json!(1), "Running"),
        (Value::Null, "Running"),
    ] {
        let beta = to_beta(alpha_sandbox(replicas.clone()));
        assert_eq!(beta["spec"]["operatingMode"], mode);
        assert_eq!(
            to_alpha(beta)["spec"]
                .get("replicas")
                .cloned()
                .unwrap_or(Value::Null),
            replicas
        );
    }
}

#[test]
fn a_change_of_the_operating_mode_shows_in_v1alpha1() {
    let mut beta = to_beta(alpha_sandbox(json!(1)));
    beta["spec"]["operatingMode"] = "Suspended".into();
    assert_eq!(to_alpha(beta.clone())["spec"]["replicas"], 0);
    let mut beta = to_beta(alpha_sandbox(json!(0)));
    beta["spec"]["operatingMode"] = "Running".into();
    assert_eq!(to_alpha(beta)["spec"]["replicas"], 1);
}

#[test]
fn replicas_of_the_status_follow_the_pod_after_it_has_changed() {
    let mut alpha = alpha_sandbox(json!(0));
    alpha["status"] = json!({"replicas": 1, "selector": "a=b"});
    let mut beta = to_beta(alpha);
    assert_eq!(
        to_alpha(beta.clone())["status"]["replicas"],
        1,
        "nothing has changed yet"
    );
    beta["status"] = json!({"service": "a"});
    assert_eq!(to_alpha(beta)["status"]["replicas"], 0);
}

fn alpha_claim(warmpool: Option<&str>, sandbox: Option<&str>) -> Value {
    let mut claim = json!({
        "apiVersion": "extensions.agents.x-k8s.io/v1alpha1", "kind": "SandboxClaim",
        "metadata": {"name": "c"}, "spec": {"sandboxTemplateRef": {"name": "python"}},
    });
    if let Some(warmpool) = warmpool {
        claim["spec"]["warmpool"] = warmpool.into();
    }
    if let Some(sandbox) = sandbox {
        claim["status"] = json!({"sandbox": {"name": sandbox}});
    }
    claim
}

#[test]
fn a_claim_gets_the_pool_that_it_means() {
    for (warmpool, sandbox, pool) in [
        (Some("fast"), None, "fast"),
        (Some("fast"), Some("fast-x7k2p"), "fast"),
        (Some("none"), Some("c"), "shadow-pool-python"),
        (Some("default"), Some("c"), "shadow-pool-python"),
        (Some("default"), Some("big-pool-x7k2p"), "big-pool"),
        (Some(""), None, "shadow-pool-python"),
        (None, None, "shadow-pool-python"),
    ] {
        let beta = to_beta(alpha_claim(warmpool, sandbox));
        assert_eq!(
            beta["spec"]["warmPoolRef"]["name"], pool,
            "{warmpool:?} {sandbox:?}"
        );
    }
}

#[test]
fn a_claim_tells_what_it_requests_in_either_version() {
    let read = |object: Value| requested(&serde_json::from_value(object).unwrap());
    let template = || "python".to_owned();
    assert_eq!(
        read(to_beta(alpha_claim(Some("fast"), None))),
        Requested::TemplateAndPool {
            template: template(),
            pool: "fast".to_owned()
        }
    );
    assert_eq!(
        read(to_beta(alpha_claim(Some("none"), None))),
        Requested::NoPool {
            template: template()
        }
    );
    assert_eq!(
        read(to_beta(alpha_claim(None, None))),
        Requested::AnyPool {
            template: template()
        }
    );
    let beta = |pool: &str| {
        json!({
            "apiVersion": "extensions.agents.x-k8s.io/v1beta1", "kind": "SandboxClaim",
            "metadata": {"name": "c"}, "spec": {"warmPoolRef": {"name": pool}},
        })
    };
    assert_eq!(read(beta("fast")), Requested::Pool("fast".to_owned()));
    assert_eq!(
        to_alpha(beta("shadow-pool-x"))["spec"]["warmpool"],
        "default"
    );
    assert_eq!(
        to_alpha(beta("fast"))["spec"]["sandboxTemplateRef"]["name"],
        "fast"
    );
}

#[test]
fn a_template_keeps_its_policy_for_volume_claims() {
    let mut beta = json!({
        "apiVersion": "extensions.agents.x-k8s.io/v1beta1", "kind": "SandboxTemplate",
        "metadata": {"name": "t"},
        "spec": {"podTemplate": {"spec": {"containers": []}}, "volumeClaimTemplatesPolicy": "Overrides"},
    });
    let alpha = to_alpha(beta.clone());
    assert_eq!(
        alpha["metadata"]["annotations"][BETA_TEMPLATE_POLICY],
        "Overrides"
    );
    beta["spec"]
        .as_object_mut()
        .unwrap()
        .remove("volumeClaimTemplatesPolicy");
    beta["metadata"]["annotations"] = json!({BETA_TEMPLATE_POLICY: "Allowed"});
    assert!(
        to_alpha(beta)["metadata"].get("annotations").is_none(),
        "a stale one is removed"
    );
    let mut invalid = alpha;
    invalid["metadata"]["annotations"][BETA_TEMPLATE_POLICY] = "Sometimes".into();
    let error = convert(invalid, "extensions.agents.x-k8s.io/v1beta1").unwrap_err();
    assert!(matches!(error, ConversionError::Policy { .. }), "{error}");
}

#[test]
fn other_kinds_and_versions_are_refused() {
    for (object, desired) in [
        (json!({"kind": "Pod", "apiVersion": "v1"}), "v1"),
        (alpha_sandbox(json!(1)), "agents.x-k8s.io/v2"),
        (
            alpha_sandbox(json!(1)),
            "extensions.agents.x-k8s.io/v1beta1",
        ),
        (json!({}), ""),
    ] {
        let error = convert(object, desired).unwrap_err();
        assert!(matches!(error, ConversionError::Unknown { .. }), "{error}");
    }
}

#[test]
fn an_object_of_the_desired_version_is_unchanged() {
    let object = alpha_sandbox(json!(1));
    assert_eq!(
        convert(object.clone(), "agents.x-k8s.io/v1alpha1").unwrap(),
        object
    );
}
