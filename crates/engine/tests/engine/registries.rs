//! Which registries are asked for whom.

use shoal_core::build::{Base, Plan, Stage};
use shoal_core::image::ImageName;
use shoal_core::resources::Resources;
use shoal_engine::test_util::FakeRegistry;
use shoal_engine::{BuildRequest, CustomImages};

use super::*;

async fn create(engine: &Engine, who: &Principal, image: &str) {
    let new = SandboxRequest {
        image: Some(image.parse().unwrap()),
        ..SandboxRequest::unnamed()
    };
    engine.create(who, new, None).await.unwrap();
}

async fn build_on(engine: &Engine, who: &Principal, image: &str) {
    let new = BuildRequest {
        name: "built".parse().unwrap(),
        tags: Vec::new(),
        resources: Resources::default(),
    };
    let build = engine.announce_build(who, new).await.unwrap();
    let stage = Stage {
        base: Base::Image(image.parse().unwrap(), None),
        steps: Vec::new(),
    };
    let plan = Plan {
        stages: vec![stage],
        start: None,
        ready: None,
        force: false,
        keep_env: Vec::new(),
    };
    engine.begin_build(who, build.id, plan).await.unwrap();
    let ended = || engine.build(who, build.id).unwrap().status.is_final();
    until("built", ended).await;
}

#[tokio::test]
async fn a_tenant_s_image_comes_from_public_registries_and_an_operator_s_from_any() {
    let directory = tempfile::tempdir().unwrap();
    let (driver, clock) = (FakeDriver::new(), ManualClock::new());
    let images = FakeRegistry::default();
    let anyone = |config: &mut EngineConfig| config.custom_images = CustomImages::Everyone;
    let guest = FakeGuest::default();
    let registry = Arc::new(images.clone());
    let engine = engine_over(directory.path(), &driver, &clock, &guest, registry, anyone).await;
    let tenant = principal(&engine, "tenant").await;
    let admin = Principal {
        admin: true,
        ..principal(&engine, "operators").await
    };
    create(&engine, &admin, "registry.test/one:1").await;
    build_on(&engine, &admin, "registry.test/two:1").await;
    assert!(images.asked_by_tenants.lock().is_empty());
    create(&engine, &tenant, "registry.test/three:1").await;
    build_on(&engine, &tenant, "registry.test/four:1").await;
    // An entry names the operator's registry for every tenant.
    let entry = r#"[{"name": "entry", "image": "registry.test/five:1", "description": "d"}]"#;
    engine.replace_catalogue(entry, None).await.unwrap();
    engine.create(&tenant, new("entry"), None).await.unwrap();
    let asked: Vec<ImageName> = images.asked_by_tenants.lock().clone();
    let asked: Vec<&str> = asked.iter().map(ImageName::as_str).collect();
    assert_eq!(asked, ["registry.test/three:1", "registry.test/four:1"]);
    assert_eq!(images.pulled.lock().len(), 5);
}
