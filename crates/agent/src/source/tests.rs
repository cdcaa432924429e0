use serde_json::{Value, json};

use super::*;

fn pod(change: &dyn Fn(&mut Value)) -> Pod {
    let status = |name: &str| {
        json!({
            "name": name, "image": "i", "imageID": "sha256:1", "ready": true, "restartCount": 0,
            "containerID": format!("containerd://{name}1"), "state": {"running": {}},
        })
    };
    let mut pod = json!({
        "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
        "spec": {
            "nodeName": "n", "restartPolicy": "Always",
            "containers": [
                {"name": "main", "volumeMounts": [{"name": "work", "mountPath": "/w"}]}, {"name": "side"},
            ],
            "volumes": [{"name": "work", "emptyDir": {}}, {"name": "unused", "emptyDir": {}}],
        },
        "status": {"phase": "Running", "containerStatuses": [status("main"), status("side")]},
    });
    change(&mut pod);
    serde_json::from_value(pod).unwrap()
}

fn records(volumes: &[&str]) -> (tempfile::TempDir, Records) {
    let directory = tempfile::tempdir().unwrap();
    let records = Records::at(directory.path());
    let sandbox = SandboxRecord {
        namespace: "ns".to_owned(),
        pod: "p".to_owned(),
        runtime: "build".to_owned(),
        volumes: volumes.iter().map(|one| (*one).to_owned()).collect(),
        daemon_volume: None,
        restore: None,
    };
    records.write_sandbox("s1", &sandbox).unwrap();
    for name in ["main", "side"] {
        let container = ContainerRecord {
            sandbox: "s1".to_owned(),
            name: Some(name.to_owned()),
            layers: vec![format!("/layers/{name}")],
            restores: false,
        };
        records
            .write_container(&format!("{name}1"), &container)
            .unwrap();
    }
    (directory, records)
}

#[test]
fn a_pod_is_what_its_runtime_wrote_down() {
    let (_directory, records) = records(&["work"]);
    let source = Source::of(&pod(&|_| {}), "n", &records, Then::Runs).unwrap();
    assert_eq!(source.sandbox, "s1");
    assert_eq!(source.containers[1].layers, ["/layers/side"]);
    assert!(!source.token);
    assert!(source.check_same(Some(&pod(&|_| {}))).is_ok());
    let restarted = pod(&|pod| {
        pod["status"]["containerStatuses"][1]["containerID"] = "containerd://side2".into();
    });
    let seen = source.check_same(Some(&restarted));
    assert!(matches!(seen, Err(Unsaved::Ended(name)) if name == "side"));
    assert!(matches!(source.check_same(None), Err(Unsaved::Gone(_))));
}

#[test]
fn the_sandbox_of_a_pod_that_cannot_be_saved_is_known() {
    let (_directory, known) = records(&[]);
    let ended = pod(&|pod| {
        pod["status"]["containerStatuses"][0]["state"] = json!({"terminated": {"exitCode": 137}});
    });
    assert_eq!(sandbox(&ended, &known).as_deref(), Some("s1"));
    let other = pod(&|pod| pod["metadata"]["namespace"] = "other".into());
    assert_eq!(sandbox(&other, &known), None);
}

#[test]
fn the_pod_of_a_paused_sandbox_ends_once_nothing_starts_it_again() {
    let (_directory, known) = records(&["work"]);
    let checkpoint = |annotation: &str| {
        let made = json!({
            "metadata": {"name": "c", "annotations": {annotation: "u"}}, "spec": {"keepRunning": false},
        });
        Then::of(&serde_json::from_value(made).unwrap())
    };
    assert_eq!(checkpoint("other"), Then::Ends);
    assert_eq!(checkpoint(annotation::PAUSED_POD), Then::IsDeleted);
    assert!(Source::of(&pod(&|_| {}), "n", &known, Then::IsDeleted).is_ok());
    let deleted = pod(&|pod| {
        pod["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z".into();
    });
    assert!(restarts(&pod(&|_| {})) && !restarts(&deleted));
    assert!(!restarts(&pod(
        &|pod| pod["spec"]["restartPolicy"] = "Never".into()
    )));
    // It is still known then, until its containers have ended.
    assert_eq!(Place::of(&deleted, &known).unwrap().sandbox, "s1");
    let ended = pod(&|pod| {
        for status in pod["status"]["containerStatuses"].as_array_mut().unwrap() {
            status["state"] = json!({"terminated": {"exitCode": 0}});
        }
    });
    assert!(Place::of(&ended, &known).is_none());
}

#[test]
fn what_cannot_be_saved_is_refused_by_name() {
    let (_directory, known) = records(&["work"]);
    let of = |change: &dyn Fn(&mut Value), records: &Records, then: Then| {
        Source::of(&pod(change), "n", records, then).unwrap_err()
    };
    let elsewhere = of(
        &|pod| pod["spec"]["nodeName"] = "m".into(),
        &known,
        Then::Runs,
    );
    assert!(matches!(elsewhere, Unsaved::Elsewhere { .. }));
    assert!(matches!(of(&|_| {}, &known, Then::Ends), Unsaved::Restarts));
    let ended = |pod: &mut Value| {
        pod["status"]["containerStatuses"][0]["state"] = json!({"terminated": {"exitCode": 137}});
    };
    assert!(matches!(of(&ended, &known, Then::Runs), Unsaved::Gone(_)));
    let other = |pod: &mut Value| {
        pod["status"]["containerStatuses"][0]["containerID"] = "containerd://runc1".into();
    };
    assert!(matches!(
        of(&other, &known, Then::Runs),
        Unsaved::Runtime(_)
    ));
    let other = |pod: &mut Value| pod["metadata"]["namespace"] = "other".into();
    assert!(matches!(
        of(&other, &known, Then::Runs),
        Unsaved::Runtime(_)
    ));
    let sidecar = |pod: &mut Value| {
        pod["spec"]["initContainers"] = json!([{"name": "proxy", "restartPolicy": "Always"}]);
    };
    assert!(matches!(
        of(&sidecar, &known, Then::Runs),
        Unsaved::Sidecar(_)
    ));
    let filled = |pod: &mut Value| {
        pod["spec"]["initContainers"] =
            json!([{"name": "runtime", "volumeMounts": [{"name": "work", "mountPath": "/w"}]}]);
    };
    let named = of(&filled, &known, Then::Runs);
    assert!(matches!(named, Unsaved::Filled(volume, by) if volume == "work" && by == "runtime"));
    let daemon = pod(&|pod| {
        filled(pod);
        pod["metadata"]["annotations"] = json!({DAEMON: "main"});
    });
    assert!(Source::of(&daemon, "n", &known, Then::Runs).is_ok());
    let (_directory, outside) = records(&[]);
    assert!(matches!(of(&|_| {}, &outside, Then::Runs), Unsaved::Volume(name) if name == "work"));
}
