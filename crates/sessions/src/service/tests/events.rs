//! The events of a session.

use bytes::Bytes;
use futures_util::StreamExt;
use shoal_core::ports::sessions::events::{PATHS_MAX, SessionSeen, SessionSeenStream};
use shoal_core::ports::sessions::files::{OnlyIf, SessionFiles, WriteFile};
use shoal_core::session::files::SyncState;
use shoal_core::session::path::SessionPath;

use super::*;

/// The events of a listener, without the states of the sync.
struct Heard(SessionSeenStream);

impl Heard {
    async fn any(&mut self) -> Option<SessionSeen> {
        let next = tokio::time::timeout(60 * SECOND, self.0.next());
        next.await.expect("nothing is told")
    }

    async fn next(&mut self) -> SessionFact {
        loop {
            match self.any().await {
                Some(SessionSeen::Event(event)) => match event.fact {
                    SessionFact::Sync { .. } => {}
                    fact => return fact,
                },
                other => panic!("{other:?} is told"),
            }
        }
    }

    /// The next event of this kind.
    async fn until(&mut self, is_wanted: impl Fn(&SessionFact) -> bool) -> SessionFact {
        loop {
            let fact = self.next().await;
            if is_wanted(&fact) {
                return fact;
            }
        }
    }
}

impl Fixture {
    fn listen(&self, session: &str) -> Heard {
        Heard(self.service.follow(&self.principal, session).unwrap())
    }

    async fn write(&self, session: &str, path: &str) {
        let file = WriteFile {
            path: path.parse().unwrap(),
            contents: Bytes::from_static(b"x"),
            executable: None,
            only_if: OnlyIf::Always,
        };
        let written = SessionFiles::write(&self.service, &self.principal, session, file);
        written.await.unwrap();
    }
}

fn path(text: &str) -> SessionPath {
    text.parse().unwrap()
}

fn files(changed: &[&str], removed: &[&str]) -> SessionFact {
    let paths = |texts: &[&str]| texts.iter().map(|text| path(text)).collect();
    SessionFact::Files {
        changed: paths(changed),
        removed: paths(removed),
    }
}

#[tokio::test]
async fn a_listener_is_told_of_machine_window_and_command_in_order() {
    let fixture = Fixture::new().await;
    let session = fixture.session(false).await;
    let other = fixture.session(false).await;
    let mut heard = fixture.listen(&session);
    let mut of_other = fixture.listen(&other);
    fixture.run(&session, "exit 3").await;
    let sandbox = fixture.view(&session).await.record.sandbox.unwrap();
    let window = WindowName::default();
    let started = SessionFact::MachineStarted(sandbox.clone());
    assert_eq!(heard.next().await, started);
    assert_eq!(
        heard.next().await,
        SessionFact::WindowOpened(window.clone())
    );
    let started = SessionFact::CommandStarted {
        window: window.clone(),
        command: "exit 3".to_owned(),
    };
    assert_eq!(heard.next().await, started);
    let ended = SessionFact::CommandEnded {
        window: window.clone(),
        end: ExecEnd::Exited(3),
    };
    assert_eq!(heard.next().await, ended);
    assert_eq!(heard.next().await, SessionFact::WindowClosed(window));
    fixture.reset(&session).await;
    assert_eq!(heard.next().await, SessionFact::Reset);
    assert_eq!(heard.next().await, SessionFact::MachineEnded(sandbox));
    fixture
        .service
        .delete(&fixture.principal, &session)
        .await
        .unwrap();
    assert_eq!(heard.next().await, SessionFact::Deleted);
    assert_eq!(heard.any().await, None);
    // Nothing of that is the other session's.
    let change = SessionChange::default();
    fixture
        .service
        .change(&fixture.principal, &other, change)
        .await
        .unwrap();
    assert_eq!(of_other.next().await, SessionFact::Changed);
}

#[tokio::test]
async fn the_end_of_a_machine_is_told_once_however_it_ends() {
    let fixture = Fixture::new().await;
    let session = fixture.session(false).await;
    let mut heard = fixture.listen(&session);
    let is_machine = |fact: &SessionFact| {
        matches!(
            fact,
            SessionFact::MachineStarted(_) | SessionFact::MachineEnded(_)
        )
    };
    let sandbox = async || fixture.view(&session).await.record.sandbox.unwrap();
    fixture.run(&session, "true").await;
    let first = sandbox().await;
    let started = heard.until(is_machine).await;
    assert_eq!(started, SessionFact::MachineStarted(first.clone()));
    // From inside, or by the sandbox API.
    fixture.machines.end_all();
    let ended = heard.until(is_machine).await;
    assert_eq!(ended, SessionFact::MachineEnded(first));
    fixture.run(&session, "true").await;
    let second = sandbox().await;
    let started = heard.until(is_machine).await;
    assert_eq!(started, SessionFact::MachineStarted(second.clone()));
    // By its deadline.
    fixture.ends(&session, IDLE).await;
    let ended = heard.until(is_machine).await;
    assert_eq!(ended, SessionFact::MachineEnded(second));
    // This end has no event until the next command notices it.
    fixture.run(&session, "true").await;
    let third = sandbox().await;
    heard.until(is_machine).await;
    fixture.machines.lose_all();
    fixture.run(&session, "true").await;
    let ended = heard.until(is_machine).await;
    assert_eq!(ended, SessionFact::MachineEnded(third));
    let started = heard.until(is_machine).await;
    assert_eq!(started, SessionFact::MachineStarted(sandbox().await));
}

#[tokio::test]
async fn r2_104_secrets_are_told_by_name_and_hidden_in_commands() {
    let fixture = Fixture::new().await;
    let session = fixture.session(false).await;
    let value = "correct-horse";
    fixture.set(&session, "TOKEN", value).await.unwrap();
    let mut heard = fixture.listen(&session);
    fixture.activate(&session, "TOKEN").await.unwrap();
    let name = "TOKEN".parse().unwrap();
    assert_eq!(heard.next().await, SessionFact::SecretActivated(name));
    fixture.run(&session, &format!("true {value}")).await;
    let is_command = |fact: &SessionFact| matches!(fact, SessionFact::CommandStarted { .. });
    let SessionFact::CommandStarted { command, .. } = heard.until(is_command).await else {
        unreachable!("it is one");
    };
    assert_eq!(command, "true ***");
}

#[tokio::test]
async fn changed_files_are_told_by_path_and_the_sync_by_its_state() {
    let fixture = Fixture::new().await;
    let session = fixture.session(false).await;
    let mut heard = fixture.listen(&session);
    fixture.write(&session, "src/a.txt").await;
    assert_eq!(heard.next().await, files(&["src/a.txt"], &[]));
    // The same again is no change.
    fixture.write(&session, "src/a.txt").await;
    let (from, to) = (path("src/a.txt"), path("src/b.txt"));
    let service = &fixture.service;
    let moved = SessionFiles::rename(service, &fixture.principal, &session, &from, &to);
    moved.await.unwrap();
    assert_eq!(heard.next().await, files(&["src/b.txt"], &["src/a.txt"]));
    for number in 0..=PATHS_MAX {
        fixture.write(&session, &format!("many/{number:04}")).await;
        heard.next().await;
    }
    let (many, src) = (path("many"), path("src"));
    let removed = SessionFiles::remove(service, &fixture.principal, &session, &many);
    removed.await.unwrap();
    for expected in [PATHS_MAX, 1] {
        let SessionFact::Files { removed, .. } = heard.next().await else {
            panic!("files are removed");
        };
        assert_eq!(removed.len(), expected);
    }
    // A machine gets the existing files.
    fixture.run(&session, "true").await;
    let mut stands = Vec::new();
    while stands.last() != Some(&(SyncState::Synced, 0, true)) {
        if let Some(SessionSeen::Event(event)) = heard.any().await
            && let SessionFact::Sync {
                state,
                behind,
                connected,
            } = event.fact
        {
            stands.push((state, behind, connected));
        }
    }
    assert!(stands.contains(&(SyncState::Behind, 1, true)), "{stands:?}");
    let removed = SessionFiles::remove(service, &fixture.principal, &session, &src);
    removed.await.unwrap();
    let is_file = |fact: &SessionFact| matches!(fact, SessionFact::Files { .. });
    assert_eq!(heard.until(is_file).await, files(&[], &["src/b.txt"]));
}

#[tokio::test]
async fn a_slow_listener_is_told_that_it_has_missed_something() {
    let fixture = Fixture::new().await;
    let session = fixture.session(false).await;
    let mut heard = fixture.listen(&session);
    for number in 0..300 {
        fixture.write(&session, &format!("{number}.txt")).await;
    }
    fixture.write(&session, "last.txt").await;
    assert_eq!(heard.any().await, Some(SessionSeen::Lagged));
    while heard.next().await != files(&["last.txt"], &[]) {}
}
