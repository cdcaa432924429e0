use std::sync::Arc;

use serde_json::{Value, json};
use shoal_crds::hash;
use shoal_crds::v1beta1::Sandbox;

use super::super::model::Wanted;
use super::super::pod;
use super::{alpha, owner, pod_with, ready_pod, sandbox};
use crate::slim::Pod;

fn plan_pod(sandbox: &Sandbox, owned: &[Arc<Pod>], named: Option<&Arc<Pod>>) -> pod::Plan {
    pod::plan(&Wanted::of(sandbox).unwrap(), owned, named)
}

fn refused(plan: &pod::Plan) -> &str {
    match plan {
        pod::Plan::Refuse(error) => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_missing_pod_is_created_with_volumes_of_the_claims() {
    let sandbox = sandbox(&json!({
        "podTemplate": {
            "metadata": {"labels": {"app": "x", "agents.x-k8s.io/claim-uid": "spoofed"}, "annotations": {"n": "1"}},
            "spec": {"containers": [], "volumes": [{"name": "data", "emptyDir": {}}, {"name": "other", "emptyDir": {}}]},
        },
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {}}, {"metadata": {"name": "more"}, "spec": {}}],
    }));
    let pod::Plan::Create(pod) = plan_pod(&sandbox, &[], None) else {
        panic!()
    };
    assert_eq!(pod["metadata"]["name"], "a");
    assert_eq!(
        pod["metadata"]["labels"],
        json!({"app": "x", "agents.x-k8s.io/sandbox-name-hash": hash::of_name("a")})
    );
    assert_eq!(
        pod["metadata"]["annotations"]["agents.x-k8s.io/propagated-labels"],
        "app"
    );
    assert_eq!(
        pod["metadata"]["annotations"]["agents.x-k8s.io/propagated-annotations"],
        "n"
    );
    assert_eq!(
        pod["metadata"]["ownerReferences"][0]["apiVersion"],
        "agents.x-k8s.io/v1beta1"
    );
    assert_eq!(
        pod["spec"]["volumes"],
        json!([
            {"name": "data", "persistentVolumeClaim": {"claimName": "data-a"}},
            {"name": "other", "emptyDir": {}},
            {"name": "more", "persistentVolumeClaim": {"claimName": "more-a"}},
        ])
    );
}

#[test]
fn a_sandbox_of_v1alpha1_owns_its_pod_in_that_version_and_filters_no_labels() {
    let sandbox = alpha(sandbox(&json!({
        "podTemplate": {"metadata": {"labels": {"agents.x-k8s.io/claim-uid": "u"}}, "spec": {"containers": []}},
    })));
    let pod::Plan::Create(pod) = plan_pod(&sandbox, &[], None) else {
        panic!()
    };
    assert_eq!(
        pod["metadata"]["ownerReferences"][0]["apiVersion"],
        "agents.x-k8s.io/v1alpha1"
    );
    assert_eq!(pod["metadata"]["labels"]["agents.x-k8s.io/claim-uid"], "u");
}

#[test]
fn a_pod_of_another_object_is_refused_and_left_alone() {
    let foreign = pod_with(json!({"ownerReferences": owner("other")}), json!({}));
    assert_eq!(
        refused(&plan_pod(&sandbox(&json!({})), &[], Some(&foreign))),
        "pod \"a\" is owned by Sandbox/o (UID: other), not by sandbox \"a\""
    );
    let suspended = sandbox(&json!({"operatingMode": "Suspended"}));
    assert_eq!(
        plan_pod(&suspended, &[], Some(&foreign)),
        pod::Plan::LeaveForeign
    );
}

#[test]
fn a_pod_without_a_controller_is_adopted_when_it_is_allowed() {
    let unowned = |labels: Value| pod_with(json!({"labels": labels}), json!({}));
    let current = sandbox(&json!({}));
    assert!(refused(&plan_pod(&current, &[], Some(&unowned(json!({}))))).contains("adoptable"));
    let hash = hash::of_name("a");
    for labels in [
        json!({"agents.x-k8s.io/adoptable": "true"}),
        json!({"agents.x-k8s.io/sandbox-name-hash": hash}),
    ] {
        let pod::Plan::Keep(_, Some(patch)) = plan_pod(&current, &[], Some(&unowned(labels)))
        else {
            panic!()
        };
        assert_eq!(patch["metadata"]["ownerReferences"][0]["uid"], "own");
        assert_eq!(patch["metadata"]["uid"], "pod-1");
    }
    let pod::Plan::Keep(_, Some(_)) = plan_pod(&alpha(current), &[], Some(&unowned(json!({}))))
    else {
        panic!()
    };
}

#[test]
fn labels_that_the_template_lost_are_removed_from_the_pod() {
    let pod = pod_with(
        json!({
            "ownerReferences": owner("own"),
            "labels": {"agents.x-k8s.io/sandbox-name-hash": hash::of_name("a"), "old": "1", "users": "2",
                       "agents.x-k8s.io/warm-pool-sandbox": "p"},
            "annotations": {"agents.x-k8s.io/propagated-labels": "app,old"},
        }),
        json!({}),
    );
    let sandbox = sandbox(
        &json!({"podTemplate": {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": []}}}),
    );
    let pod::Plan::Keep(_, Some(patch)) = plan_pod(&sandbox, &[pod], None) else {
        panic!()
    };
    assert_eq!(
        patch["metadata"]["labels"],
        json!({"app": "x", "old": null, "agents.x-k8s.io/warm-pool-sandbox": null})
    );
    assert_eq!(
        patch["metadata"]["annotations"],
        json!({"agents.x-k8s.io/propagated-labels": "app"})
    );
}

#[test]
fn a_pod_that_is_as_it_should_be_is_not_written() {
    assert_eq!(
        plan_pod(&sandbox(&json!({})), &[ready_pod()], None),
        pod::Plan::Keep(ready_pod(), None)
    );
}

#[test]
fn suspension_deletes_the_own_pod() {
    let suspended = sandbox(&json!({"operatingMode": "Suspended"}));
    assert_eq!(
        plan_pod(&suspended, &[ready_pod()], None),
        pod::Plan::Delete(ready_pod())
    );
    assert_eq!(plan_pod(&suspended, &[], None), pod::Plan::Absent);
}

#[test]
fn of_several_pods_none_is_chosen() {
    assert_eq!(
        plan_pod(&sandbox(&json!({})), &[ready_pod(), ready_pod()], None),
        pod::Plan::Several(2)
    );
}
