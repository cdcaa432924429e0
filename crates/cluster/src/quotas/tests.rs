use serde_json::json;
use shoal_core::quota::{Dimension, QuotaLimit};

use super::*;

fn key(number: u8) -> KeyId {
    KeyId::from_entropy([number; 16])
}

fn amount(cpu: u64) -> Amount {
    Amount {
        sandboxes: 1,
        cpu,
        memory: 0,
    }
}

fn ask(cpu: u64) -> Ask {
    let limit = QuotaLimit {
        dimension: Dimension::Cpu,
        scope: Scope::All,
        limit: 1000,
    };
    Ask {
        key: key(1),
        quota: Quota::of([limit]).unwrap(),
        namespace: "team".to_owned(),
        sandbox: "mine".to_owned(),
        amount: amount(cpu),
    }
}

fn state(entries: &[(&str, &str)]) -> ConfigMap {
    let mut state = ConfigMap::default();
    let text = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
    state.data = Some(entries.iter().map(text).collect());
    state
}

fn sandbox(spec: serde_json::Value, status: serde_json::Value) -> Sandbox {
    let mut sandbox: Sandbox = serde_json::from_value(json!({
        "metadata": {"uid": "u", "annotations": {"agents.kruise.io/lock": "mine"}}, "spec": spec,
    }))
    .unwrap();
    sandbox.status = serde_json::from_value(status).unwrap();
    sandbox
}

#[test]
fn reservations_are_those_of_the_key() {
    let own = format!("{}.1", key(1));
    let other = format!("{}.1", key(2));
    let broken = format!("{}.2", key(1));
    let text = r#"{"sandbox":"a","amount":{"sandboxes":1,"cpu":500,"memory":0}}"#;
    let state = state(&[(&own, text), (&other, text), (&broken, "{")]);
    let found = reservations(&state, key(1));
    assert_eq!(found.len(), 1);
    assert_eq!(
        (found[0].sandbox.as_str(), found[0].amount),
        ("a", amount(500))
    );
}

#[test]
fn a_sandbox_that_grows_needs_the_difference() {
    let listed = [("mine".to_owned(), amount(400), Scope::Running)];
    assert_eq!(more(&ask(700), &listed, &[]).cpu, 300);
    let reserved = [Reservation {
        sandbox: "mine".to_owned(),
        amount: amount(600),
    }];
    assert_eq!(more(&ask(700), &listed, &reserved).cpu, 100);
    assert_eq!(more(&ask(300), &listed, &reserved), Amount::default());
    assert_eq!(more(&ask(700), &[], &[]), amount(700));
}

#[tokio::test(start_paused = true)]
async fn only_what_stays_too_long_is_abandoned() {
    let mut seen = HashMap::new();
    let both = state(&[("a", "{}"), ("b", "{}")]);
    assert!(abandoned(&mut seen, &both, Instant::now()).is_empty());
    tokio::time::advance(ABANDONED / 2).await;
    // `a` was released, and an entry of the same name is another reservation.
    assert!(abandoned(&mut seen, &state(&[("b", "{}")]), Instant::now()).is_empty());
    tokio::time::advance(ABANDONED / 2).await;
    assert_eq!(abandoned(&mut seen, &both, Instant::now()), ["b"]);
    // It comes no earlier than the last write that a reservation allows.
    assert!(ABANDONED > FRESH + Duration::from_secs(60));
}

#[test]
fn what_has_ended_or_expired_uses_nothing() {
    let now: Time = "2026-01-02T03:04:05Z".parse().unwrap();
    let running = json!({"phase": "Running"});
    for (spec, status, expected) in [
        (json!({}), json!({}), true),
        (json!({}), running.clone(), true),
        (json!({"paused": true}), json!({"phase": "Paused"}), true),
        (json!({}), json!({"phase": "Failed"}), false),
        (json!({}), json!({"phase": "Succeeded"}), false),
        (
            json!({"shutdownTime": "2026-01-02T03:00:00Z"}),
            running,
            false,
        ),
    ] {
        let told = format!("{spec} {status}");
        assert_eq!(uses(&sandbox(spec, status), now), expected, "{told}");
    }
    let paused = sandbox(json!({"paused": true}), json!({}));
    assert_eq!(scope_of(&paused), Scope::All);
    assert_eq!(name_of(&paused), "mine");
}
