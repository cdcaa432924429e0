//! Sandboxes of a template that changes while they are made.

use shoal_core::driver::Checkpointer;
use shoal_core::id::SnapshotId;

use super::*;

fn begins_with(build: &BuildRecord) -> SnapshotId {
    build.made.as_ref().unwrap().snapshot.id
}

#[tokio::test]
async fn a_create_begins_with_what_there_is_when_what_it_found_has_gone() {
    let fixture = fixture().await;
    let other = fixture.build("made:other", &["a"]).await;
    let first = fixture.build("made", &["b"]).await;
    let starts = fixture.driver.starts();
    starts.shut();
    let (engine, me) = (fixture.engine.clone(), fixture.me.clone());
    let created = tokio::spawn(async move { engine.create(&me, new("made"), None).await });
    until("started", || starts.waiting() == 1).await;
    let reference: TemplateRef = "made:other".parse().unwrap();
    let tags = ["default".to_owned()];
    let tagged = fixture.engine.add_tags(&fixture.me, &reference, &tags);
    tagged.await.unwrap();
    // As when its layer is the one that was not used for longest, or it is built by force.
    let removed = fixture.driver.remove_snapshot(begins_with(&first));
    removed.await.unwrap();
    starts.open();
    let record = created.await.unwrap().unwrap().record;
    let saved = record.spec.snapshot.as_ref().unwrap();
    assert_eq!(saved.id, begins_with(&other));
}

#[tokio::test]
async fn a_create_from_what_is_lost_fails() {
    let fixture = fixture().await;
    let build = fixture.build("made", &["a"]).await;
    let removed = fixture.driver.remove_snapshot(begins_with(&build));
    removed.await.unwrap();
    let created = fixture.engine.create(&fixture.me, new("made"), None).await;
    assert!(
        matches!(
            created,
            Err(CreateError::Driver(DriverError::SnapshotNotFound(id))) if id == begins_with(&build)
        ),
        "{created:?}"
    );
}
