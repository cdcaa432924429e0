//! Machines whose files cannot be stored: they do not end.

use bytes::Bytes;
use shoal_core::ports::sessions::files::{FileError, OnlyIf, SessionFiles, WriteFile};
use shoal_core::session::path::SessionPath;

use super::*;
use crate::memory_store::Fault;
use crate::service::machine::GIVEN_UP;

fn path(text: &str) -> SessionPath {
    text.parse().unwrap()
}

/// A session whose machine has written what the session does not have yet.
async fn with_changes(fixture: &Fixture) -> String {
    let session = fixture.session(false).await;
    fixture.run(&session, "true").await;
    fixture.machines.local.home.write(&path("made"), b"inside");
    session
}

impl Fixture {
    async fn try_reset(&self, session: &str) -> Result<Reset, SessionError> {
        let asked = self.service.reset(&self.principal, session, None);
        let Reset::Asked(question) = asked.await.unwrap() else {
            panic!("it asks first");
        };
        let reset = self
            .service
            .reset(&self.principal, session, Some(&question.token));
        reset.await
    }

    async fn read(&self, session: &str, at: &str) -> Result<Bytes, SessionError> {
        let path = path(at);
        let read = self.service.read(&self.principal, session, &path).await;
        Ok(read?.1)
    }
}

#[tokio::test]
async fn a_machine_lives_until_its_files_are_stored() {
    for fault in [Fault::Away, Fault::Hangs, Fault::Full] {
        let fixture = Fixture::new().await;
        let session = with_changes(&fixture).await;
        fixture.files.set_fault(Some(fault));
        // No caller waits for a real program now.
        tokio::time::pause();
        let reset = fixture.try_reset(&session).await;
        assert!(matches!(reset, Err(SessionError::Store(_))), "{reset:?}");
        let live = fixture
            .service
            .0
            .find(&fixture.principal, &session)
            .unwrap();
        fixture.clock.advance(IDLE);
        assert!(!fixture.service.0.end_if_over(&live).await, "{fault:?}");
        // However long it takes.
        fixture.clock.advance(GIVEN_UP * 10);
        assert!(!fixture.service.0.end_if_over(&live).await, "{fault:?}");
        assert_eq!(fixture.machines.alive().len(), 1);

        tokio::time::resume();
        fixture.files.set_fault(None);
        assert!(fixture.service.0.end_if_over(&live).await, "{fault:?}");
        assert!(fixture.machines.alive().is_empty());
        let kept = fixture.read(&session, "made").await.unwrap();
        assert_eq!(kept, "inside", "{fault:?}");
    }
}

#[tokio::test]
async fn a_machine_that_does_not_tell_its_files_is_given_up_after_a_while() {
    let fixture = Fixture::new().await;
    let session = with_changes(&fixture).await;
    fixture.machines.fall_silent();
    let live = fixture
        .service
        .0
        .find(&fixture.principal, &session)
        .unwrap();
    fixture.clock.advance(IDLE);
    assert!(!fixture.service.0.end_if_over(&live).await);
    fixture.clock.advance(GIVEN_UP - SECOND);
    assert!(!fixture.service.0.end_if_over(&live).await);
    fixture.clock.advance(SECOND);
    assert!(fixture.service.0.end_if_over(&live).await);
    assert!(fixture.machines.alive().is_empty());
}

#[tokio::test]
async fn while_the_storage_is_away_files_are_neither_read_nor_written() {
    let fixture = Fixture::new().await;
    let session = with_changes(&fixture).await;
    assert_eq!(fixture.read(&session, "made").await.unwrap(), "inside");
    fixture.files.set_fault(Some(Fault::Away));
    let new = WriteFile {
        path: path("new"),
        contents: Bytes::from_static(b"outside"),
        executable: None,
        only_if: OnlyIf::Always,
    };
    let refused = [
        fixture.read(&session, "made").await.err(),
        fixture
            .service
            .write(&fixture.principal, &session, new)
            .await
            .err(),
    ];
    for error in refused {
        let Some(SessionError::File(FileError::Store(StoreError::Unavailable(_)))) = error else {
            panic!("{error:?}");
        };
    }
    // Commands still work, and known files are listed.
    assert_eq!(fixture.run(&session, "echo here").await.0, "here\n");
    let listed = SessionFiles::list(&fixture.service, &fixture.principal, &session, None);
    assert_eq!(listed.await.unwrap().len(), 1);
}
