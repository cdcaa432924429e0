use std::sync::Arc;

use serde_json::{Value, json};
use shoal_crds::hash;
use shoal_crds::v1beta1::Sandbox;

use super::super::model::Wanted;
use super::super::{service, volume};
use super::{alpha, owner, sandbox};
use crate::slim::{PersistentVolumeClaim, Service};

fn plan_service(sandbox: &Sandbox, service: Option<Value>) -> service::Plan {
    let service =
        service.map(|service| Arc::new(serde_json::from_value::<Service>(service).unwrap()));
    service::plan(&Wanted::of(sandbox).unwrap(), service.as_ref())
}

#[test]
fn v1alpha1_has_a_service_by_default_and_v1beta1_has_not() {
    assert_eq!(
        plan_service(&sandbox(&json!({})), None),
        service::Plan::Absent
    );
    let service::Plan::Create(service) = plan_service(&alpha(sandbox(&json!({}))), None) else {
        panic!()
    };
    assert_eq!(service["spec"]["clusterIP"], "None");
    assert!(service["spec"].get("ports").is_none());
}

#[test]
fn ports_are_unique_sorted_and_named() {
    let sandbox = sandbox(&json!({
        "service": true,
        "podTemplate": {"spec": {
            "containers": [
                {"ports": [{"containerPort": 80, "name": "http"}, {"containerPort": 53, "protocol": "UDP"}]},
                {"ports": [{"containerPort": 80}, {"containerPort": 8080, "name": "http"}]},
            ],
            "initContainers": [
                {"restartPolicy": "Always", "ports": [{"containerPort": 9000}]},
                {"ports": [{"containerPort": 1}]},
            ],
        }},
    }));
    let service::Plan::Create(service) = plan_service(&sandbox, None) else {
        panic!()
    };
    let names: Vec<&str> = service["spec"]["ports"]
        .as_array()
        .unwrap()
        .iter()
        .map(|port| port["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["p-53-udp", "http", "http-2", "p-9000-tcp"]);
}

#[test]
fn services_of_others_stay_as_they_are() {
    let foreign = json!({"metadata": {"name": "a", "ownerReferences": owner("other")}});
    for spec in [json!({"service": true}), json!({})] {
        assert!(matches!(
            plan_service(&sandbox(&spec), Some(foreign.clone())),
            service::Plan::Refuse(_)
        ));
    }
    let wants = sandbox(&json!({"service": true}));
    let unowned = |cluster_ip: &str, labels: Value| {
        Some(
            json!({"metadata": {"name": "a", "labels": labels}, "spec": {"clusterIP": cluster_ip}}),
        )
    };
    let adoptable = json!({"agents.x-k8s.io/adoptable": "true"});
    let service::Plan::Refuse(error) = plan_service(&wants, unowned("10.0.0.1", adoptable.clone()))
    else {
        panic!()
    };
    assert_eq!(
        error,
        "cannot adopt service \"a\": ClusterIP is \"10.0.0.1\" (expected \"None\", field is immutable)"
    );
    assert!(matches!(
        plan_service(&wants, unowned("None", json!({}))),
        service::Plan::Refuse(_)
    ));
    assert!(matches!(
        plan_service(&wants, unowned("None", adoptable)),
        service::Plan::Keep(_, Some(_))
    ));
    assert_eq!(
        plan_service(&sandbox(&json!({})), unowned("None", json!({}))),
        service::Plan::Absent
    );
}

#[test]
fn an_own_service_is_repaired_or_deleted() {
    let own = json!({
        "metadata": {"name": "a", "uid": "s", "ownerReferences": owner("own")},
        "spec": {"clusterIP": "None", "selector": {"app": "x"}, "ports": [{"name": "x", "port": 1}]},
    });
    let service::Plan::Keep(_, Some(patch)) = plan_service(&sandbox(&json!({})), Some(own.clone()))
    else {
        panic!()
    };
    let hash = hash::of_name("a");
    assert_eq!(
        patch["spec"],
        json!({"selector": {"app": null, "agents.x-k8s.io/sandbox-name-hash": hash}})
    );
    assert!(matches!(
        plan_service(&sandbox(&json!({"service": false})), Some(own)),
        service::Plan::Delete(_)
    ));
}

#[test]
fn volume_claims_are_created_kept_adopted_or_refused() {
    let sandbox =
        sandbox(&json!({"volumeClaimTemplates": [{"metadata": {"name": "d"}, "spec": {"x": 1}}]}));
    let wanted = Wanted::of(&sandbox).unwrap();
    let template = &sandbox.spec.volume_claim_templates.as_ref().unwrap()[0];
    let plan = |metadata: Option<Value>| {
        let claim = metadata.map(|metadata| {
            Arc::new(
                serde_json::from_value::<PersistentVolumeClaim>(json!({"metadata": metadata}))
                    .unwrap(),
            )
        });
        volume::plan(&wanted, template, claim.as_ref())
    };
    let volume::Plan::Create(claim) = plan(None) else {
        panic!()
    };
    assert_eq!(claim["metadata"]["name"], "d-a");
    assert_eq!(claim["spec"], json!({"x": 1}));
    assert_eq!(
        plan(Some(json!({"ownerReferences": owner("own")}))),
        volume::Plan::Keep
    );
    let volume::Plan::Refuse(error) = plan(Some(json!({"ownerReferences": owner("other")}))) else {
        panic!()
    };
    assert_eq!(
        error,
        "PVC \"d-a\" is owned by Sandbox/o (UID: other), not by sandbox \"a\""
    );
    assert!(matches!(plan(Some(json!({}))), volume::Plan::Refuse(_)));
    assert!(matches!(
        plan(Some(
            json!({"labels": {"agents.x-k8s.io/adoptable": "true"}})
        )),
        volume::Plan::Adopt(_)
    ));
}
