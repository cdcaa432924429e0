//! A stop waits for what runs, ends what takes long, and leaves the rest to the next start.

use futures_util::FutureExt;
use shoal_core::build::{Base, BuildStatus, Plan, Stage};
use shoal_core::resources::Resources;
use shoal_engine::BuildRequest;

use super::*;

#[tokio::test]
async fn a_stop_waits_for_a_create_whose_caller_has_left() {
    let fixture = fixture().await;
    fixture.driver.starts().shut();
    let (engine, me) = (fixture.engine.clone(), fixture.me.clone());
    let creating = tokio::spawn(async move { engine.create(&me, new("base"), None).await });
    until("starting", || fixture.driver.starts().waiting() == 1).await;
    creating.abort();
    assert!(creating.await.unwrap_err().is_cancelled());
    fixture.engine.stop();
    assert!(fixture.engine.drained().now_or_never().is_none());
    fixture.driver.starts().open();
    fixture.engine.drained().await;
    let [id] = &fixture.driver.sandboxes()[..] else {
        panic!("there is one sandbox");
    };
    assert!(fixture.lives(id));
}

#[tokio::test]
async fn a_stop_waits_for_a_wake_and_for_an_order_that_runs() {
    let fixture = fixture().await;
    let id = fixture.asleep(new("base").timeout).await;
    fixture.driver.starts().shut();
    let waking = tokio::spawn(fixture.engine.routes().wake(&id));
    until("waking", || fixture.driver.starts().waiting() == 1).await;
    waking.abort();
    fixture.engine.stop();
    assert!(fixture.engine.drained().now_or_never().is_none());
    fixture.driver.starts().open();
    fixture.engine.drained().await;
    let now = fixture.engine.routes().lookup(&id);
    assert!(matches!(now, Lookup::Running(_)), "{now:?}");
}

#[tokio::test]
async fn a_stop_ends_a_build_and_leaves_none_of_its_sandboxes() {
    let fixture = fixture().await;
    let new = BuildRequest {
        name: "made".parse().unwrap(),
        tags: Vec::new(),
        resources: Resources::default(),
    };
    let announced = fixture.engine.announce_build(&fixture.me, new).await;
    let build = announced.unwrap().id;
    let plan = Plan {
        stages: vec![Stage {
            base: Base::Template("base".parse().unwrap()),
            steps: Vec::new(),
        }],
        keep_env: Vec::new(),
        start: None,
        ready: None,
        force: false,
    };
    fixture.driver.starts().shut();
    let begun = fixture.engine.begin_build(&fixture.me, build, plan).await;
    begun.unwrap();
    until("building", || fixture.driver.starts().waiting() == 1).await;
    fixture.engine.stop();
    fixture.driver.starts().open();
    fixture.engine.drained().await;
    let record = fixture.engine.build(&fixture.me, build).unwrap();
    assert_eq!(record.status, BuildStatus::Error);
    let failure = record.failure.clone().unwrap();
    assert!(failure.message.contains("restarted"), "{}", failure.message);
    assert!(fixture.driver.sandboxes().is_empty());
}
