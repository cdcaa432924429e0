use super::*;

fn sandbox() -> Sandbox {
    serde_json::from_value(json!({
        "metadata": {"name": "s", "namespace": "ns", "uid": "u"},
        "spec": {"template": {"spec": {"containers": [{"name": "sandbox", "image": "i"}]}}},
    }))
    .unwrap()
}

fn set(owner: &str, replicas: i32, left: i32) -> Arc<ReplicaSet> {
    Arc::new(
        serde_json::from_value(json!({
            "metadata": {"name": "s", "namespace": "ns", "uid": "rs", "ownerReferences": [{
                "apiVersion": "agents.kruise.io/v1alpha1", "kind": "Sandbox", "name": "s", "uid": owner,
                "controller": true,
            }]},
            "spec": {"replicas": replicas},
            "status": {"replicas": left, "conditions": [{
                "type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "secret",
            }]},
        }))
        .unwrap(),
    )
}

fn pod(name: &str, phase: &str, ready: &str, ends: bool, created: u8) -> Arc<Pod> {
    let mut pod = json!({
        "metadata": {"name": name, "creationTimestamp": format!("2026-01-02T03:04:0{created}Z")},
        "status": {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]},
    });
    if ends {
        pod["metadata"]["deletionTimestamp"] = "2026-01-02T03:05:00Z".into();
    }
    Arc::new(serde_json::from_value(pod).unwrap())
}

#[test]
fn of_several_pods_the_one_that_stays_is_used() {
    let named = |pods: Vec<Arc<Pod>>| current(pods).and_then(|pod| pod.metadata.name.clone());
    let evicted = pod("evicted", "Failed", "False", false, 9);
    assert_eq!(named(vec![evicted.clone()]), None, "another one is made");
    let ends = pod("ends", "Running", "True", true, 8);
    assert_eq!(
        named(vec![evicted.clone(), ends.clone()]).as_deref(),
        Some("ends")
    );
    let starts = pod("starts", "Pending", "False", false, 3);
    let ready = pod("ready", "Running", "True", false, 1);
    assert_eq!(
        named(vec![starts.clone(), ends.clone()]).as_deref(),
        Some("starts")
    );
    assert_eq!(
        named(vec![starts, ends, evicted, ready]).as_deref(),
        Some("ready")
    );
}

#[test]
fn a_lost_pod_is_told_from_one_that_nobody_makes() {
    let sandbox = sandbox();
    let seen = |set, pods| {
        let kept = Kept::of(&sandbox, set, pods);
        match kept.seen() {
            Seen::Absent => "absent".to_owned(),
            Seen::Own(_) => "own".to_owned(),
            Seen::Foreign(told) => told.to_owned(),
            Seen::Coming(why) => format!("coming {why}"),
        }
    };
    assert_eq!(seen(None, Vec::new()), "absent");
    assert_eq!(seen(Some(set("u", 0, 0)), Vec::new()), "absent");
    assert_eq!(
        seen(Some(set("u", 1, 0)), Vec::new()),
        "coming FailedCreate",
        "without the cluster's text"
    );
    let evicted = pod("evicted", "Failed", "False", false, 9);
    assert!(seen(Some(set("u", 1, 0)), vec![evicted]).starts_with("coming"));
    assert!(
        seen(Some(set("u", 0, 1)), Vec::new()).starts_with("coming"),
        "its pod is not gone"
    );
    let ready = pod("ready", "Running", "True", false, 1);
    assert_eq!(seen(Some(set("u", 1, 1)), vec![ready.clone()]), "own");
    assert!(seen(Some(set("other", 1, 1)), vec![ready]).contains("a ReplicaSet of Sandbox/s"));
}
