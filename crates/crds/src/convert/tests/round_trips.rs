use proptest::collection::{btree_map, vec};
use proptest::option::of;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::convert;

/// Converts there and back.
fn round_trip(object: &Value) -> Value {
    let version = |beta: bool| if beta { "v1beta1" } else { "v1alpha1" };
    let (group, from) = object["apiVersion"]
        .as_str()
        .unwrap()
        .split_once('/')
        .unwrap();
    let there = convert(
        object.clone(),
        &format!("{group}/{}", version(from != "v1beta1")),
    )
    .unwrap();
    convert(there, &format!("{group}/{from}")).unwrap()
}

/// The object without the v1alpha1 form that a write in that version leaves behind.
fn without_original(mut object: Value) -> Value {
    let metadata = object["metadata"].as_object_mut().unwrap();
    if let Some(annotations) = metadata
        .get_mut("annotations")
        .and_then(Value::as_object_mut)
    {
        annotations.retain(|key, _| !key.starts_with("api.agents.x-k8s.io/v1alpha1-"));
        if annotations.is_empty() {
            metadata.remove("annotations");
        }
    }
    object
}

fn name() -> impl Strategy<Value = String> {
    "[a-z]{1,6}(-[a-z0-9]{1,5}){0,2}|default|none|shadow-pool-[a-z]{1,4}"
}

fn metadata() -> impl Strategy<Value = Value> {
    (name(), of(btree_map("[a-z./]{1,8}", "[a-z]{0,4}", 1..3))).prop_map(|(name, annotations)| {
        let mut metadata = json!({"name": name, "namespace": "default", "uid": "u-1"});
        if let Some(annotations) = annotations {
            metadata["annotations"] = json!(annotations);
        }
        metadata
    })
}

fn pod_template() -> impl Strategy<Value = Value> {
    ("[a-z]{1,5}", of(0..9i32), of("[a-z]{1,5}")).prop_map(|(image, cpu, label)| {
        let mut template = json!({"spec": {"containers": [{"name": "main", "image": image}]}});
        if let Some(cpu) = cpu {
            template["spec"]["containers"][0]["resources"] = json!({"limits": {"cpu": cpu}});
            template["spec"]["aFieldOfTomorrow"] = json!([cpu, {"nested": true}]);
        }
        if let Some(label) = label {
            template["metadata"] = json!({"labels": {"app": label}});
        }
        template
    })
}

fn volume_claims() -> impl Strategy<Value = Value> {
    vec(("[a-z]{1,4}", 1..9u8), 1..3).prop_map(|claims| {
        claims
            .into_iter()
            .map(|(name, size)| {
                json!({
                    "metadata": {"name": name},
                    "spec": {"resources": {"requests": {"storage": format!("{size}Gi")}}},
                })
            })
            .collect()
    })
}

fn conditions() -> impl Strategy<Value = Value> {
    vec(any::<bool>(), 1..3).prop_map(|states| {
        states
            .into_iter()
            .map(|state| {
                json!({
                    "type": "Ready",
                    "status": if state { "True" } else { "False" },
                    "reason": "DependenciesReady",
                    "message": "Pod is Ready",
                    "lastTransitionTime": "2026-01-02T03:04:05Z",
                    "observedGeneration": 3,
                })
            })
            .collect()
    })
}

/// An object of optional fields: every subset of them, with generated values.
fn fields(parts: Vec<(&'static str, BoxedStrategy<Value>)>) -> BoxedStrategy<Value> {
    parts
        .into_iter()
        .map(|(field, value)| of(value).prop_map(move |value| (field, value)))
        .collect::<Vec<_>>()
        .prop_map(|fields| {
            fields
                .into_iter()
                .filter_map(|(field, value)| Some((field.to_owned(), value?)))
                .collect::<serde_json::Map<_, _>>()
                .into()
        })
        .boxed()
}

fn one(values: &'static [&'static str]) -> BoxedStrategy<Value> {
    prop::sample::select(values).prop_map(Value::from).boxed()
}

fn object(
    api_version: &'static str,
    kind: &'static str,
    required: Vec<(&'static str, BoxedStrategy<Value>)>,
    optional: Vec<(&'static str, BoxedStrategy<Value>)>,
    status: BoxedStrategy<Value>,
) -> BoxedStrategy<Value> {
    let required: Vec<_> = required
        .into_iter()
        .map(|(field, value)| value.prop_map(move |value| (field, value)))
        .collect();
    (metadata(), required, fields(optional), of(status))
        .prop_map(move |(metadata, required, mut spec, status)| {
            for (field, value) in required {
                spec[field] = value;
            }
            let mut object =
                json!({"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec});
            if let Some(status) = status {
                object["status"] = status;
            }
            object
        })
        .boxed()
}

fn sandbox_parts() -> Vec<(&'static str, BoxedStrategy<Value>)> {
    vec![
        ("volumeClaimTemplates", volume_claims().boxed()),
        ("service", any::<bool>().prop_map(Value::from).boxed()),
        ("shutdownTime", one(&["2026-11-23T01:02:03Z"])),
        ("shutdownPolicy", one(&["Delete", "Retain"])),
    ]
}

fn sandbox_status(last: (&'static str, BoxedStrategy<Value>)) -> BoxedStrategy<Value> {
    fields(vec![
        ("serviceFQDN", one(&["a.default.svc.cluster.local"])),
        ("service", one(&["a"])),
        ("conditions", conditions().boxed()),
        (
            "selector",
            one(&["agents.x-k8s.io/sandbox-name-hash=00000001"]),
        ),
        (
            "podIPs",
            one(&["10.0.0.1"]).prop_map(|ip| json!([ip])).boxed(),
        ),
        last,
    ])
}

fn claim_parts() -> Vec<(&'static str, BoxedStrategy<Value>)> {
    let lifecycle = fields(vec![
        ("shutdownTime", one(&["2026-11-23T01:02:03Z"])),
        (
            "ttlSecondsAfterFinished",
            (0..99i32).prop_map(Value::from).boxed(),
        ),
        (
            "shutdownPolicy",
            one(&["Delete", "DeleteForeground", "Retain"]),
        ),
    ]);
    vec![
        ("lifecycle", lifecycle),
        (
            "additionalPodMetadata",
            Just(json!({"labels": {"sandbox.users.io/a": "b"}})).boxed(),
        ),
        (
            "env",
            Just(json!([{"name": "A", "value": "b", "containerName": "main"}])).boxed(),
        ),
    ]
}

fn claim_status() -> BoxedStrategy<Value> {
    fields(vec![
        ("conditions", conditions().boxed()),
        (
            "sandbox",
            name()
                .prop_map(|name| json!({"name": name, "podIPs": ["10.0.0.1"]}))
                .boxed(),
        ),
    ])
}

fn template_parts() -> Vec<(&'static str, BoxedStrategy<Value>)> {
    vec![
        ("volumeClaimTemplates", volume_claims().boxed()),
        (
            "networkPolicy",
            Just(json!({"ingress": [{"from": [{"podSelector": {}}]}]})).boxed(),
        ),
        ("networkPolicyManagement", one(&["Managed", "Unmanaged"])),
        (
            "envVarsInjectionPolicy",
            one(&["Allowed", "Overrides", "Disallowed"]),
        ),
        ("service", any::<bool>().prop_map(Value::from).boxed()),
    ]
}

fn named() -> BoxedStrategy<Value> {
    name().prop_map(|name| json!({"name": name})).boxed()
}

fn count() -> BoxedStrategy<Value> {
    (0..9i32).prop_map(Value::from).boxed()
}

fn alpha() -> BoxedStrategy<Value> {
    let mut sandbox = sandbox_parts();
    sandbox.push(("replicas", (0..=1i32).prop_map(Value::from).boxed()));
    let mut claim = claim_parts();
    claim.push((
        "warmpool",
        prop_oneof![Just(String::new()), name()]
            .prop_map(Value::from)
            .boxed(),
    ));
    let status = (0..9i32, 0..9i32).prop_map(
        |(replicas, ready)| json!({"replicas": replicas, "readyReplicas": ready, "selector": "a=b"}),
    );
    prop_oneof![
        object(
            "agents.x-k8s.io/v1alpha1",
            "Sandbox",
            vec![("podTemplate", pod_template().boxed())],
            sandbox,
            sandbox_status(("replicas", (0..=1i32).prop_map(Value::from).boxed()))
        ),
        object(
            "extensions.agents.x-k8s.io/v1alpha1",
            "SandboxClaim",
            vec![("sandboxTemplateRef", named())],
            claim,
            claim_status()
        ),
        object(
            "extensions.agents.x-k8s.io/v1alpha1",
            "SandboxTemplate",
            vec![("podTemplate", pod_template().boxed())],
            template_parts(),
            Just(json!({})).boxed()
        ),
        object(
            "extensions.agents.x-k8s.io/v1alpha1",
            "SandboxWarmPool",
            vec![("replicas", count()), ("sandboxTemplateRef", named())],
            vec![(
                "updateStrategy",
                one(&["Recreate", "OnReplenish"])
                    .prop_map(|t| json!({"type": t}))
                    .boxed()
            )],
            status.boxed()
        ),
    ]
    .boxed()
}

fn beta() -> BoxedStrategy<Value> {
    let mut claim = claim_parts();
    claim.push(("volumeClaimTemplates", volume_claims().boxed()));
    let mut template = template_parts();
    template.push((
        "volumeClaimTemplatesPolicy",
        one(&["Allowed", "Overrides", "Disallowed"]),
    ));
    let pool_status = (0..9i32, 0..9i32, of(0..9i64)).prop_map(|(replicas, ready, generation)| {
        let mut status = json!({"replicas": replicas, "readyReplicas": ready});
        if let Some(generation) = generation {
            status["observedGeneration"] = generation.into();
        }
        status
    });
    prop_oneof![
        object(
            "agents.x-k8s.io/v1beta1",
            "Sandbox",
            vec![
                ("podTemplate", pod_template().boxed()),
                ("operatingMode", one(&["Running", "Suspended"]))
            ],
            sandbox_parts(),
            sandbox_status(("nodeName", one(&["node-1"])))
        ),
        object(
            "extensions.agents.x-k8s.io/v1beta1",
            "SandboxClaim",
            vec![("warmPoolRef", named())],
            claim,
            claim_status()
        ),
        object(
            "extensions.agents.x-k8s.io/v1beta1",
            "SandboxTemplate",
            vec![("podTemplate", pod_template().boxed())],
            template,
            Just(json!({})).boxed()
        )
        .prop_map(|mut object| {
            object.as_object_mut().unwrap().remove("status");
            object
        }),
        object(
            "extensions.agents.x-k8s.io/v1beta1",
            "SandboxWarmPool",
            vec![("replicas", count()), ("sandboxTemplateRef", named())],
            vec![(
                "updateStrategy",
                one(&["Recreate", "OnReplenish"])
                    .prop_map(|t| json!({"type": t}))
                    .boxed()
            )],
            pool_status.boxed()
        ),
    ]
    .boxed()
}

proptest! {
    #[test]
    fn nothing_is_lost_from_v1alpha1_through_v1beta1(object in alpha()) {
        prop_assert_eq!(round_trip(&object), object);
    }

    #[test]
    fn nothing_is_lost_from_v1beta1_through_v1alpha1(object in beta()) {
        prop_assert_eq!(without_original(round_trip(&object)), object);
    }

    /// An object that was written in v1alpha1 and is then read there, changed and written again.
    #[test]
    fn nothing_is_lost_when_v1beta1_has_a_v1alpha1_form(object in alpha()) {
        let group = object["apiVersion"].as_str().unwrap().split_once('/').unwrap().0.to_owned();
        let stored = convert(object, &format!("{group}/v1beta1")).unwrap();
        prop_assert_eq!(without_original(round_trip(&stored)), without_original(stored));
    }
}
