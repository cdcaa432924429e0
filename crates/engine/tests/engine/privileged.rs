//! Privileged sandboxes, in which containers run.

use shoal_core::driver::Start;
use shoal_core::sandbox::SnapshotOrigin;
use shoal_core::snapshot::Contents;
use shoal_core::template::TemplateKey;
use shoal_engine::NewSnapshot;

use super::*;

fn privileged(template: &str) -> SandboxRequest {
    SandboxRequest {
        privileged: true,
        ..SandboxRequest::of(template.parse::<TemplateKey>().unwrap())
    }
}

#[tokio::test]
async fn a_privileged_sandbox_needs_the_operator() {
    let fixture = fixture_with(|_| {}).await;
    let refused = fixture
        .engine
        .create(&fixture.me, privileged("base"), None)
        .await;
    assert!(matches!(refused, Err(CreateError::PrivilegedForbidden)));
    assert!(fixture.driver.sandboxes().is_empty());
}

#[tokio::test]
async fn a_runtime_that_runs_no_containers_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let driver = FakeDriver::without_capabilities("bare", &["bare"]);
    let allow = |config: &mut EngineConfig| config.privileged = true;
    let engine = engine_on(directory.path(), &driver, &ManualClock::new(), allow).await;
    let base = template("base", "test/image:1");
    engine.put_template(base).await.unwrap();
    let me = principal(&engine, "mine").await;
    let refused = engine.create(&me, privileged("base"), None).await;
    let told = refused.unwrap_err().to_string();
    assert!(
        told.contains("bare") && told.contains("containers"),
        "{told}"
    );
    assert!(driver.sandboxes().is_empty());
}

/// Programs in memory have the capabilities that they were saved with.
#[tokio::test]
async fn no_memory_of_a_privileged_sandbox_is_saved_and_none_is_restored_in_it() {
    let fixture = fixture_with(|config| config.privileged = true).await;
    let (engine, me) = (&fixture.engine, &fixture.me);
    let taken = async |id: &SandboxId, contents: Option<Contents>| {
        let permit = engine.find(me, id.as_str()).unwrap().0;
        let new = NewSnapshot {
            contents,
            ..NewSnapshot::default()
        };
        engine.snapshot(me, &permit, new).await
    };
    let from_memory = |id: &SandboxId| match fixture.driver.start(id) {
        Some(Start::Snapshot { memory, .. }) => memory,
        other => panic!("{other:?}"),
    };
    let of = |name: &str| SandboxRequest::of(name.parse::<TemplateKey>().unwrap());
    let ordinary = engine.create(me, of("base"), None).await.unwrap().record;
    let snapshot = taken(&ordinary.id, None).await.unwrap();
    let built = Template {
        snapshot: Some(SnapshotOrigin {
            id: snapshot.id,
            memory: true,
            guest_token: snapshot.guest_token.clone(),
        }),
        ..template("built", "test/image:1")
    };
    engine.put_template(built).await.unwrap();
    let plain = engine.create(me, of("built"), None).await.unwrap().record;
    assert!(!plain.spec.privileged && from_memory(&plain.id));
    let made = engine.create(me, privileged("built"), None).await;
    let made = made.unwrap().record;
    assert!(made.spec.privileged && !from_memory(&made.id));

    let refused = taken(&made.id, Some(Contents::Memory)).await;
    let told = refused.unwrap_err().to_string();
    assert!(told.contains("the files alone"), "{told}");
    let snapshot = taken(&made.id, Some(Contents::Filesystem)).await.unwrap();
    let clone = engine
        .create(me, of(snapshot.template.as_str()), None)
        .await;
    let clone = clone.unwrap().record;
    assert!(!clone.spec.privileged && !from_memory(&clone.id));
}
