//! Operations under way: how they look from outside, and the operations that may come between.

use shoal_core::image::{ImageName, NoProgress};
use shoal_core::resources::Resources;
use shoal_core::sandbox::NAME_KEY;
use shoal_core::state::StateKind;
use shoal_engine::test_util::FakeRegistry;
use shoal_engine::{
    BuildError, BuildRequest, CpuTarget, CreateTemplateError, NewSnapshot, ResizeCreated,
    SnapshotFilter, SnapshotNameError, TakeError, TemplateRequest,
};
use tokio::task::JoinHandle;

use super::*;

impl Fixture {
    fn take_aside(&self, id: &SandboxId, wait: Duration) -> JoinHandle<Result<(), TakeError>> {
        let (permit, _) = self.engine.authorize(&self.me, id).unwrap();
        let (engine, me) = (self.engine.clone(), self.me.clone());
        let new = NewSnapshot {
            wait,
            ..NewSnapshot::default()
        };
        tokio::spawn(async move { engine.snapshot(&me, &permit, new).await.map(|_| ()) })
    }

    fn taken(&self) -> usize {
        let all = SnapshotFilter::default();
        self.engine.snapshots(&self.me, &all).len()
    }
}

#[tokio::test]
async fn one_snapshot_of_a_sandbox_is_taken_at_a_time() {
    let fixture = fixture().await;
    let id = fixture.create().await;
    let saves = fixture.driver.saves();
    saves.shut();
    let wait = NewSnapshot::default().wait;
    let first = fixture.take_aside(&id, wait);
    until("saving", || saves.waiting() == 1).await;
    let (_, record) = fixture.engine.authorize(&fixture.me, &id).unwrap();
    assert_eq!(record.state.kind(), StateKind::Snapshotting);
    let second = fixture.take_aside(&id, wait);
    let other = fixture.create().await;
    let elsewhere = fixture.take_aside(&other, wait);
    // Another sandbox does not wait for this one, and its own next snapshot does.
    until("saving the other too", || saves.waiting() == 2).await;
    assert!(!second.is_finished());
    assert_eq!(fixture.taken(), 0);
    saves.open();
    for taken in [first, second, elsewhere] {
        taken.await.unwrap().unwrap();
    }
    assert_eq!(fixture.taken(), 3);
    let (_, record) = fixture.engine.authorize(&fixture.me, &id).unwrap();
    assert_eq!(record.state.kind(), StateKind::Running);
}

#[tokio::test]
async fn a_sandbox_that_is_killed_while_it_is_saved_ends_then_and_the_snapshot_stays() {
    let fixture = fixture().await;
    let id = fixture.create().await;
    let saves = fixture.driver.saves();
    saves.shut();
    let taken = fixture.take_aside(&id, NewSnapshot::default().wait);
    until("saving", || saves.waiting() == 1).await;
    let (permit, _) = fixture.engine.authorize(&fixture.me, &id).unwrap();
    let engine = fixture.engine.clone();
    let killed = tokio::spawn(async move { engine.kill(&permit).await });
    tokio::task::yield_now().await;
    assert!(!killed.is_finished());
    assert_eq!(fixture.driver.sandboxes(), std::slice::from_ref(&id));
    saves.open();
    taken.await.unwrap().unwrap();
    killed.await.unwrap().unwrap();
    assert!(fixture.driver.sandboxes().is_empty());
    assert_eq!((fixture.taken(), fixture.driver.kept().len()), (1, 1));
}

#[tokio::test]
async fn who_waits_no_longer_for_a_snapshot_is_told_so_and_finds_it_later() {
    let fixture = fixture().await;
    let id = fixture.create().await;
    fixture.driver.saves().shut();
    let taken = fixture.take_aside(&id, Duration::from_millis(1));
    let late = taken.await.unwrap().unwrap_err();
    assert!(matches!(late, TakeError::TooLong(_)), "{late}");
    assert_eq!(fixture.taken(), 0);
    fixture.driver.saves().open();
    until("listed", || fixture.taken() == 1).await;
}

fn template_called(name: &str, image: &ImageName) -> TemplateRequest {
    TemplateRequest {
        name: name.parse().unwrap(),
        image: image.clone(),
        resources: Resources::default(),
        runtime: None,
        user: None,
        workdir: None,
        env: BTreeMap::new(),
        persistent: Default::default(),
        max_cpu: None,
        public: false,
        description: String::new(),
    }
}

#[tokio::test]
async fn the_name_of_a_snapshot_that_is_being_taken_is_nobody_elses() {
    let fixture = fixture().await;
    let id = fixture.create().await;
    let saves = fixture.driver.saves();
    saves.shut();
    let (permit, _) = fixture.engine.authorize(&fixture.me, &id).unwrap();
    let (engine, me) = (fixture.engine.clone(), fixture.me.clone());
    let named = NewSnapshot {
        name: Some("work".parse().unwrap()),
        ..NewSnapshot::default()
    };
    let again = named.clone();
    let first = tokio::spawn(async move { engine.snapshot(&me, &permit, named).await });
    until("saving", || saves.waiting() == 1).await;
    let build = || BuildRequest {
        name: "work".parse().unwrap(),
        tags: Vec::new(),
        resources: Resources::default(),
    };
    let announced = fixture.engine.announce_build(&fixture.me, build()).await;
    assert!(
        matches!(announced, Err(BuildError::Taken(_))),
        "{announced:?}"
    );
    let image = "test/image:1".parse().unwrap();
    let made = template_called("work", &image);
    let made = fixture.engine.create_template(&fixture.me, made).await;
    assert!(
        matches!(made, Err(CreateTemplateError::NameTaken(_))),
        "{made:?}"
    );
    // Of one that comes to nothing the name is free.
    fixture.driver.refuse(Refusals {
        save: true,
        ..Refusals::default()
    });
    saves.open();
    first.await.unwrap().unwrap_err();
    fixture
        .engine
        .announce_build(&fixture.me, build())
        .await
        .unwrap();
    fixture.driver.refuse(Refusals::default());
    let (permit, _) = fixture.engine.authorize(&fixture.me, &id).unwrap();
    let refused = fixture.engine.snapshot(&fixture.me, &permit, again).await;
    assert!(
        matches!(refused, Err(TakeError::Name(SnapshotNameError::Taken(_)))),
        "{refused:?}"
    );
}

#[tokio::test]
async fn a_template_that_is_being_made_has_its_name_before_it_is_there() {
    let (driver, clock) = (FakeDriver::new(), ManualClock::new());
    let (directory, guest) = (tempfile::tempdir().unwrap(), FakeGuest::default());
    let images = FakeRegistry::default();
    let shared = Arc::new(images.clone());
    let engine = engine_over(directory.path(), &driver, &clock, &guest, shared, |_| {}).await;
    let me = principal(&engine, "mine").await;
    engine
        .put_template(template("base", "test/image:1"))
        .await
        .unwrap();
    let made = engine.create(&me, new("base"), None).await.unwrap();
    let (permit, _) = engine.authorize(&me, &made.record.id).unwrap();
    let image: ImageName = "registry.test/one:1".parse().unwrap();
    let auth = None;
    let pulled = images.pull(image.clone(), auth, Arc::new(NoProgress)).await;
    pulled.unwrap();
    images.finds.shut();
    let (making, of) = (engine.clone(), me.clone());
    let asked = template_called("work", &image);
    let making = tokio::spawn(async move { making.create_template(&of, asked).await });
    until("looking for its image", || images.finds.waiting() == 1).await;
    let (taking, of) = (engine.clone(), me.clone());
    let named = NewSnapshot {
        name: Some("work".parse().unwrap()),
        ..NewSnapshot::default()
    };
    let mut taking = tokio::spawn(async move { taking.snapshot(&of, &permit, named).await });
    // It waits, or has got the name by now, which would be wrong.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    images.finds.open();
    making.await.unwrap().unwrap();
    let refused = (&mut taking).await.unwrap();
    assert!(
        matches!(refused, Err(TakeError::Name(SnapshotNameError::Taken(_)))),
        "{refused:?}"
    );
}

#[tokio::test]
async fn traffic_wakes_a_sandbox_for_five_minutes_at_least() {
    let fixture = fixture().await;
    for (timeout, expected) in [(60, 300), (420, 420)] {
        let id = fixture.asleep(Duration::from_secs(timeout)).await;
        fixture.engine.routes().wake(&id).await.unwrap();
        let (_, record) = fixture.engine.authorize(&fixture.me, &id).unwrap();
        let lives = record.deadline.since(record.started_at);
        assert_eq!(lives, Duration::from_secs(expected));
    }
}

#[tokio::test]
async fn a_sandbox_that_is_being_paused_is_gone_for_traffic_unless_that_wakes_it() {
    let fixture = fixture().await;
    let (routes, saves) = (fixture.engine.routes(), fixture.driver.saves());
    for auto_resume in [false, true] {
        let asked = SandboxRequest {
            auto_resume,
            ..new("base")
        };
        let made = fixture.engine.create(&fixture.me, asked, None).await;
        let id = made.unwrap().record.id.clone();
        let (permit, _) = fixture.engine.authorize(&fixture.me, &id).unwrap();
        saves.shut();
        let engine = fixture.engine.clone();
        let paused = tokio::spawn(async move { engine.pause(&permit, None, false).await });
        until("saving", || saves.waiting() == 1).await;
        match routes.lookup(&id) {
            Lookup::Paused => assert!(!auto_resume),
            Lookup::Resumable(_) => assert!(auto_resume),
            other => panic!("{other:?}"),
        }
        saves.open();
        paused.await.unwrap().unwrap();
    }
}

fn scaled(factor: f64, early_return: bool) -> SandboxRequest {
    let cpu = CpuTarget::Factor(factor);
    SandboxRequest {
        resize: Some(ResizeCreated { cpu, early_return }),
        ..new("base")
    }
}

#[tokio::test]
async fn a_sandbox_that_is_handed_out_early_is_seen_to_be_resizing_until_it_is_not() {
    let fixture = fixture().await;
    let resizes = fixture.driver.resizes();
    resizes.shut();
    let made = fixture
        .engine
        .create(&fixture.me, scaled(2.0, true), None)
        .await;
    let made = made.unwrap().record;
    assert!(made.resizing);
    let now = || fixture.engine.authorize(&fixture.me, &made.id).unwrap().1;
    assert!(now().resizing);
    let before = now().spec.resources.cpu;
    resizes.open();
    until("resized", || !now().resizing).await;
    assert_eq!(now().spec.resources.cpu.0, before.0 * 2);
}

#[tokio::test]
async fn a_resize_that_cannot_be_written_down_leaves_no_sandbox() {
    let fixture = fixture().await;
    let which = "UPDATE ON sandboxes WHEN NEW.document LIKE '%\"resizing\":true%'";
    let _connection = refuse_writes(fixture.directory.path(), which);
    for early_return in [false, true] {
        let refused = scaled(2.0, early_return);
        let refused = fixture.engine.create(&fixture.me, refused, None).await;
        assert!(matches!(refused, Err(CreateError::Store(_))), "{refused:?}");
        assert!(fixture.driver.sandboxes().is_empty());
        let listed = fixture.engine.list(&fixture.me, &ListFilter::all(10));
        assert!(listed.sandboxes.is_empty());
    }
}

#[tokio::test]
async fn a_name_is_found_by_the_next_server_and_is_free_when_its_sandbox_is_gone() {
    let fixture = fixture().await;
    let mut called = new("base");
    called
        .metadata
        .insert(NAME_KEY.to_owned(), "box".to_owned());
    let made = fixture
        .engine
        .create(&fixture.me, called.clone(), None)
        .await;
    let id = made.unwrap().record.id.clone();
    let plain = fixture.create().await;
    let (directory, driver) = (fixture.directory.path(), &fixture.driver);
    let engine = engine_on(directory, driver, &fixture.clock, |_| {}).await;
    let found = |name: &str| {
        engine
            .find(&fixture.me, name)
            .map(|found| found.1.id.clone())
    };
    assert_eq!(found("box").unwrap(), id);
    assert_eq!(found(&format!("sbx-base-{plain}")).unwrap(), plain);
    for none in [
        format!("sbx-other-{plain}"),
        format!("sbx-base-{id}"),
        format!("-{plain}"),
        "bo".to_owned(),
    ] {
        assert!(found(&none).is_err(), "{none}");
    }
    let taken = engine.create(&fixture.me, called.clone(), None).await;
    assert!(matches!(taken, Err(CreateError::Name(_))));
    // Nor may one be called as another is that was given no name.
    let mut same = new("base");
    same.metadata
        .insert(NAME_KEY.to_owned(), format!("sbx-base-{plain}"));
    let taken = engine.create(&fixture.me, same, None).await;
    assert!(matches!(taken, Err(CreateError::Name(_))));
    let (permit, _) = engine.find(&fixture.me, "box").unwrap();
    engine.kill(&permit).await.unwrap();
    assert!(found("box").is_err());
    let again = engine.create(&fixture.me, called, None).await;
    assert_ne!(again.unwrap().record.id, id);
}
