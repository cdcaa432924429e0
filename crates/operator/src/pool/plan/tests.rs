use serde_json::json;

use super::*;

const GRACE: Duration = Duration::from_secs(300);

fn template(image: &str) -> SandboxTemplate {
    serde_json::from_value(json!({
        "metadata": {"name": "t"},
        "spec": {"podTemplate": {"spec": {"containers": [{"name": "c", "image": image}]}}},
    }))
    .unwrap()
}

fn pool(replicas: i32, strategy: &str) -> SandboxWarmPool {
    serde_json::from_value(json!({
        "metadata": {"name": "p", "namespace": "ns", "uid": "pool"},
        "spec": {"replicas": replicas, "sandboxTemplateRef": {"name": "t"}, "updateStrategy": {"type": strategy}},
    }))
    .unwrap()
}

/// A member of the template with that image.
fn member(name: &str, image: &str, ready: bool, second: i64) -> Sandbox {
    let blueprint = Blueprint::of(&template(image));
    let owner = json!([{"apiVersion": "extensions.agents.x-k8s.io/v1beta1", "kind": "SandboxWarmPool",
                        "name": "p", "uid": "pool", "controller": true}]);
    let status = if ready { "True" } else { "False" };
    let mut sandbox: Sandbox = serde_json::from_value(json!({
        "metadata": {
            "name": name, "ownerReferences": owner,
            "creationTimestamp": Timestamp::from_second(second).unwrap().to_string(),
            "labels": {label::TEMPLATE_REF_HASH: hash::of_name("t"), label::TEMPLATE_HASH: "another controller's"},
        },
        "spec": {"podTemplate": {"spec": {}}},
        "status": {"conditions": [{"type": "Ready", "status": status, "reason": "r", "message": "",
                                   "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
    }))
    .unwrap();
    sandbox.spec.pod_template = blueprint.pod_template;
    sandbox
}

fn plan_of(pool: &SandboxWarmPool, image: Option<&str>, members: Vec<Sandbox>) -> Plan {
    let members: Vec<Arc<Sandbox>> = members.into_iter().map(Arc::new).collect();
    let template = image.map(template);
    plan(pool, template.as_ref(), &members, GRACE, |member| {
        let age = Timestamp::from_second(100)
            .unwrap()
            .duration_since(created(member));
        Duration::try_from(age).unwrap()
    })
}

fn names(members: &[Arc<Sandbox>]) -> Vec<&str> {
    members
        .iter()
        .map(|member| member.metadata.name.as_deref().unwrap())
        .collect()
}

#[test]
fn a_pool_is_filled_to_its_size() {
    let plan = plan_of(
        &pool(3, "OnReplenish"),
        Some("i"),
        vec![member("a", "i", true, 0)],
    );
    assert_eq!((plan.create, plan.replicas, plan.ready), (2, 1, 1));
    assert_eq!(
        plan_of(&pool(3, "OnReplenish"), None, vec![]).create,
        0,
        "the template is missing"
    );
}

#[test]
fn terminating_members_hold_their_places() {
    let mut gone = member("a", "i", true, 0);
    gone.metadata.deletion_timestamp = gone.metadata.creation_timestamp.clone();
    assert_eq!(
        plan_of(&pool(3, "OnReplenish"), Some("i"), vec![gone]).create,
        2
    );
}

#[test]
fn a_smaller_pool_loses_what_is_not_ready_and_then_the_newest() {
    let members = vec![
        member("old", "i", true, 1),
        member("new", "i", true, 3),
        member("waiting", "i", false, 2),
        member("middle", "i", true, 2),
    ];
    let plan = plan_of(&pool(2, "OnReplenish"), Some("i"), members);
    assert_eq!(names(&plan.delete), ["waiting", "new"]);
    assert_eq!((plan.create, plan.replicas, plan.ready), (0, 2, 2));
}

#[test]
fn outdated_members_are_replaced_by_strategy() {
    let members = || {
        vec![
            member("old", "before", true, 1),
            member("same", "i", true, 1),
        ]
    };
    let recreated = plan_of(&pool(2, "Recreate"), Some("i"), members());
    assert_eq!(names(&recreated.delete), ["old"]);
    assert_eq!(recreated.create, 1);
    let kept = plan_of(&pool(2, "OnReplenish"), Some("i"), members());
    assert!(kept.delete.is_empty());
    assert_eq!(kept.create, 0);
    assert!(
        plan_of(&pool(2, "Recreate"), None, members())
            .delete
            .is_empty(),
        "nothing to compare with"
    );
}

#[test]
fn orphans_are_adopted_if_they_are_current_and_others_members_are_ignored() {
    let with_owner = |name: &str, image: &str, uid: Option<&str>| {
        let mut member = member(name, image, true, 1);
        match uid {
            Some(uid) => {
                uid.clone_into(&mut member.metadata.owner_references.as_mut().unwrap()[0].uid)
            }
            None => member.metadata.owner_references = None,
        }
        member
    };
    let members = vec![
        with_owner("orphan", "i", None),
        with_owner("outdated", "before", None),
        with_owner("foreign", "i", Some("other")),
    ];
    let plan = plan_of(&pool(2, "OnReplenish"), Some("i"), members);
    assert_eq!(names(&plan.adopt), ["orphan"]);
    assert_eq!(names(&plan.delete), ["outdated"]);
    assert_eq!((plan.create, plan.replicas), (1, 1));
}

#[test]
fn a_member_that_never_becomes_ready_is_replaced_unless_no_node_can_take_it() {
    let stuck = member("stuck", "i", false, -1000);
    let mut held = member("held", "i", false, -1000);
    let status = held.status.as_mut().unwrap();
    let mut scheduled = status.conditions[0].clone();
    "PodScheduled".clone_into(&mut scheduled.type_);
    "Unschedulable".clone_into(&mut scheduled.reason);
    status.conditions.push(scheduled);
    let plan = plan_of(&pool(2, "OnReplenish"), Some("i"), vec![stuck, held]);
    assert_eq!(names(&plan.delete), ["stuck"]);
    assert_eq!(plan.create, 1);
    assert!(plan.look_again.is_some());
}
