//! Snapshots are complete and have the given name, or do not exist.

use shoal_core::auth::SandboxPermit;
use shoal_core::driver::{DriverError, ExportKey};
use shoal_core::id::TemplateId;
use shoal_core::sandbox::OnTimeout;
use shoal_core::snapshot::Contents;
use shoal_core::state::StateKind;
use shoal_engine::{NewSnapshot, SnapshotError, SnapshotFilter, SnapshotNameError, TakeError};

use super::*;

const FILES: Option<Contents> = Some(Contents::Filesystem);

impl Fixture {
    fn kind(&self, id: &SandboxId) -> Option<StateKind> {
        let found = self.engine.authorize(&self.me, id).ok();
        found.map(|(_, record)| record.state.kind())
    }
}

fn silent() -> FakeGuest {
    FakeGuest {
        silent: true,
        ..FakeGuest::default()
    }
}

/// One that its sandbox ends with.
fn last_snapshot() -> NewSnapshot {
    NewSnapshot {
        keep_running: false,
        ..NewSnapshot::default()
    }
}

#[tokio::test]
async fn files_that_did_not_reach_the_disk_are_not_saved_and_the_sandbox_runs_on() {
    let fixture = fixture_of(silent(), |_| {}).await;
    let id = fixture.create().await;
    let (permit, _) = fixture.engine.authorize(&fixture.me, &id).unwrap();
    let paused = fixture.engine.pause(&permit, FILES, false).await;
    let refused = paused.unwrap_err();
    assert!(matches!(refused, SandboxError::NotSynced(_)), "{refused}");
    let new = NewSnapshot {
        contents: FILES,
        ..NewSnapshot::default()
    };
    let taken = fixture.engine.snapshot(&fixture.me, &permit, new).await;
    let refused = taken.unwrap_err();
    let expected = matches!(refused, TakeError::Sandbox(SandboxError::NotSynced(_)));
    assert!(expected, "{refused}");
    assert!(fixture.driver.kept().is_empty());
    assert_eq!(fixture.kind(&id), Some(StateKind::Running));
    // The memory has what the disk has not.
    let memory = Some(Contents::Memory);
    fixture.engine.pause(&permit, memory, false).await.unwrap();
    assert_eq!(fixture.kind(&id), Some(StateKind::Paused));
}

#[tokio::test]
async fn a_sandbox_that_rests_by_itself_keeps_its_memory_when_its_files_alone_would_not_do() {
    let fixture = fixture_of(silent(), |_| {}).await;
    let asked = SandboxRequest {
        on_timeout: OnTimeout::Pause,
        keep_memory: false,
        ..new("base")
    };
    let made = fixture.engine.create(&fixture.me, asked, None).await;
    let made = made.unwrap().record;
    fixture.clock.advance_to(made.deadline);
    let id = made.id.clone();
    until("paused", || fixture.kind(&id) == Some(StateKind::Paused)).await;
    let (_, record) = fixture.engine.authorize(&fixture.me, &id).unwrap();
    assert_eq!(record.state.saved().unwrap().contents, Contents::Memory);
}

#[tokio::test]
async fn who_ends_a_sandbox_does_not_wait_for_its_files_to_reach_the_disk() {
    let fixture = fixture().await;
    let id = fixture.create().await;
    let (permit, _) = fixture.engine.authorize(&fixture.me, &id).unwrap();
    fixture.guest.syncs.shut();
    let (engine, same) = (fixture.engine.clone(), permit.clone());
    let paused = tokio::spawn(async move { engine.pause(&same, FILES, false).await });
    until("syncing", || fixture.guest.syncs.waiting() == 1).await;
    let killed = fixture.engine.kill(&permit);
    let killed = tokio::time::timeout(Duration::from_secs(60), killed).await;
    killed.unwrap().unwrap();
    assert!(fixture.driver.sandboxes().is_empty());
    assert!(matches!(
        paused.await.unwrap(),
        Err(SandboxError::NotFound(_))
    ));
}

#[tokio::test]
async fn a_sandbox_that_ends_with_its_snapshot_does_nothing_more_after_it() {
    let fixture = fixture().await;
    let id = fixture.create().await;
    let (permit, _) = fixture.engine.authorize(&fixture.me, &id).unwrap();
    // Its work between the copy and its end would be lost: it is frozen until it is gone. Here
    // it cannot be cleared, so that it can be looked at.
    fixture.driver.refuse(Refusals {
        destroy: true,
        ..Refusals::default()
    });
    let taken = fixture
        .engine
        .snapshot(&fixture.me, &permit, last_snapshot())
        .await;
    taken.unwrap();
    assert!(fixture.driver.is_frozen(&id));
    assert!(*fixture.guest.frozen.lock(), "nor does its clock run");
    fixture.driver.refuse(Refusals::default());
    fixture.clock.advance(Duration::from_secs(11));
    until("cleared", || fixture.driver.sandboxes().is_empty()).await;
}

#[tokio::test]
async fn what_has_happened_is_seen_when_it_cannot_be_written_down() {
    let fixture = fixture().await;
    let id = fixture.create().await;
    let (permit, _) = fixture.engine.authorize(&fixture.me, &id).unwrap();
    let which = "UPDATE ON sandboxes WHEN NEW.document LIKE '%\"state\":\"running\"%'";
    let connection = refuse_writes(fixture.directory.path(), which);
    let new = NewSnapshot::default();
    let taken = fixture.engine.snapshot(&fixture.me, &permit, new).await;
    let taken = taken.unwrap();
    assert_eq!(fixture.kind(&id), Some(StateKind::Running));
    assert_eq!(fixture.driver.kept(), [taken.id]);

    fixture.driver.refuse(Refusals {
        save: true,
        ..Refusals::default()
    });
    let unsaved = fixture.engine.pause(&permit, None, false).await;
    assert!(unsaved.is_err());
    assert_eq!(fixture.kind(&id), Some(StateKind::Running));
    // An unrecorded snapshot does not block the next one.
    connection.execute_batch("DROP TRIGGER broken").unwrap();
    fixture.driver.refuse(Refusals::default());
    fixture.engine.pause(&permit, None, false).await.unwrap();
    assert_eq!(fixture.kind(&id), Some(StateKind::Paused));
}

#[tokio::test]
async fn a_sandbox_goes_on_whose_last_snapshot_could_not_be_kept() {
    let fixture = fixture().await;
    let id = fixture.create().await;
    let (permit, _) = fixture.engine.authorize(&fixture.me, &id).unwrap();
    let which = "INSERT ON snapshots";
    let connection = refuse_writes(fixture.directory.path(), which);
    let unnoted = fixture
        .engine
        .snapshot(&fixture.me, &permit, last_snapshot())
        .await;
    assert!(unnoted.is_err());
    assert!(!fixture.driver.is_frozen(&id), "it runs");
    connection.execute_batch("DROP TRIGGER broken").unwrap();
    fixture.driver.refuse(Refusals {
        save: true,
        ..Refusals::default()
    });
    let unsaved = fixture
        .engine
        .snapshot(&fixture.me, &permit, last_snapshot())
        .await;
    assert!(unsaved.is_err());
    assert_eq!(fixture.kind(&id), Some(StateKind::Running));
    assert!(!fixture.driver.is_frozen(&id) && fixture.driver.kept().is_empty());
    assert!(!*fixture.guest.frozen.lock(), "its clock runs");
}

#[tokio::test]
async fn two_first_snapshots_of_a_name_are_takings_of_one_thing() {
    let fixture = fixture().await;
    let saves = fixture.driver.saves();
    saves.shut();
    let mut taken = Vec::new();
    for _ in 0..2 {
        let id = fixture.create().await;
        let (permit, _) = fixture.engine.authorize(&fixture.me, &id).unwrap();
        let (engine, me) = (fixture.engine.clone(), fixture.me.clone());
        let new = NewSnapshot {
            name: Some("work".parse().unwrap()),
            ..NewSnapshot::default()
        };
        taken.push(tokio::spawn(async move {
            engine.snapshot(&me, &permit, new).await.unwrap()
        }));
    }
    until("both are saving", || saves.waiting() == 2).await;
    saves.open();
    let taken = futures_util::future::join_all(taken).await;
    let meant: Vec<TemplateId> = taken.into_iter().map(|one| one.unwrap().template).collect();
    assert_eq!(meant[0], meant[1]);
    let all = SnapshotFilter::default();
    // The later of one tag is in the place of the earlier.
    assert_eq!(fixture.engine.snapshots(&fixture.me, &all).len(), 1);
    assert_eq!(fixture.driver.kept().len(), 1);
    let free = fixture.create().await;
    let (permit, _) = fixture.engine.authorize(&fixture.me, &free).unwrap();
    let tagged = NewSnapshot {
        name: Some("work:v2".parse().unwrap()),
        ..NewSnapshot::default()
    };
    let tagged = fixture.engine.snapshot(&fixture.me, &permit, tagged).await;
    assert_eq!(tagged.unwrap().template, meant[0]);
}

#[tokio::test]
async fn what_is_imported_is_not_called_like_a_template() {
    let fixture = fixture().await;
    let id = fixture.create().await;
    let (permit, _) = fixture.engine.authorize(&fixture.me, &id).unwrap();
    let named = NewSnapshot {
        name: Some("work".parse().unwrap()),
        ..NewSnapshot::default()
    };
    let taken = fixture.engine.snapshot(&fixture.me, &permit, named).await;
    taken.unwrap();
    fixture.engine.kill(&permit).await.unwrap();
    let file = fixture.directory.path().join("exported");
    let work: TemplateRef = "work".parse().unwrap();
    let exported = fixture
        .engine
        .export_snapshot(&fixture.me, &work, file.clone());
    exported.await.unwrap();
    let import = |name: Option<&str>| {
        let name = name.map(|name| name.parse().unwrap());
        fixture
            .engine
            .import_snapshot(&fixture.me, file.clone(), name, false)
    };
    let taken = |refused: SnapshotError| {
        let expected = matches!(&refused, SnapshotError::Name(SnapshotNameError::Taken(_)));
        assert!(expected, "{refused}");
    };
    taken(import(Some("base:v1")).await.unwrap_err());
    let refused = import(Some("other/work")).await.unwrap_err();
    let expected = matches!(
        &refused,
        SnapshotError::Name(SnapshotNameError::Namespace(_))
    );
    assert!(expected, "{refused}");
    import(None).await.unwrap();
    import(Some("mine/copy:v2")).await.unwrap();
    let deleted = fixture.engine.delete_snapshot(&fixture.me, &work).await;
    deleted.unwrap();
    let kept = fixture.driver.kept().len();
    // The name that it had is a template's by now.
    fixture
        .engine
        .put_template(template("work", "test/image:1"))
        .await
        .unwrap();
    taken(import(None).await.unwrap_err());
    assert_eq!(fixture.driver.kept().len(), kept, "nothing is left of it");
}

#[tokio::test]
async fn no_export_holds_the_token_of_a_sandbox_that_is_there() {
    let fixture = fixture().await;
    let id = fixture.create().await;
    let (permit, record) = fixture.engine.authorize(&fixture.me, &id).unwrap();
    let token = fixture.engine.envd_access_token(&record).unwrap();
    let take = async |permit: &SandboxPermit, name: &str, contents| {
        let new = NewSnapshot {
            name: Some(name.parse().unwrap()),
            contents: Some(contents),
            ..NewSnapshot::default()
        };
        let taken = fixture.engine.snapshot(&fixture.me, permit, new).await;
        taken.unwrap();
    };
    take(&permit, "memory", Contents::Memory).await;
    take(&permit, "files", Contents::Filesystem).await;
    let export = async |name: &str| {
        let file = fixture.directory.path().join(format!("{name}.exported"));
        let reference = name.parse().unwrap();
        let engine = &fixture.engine;
        let exported = engine.export_snapshot(&fixture.me, &reference, file.clone());
        exported
            .await
            .map(|_| std::fs::read_to_string(file).unwrap())
    };
    let refused = export("memory").await.unwrap_err();
    assert!(
        matches!(&refused, SnapshotError::LiveToken(of) if *of == id),
        "{refused}"
    );
    let files = export("files").await.unwrap();
    assert!(!files.contains(token.reveal()), "only memory needs it");

    // One that was started from that memory has in its own what its original is opened with.
    let clone = fixture
        .engine
        .create(&fixture.me, new("memory"), None)
        .await;
    let clone = clone.unwrap().record.id.clone();
    let (of_clone, _) = fixture.engine.authorize(&fixture.me, &clone).unwrap();
    take(&of_clone, "clone", Contents::Memory).await;
    fixture.engine.kill(&of_clone).await.unwrap();
    let refused = export("clone").await.unwrap_err();
    assert!(
        matches!(&refused, SnapshotError::LiveToken(of) if *of == id),
        "{refused}"
    );
    // The new token was never in that memory.
    let rotated = fixture.engine.rotate_tokens(&permit).await.unwrap();
    let now = fixture.engine.envd_access_token(&rotated).unwrap();
    for name in ["clone", "memory"] {
        assert!(!export(name).await.unwrap().contains(now.reveal()));
    }
    // After an end nothing is opened by it, either.
    take(&permit, "last", Contents::Memory).await;
    export("last").await.unwrap_err();
    fixture.engine.kill(&permit).await.unwrap();
    export("last").await.unwrap();
}

#[tokio::test]
async fn what_another_installation_exported_is_taken_with_trust_or_the_same_key() {
    let key = |byte: u8| Some(ExportKey::from_secret(&[byte; 32]).unwrap());
    let with_key = async |byte| fixture_with(|config| config.export_key = key(byte)).await;
    let (here, same, other, none) = (
        with_key(1).await,
        with_key(1).await,
        with_key(2).await,
        fixture().await,
    );
    let id = here.create().await;
    let (permit, _) = here.engine.authorize(&here.me, &id).unwrap();
    let named = NewSnapshot {
        name: Some("work".parse().unwrap()),
        ..NewSnapshot::default()
    };
    here.engine
        .snapshot(&here.me, &permit, named)
        .await
        .unwrap();
    here.engine.kill(&permit).await.unwrap();
    let file = here.directory.path().join("exported");
    let work: TemplateRef = "work".parse().unwrap();
    let exported = here.engine.export_snapshot(&here.me, &work, file.clone());
    exported.await.unwrap();
    let import = async |into: &Fixture, trust| {
        let engine = &into.engine;
        engine
            .import_snapshot(&into.me, file.clone(), None, trust)
            .await
    };
    import(&same, false).await.unwrap();
    for stranger in [&other, &none] {
        let refused = import(stranger, false).await.unwrap_err();
        let untrusted = matches!(&refused, SnapshotError::Driver(DriverError::Untrusted));
        assert!(untrusted, "{refused}");
        assert!(stranger.driver.kept().is_empty());
        import(stranger, true).await.unwrap();
    }
}
