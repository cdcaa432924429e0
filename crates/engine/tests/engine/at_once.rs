//! Several callers want the same of one sandbox at the same time.

use shoal_core::auth::SandboxPermit;
use shoal_core::state::StateKind;
use tokio::task::JoinHandle;

use super::*;

const HOUR: Duration = Duration::from_secs(3600);

impl Fixture {
    fn permit(&self, id: &SandboxId) -> SandboxPermit {
        self.engine.authorize(&self.me, id).unwrap().0
    }

    fn pause_aside(&self, id: &SandboxId) -> JoinHandle<Result<(), SandboxError>> {
        let (engine, permit) = (self.engine.clone(), self.permit(id));
        tokio::spawn(async move { engine.pause(&permit, None, false).await })
    }

    /// A sandbox of which two pauses are on their way: one is saving, the other one waits for it.
    async fn being_paused_twice(&self) -> (SandboxId, [JoinHandle<Result<(), SandboxError>>; 2]) {
        let id = self.create().await;
        let saves = self.driver.saves();
        saves.shut();
        let first = self.pause_aside(&id);
        until("saving", || saves.waiting() == 1).await;
        let second = self.pause_aside(&id);
        // It is asked before the first has ended.
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        assert!(!second.is_finished());
        (id, [first, second])
    }
}

#[tokio::test]
async fn who_pauses_what_is_being_paused_shares_the_pause_and_the_next_is_told_that_it_was() {
    let fixture = fixture().await;
    let (id, pauses) = fixture.being_paused_twice().await;
    fixture.driver.saves().open();
    for paused in pauses {
        paused.await.unwrap().unwrap();
    }
    assert_eq!(fixture.driver.saves().passed(), 1, "it is saved once");
    let refused = fixture.pause_aside(&id).await.unwrap().unwrap_err();
    assert!(matches!(refused, SandboxError::Refused(_)), "{refused}");
}

#[tokio::test]
async fn a_pause_that_fails_fails_for_its_own_caller_and_the_other_one_tries_again() {
    let fixture = fixture().await;
    let (id, [first, second]) = fixture.being_paused_twice().await;
    fixture.driver.refuse(Refusals {
        save: true,
        ..Refusals::default()
    });
    fixture.driver.saves().open();
    assert!(first.await.unwrap().is_err() && second.await.unwrap().is_err());
    let (_, record) = fixture.engine.authorize(&fixture.me, &id).unwrap();
    assert_eq!(record.state.kind(), StateKind::Running);
}

#[tokio::test]
async fn who_resumes_or_connects_at_once_shares_one_run_that_lasts_for_the_longest() {
    let fixture = fixture().await;
    let id = fixture.create().await;
    fixture.pause_aside(&id).await.unwrap().unwrap();
    let permit = fixture.permit(&id);
    let engine = &fixture.engine;
    let resume = |hours| engine.resume(&permit, HOUR * hours, true);
    let (one, two, three, connected) = tokio::join!(
        resume(1),
        resume(3),
        resume(2),
        engine.connect(&permit, HOUR, true)
    );
    let runs = [one, two, three, connected.map(|connected| connected.record)];
    let runs = runs.map(|run| run.unwrap().execution);
    assert!(runs.iter().all(|run| *run == runs[0]), "{runs:?}");
    let (_, record) = engine.authorize(&fixture.me, &id).unwrap();
    assert_eq!(record.deadline.since(record.started_at), HOUR * 3);
    // A caller that finds it running gets an error.
    assert!(matches!(resume(1).await, Err(SandboxError::Refused(_))));
}

#[tokio::test]
async fn a_resume_that_is_asked_for_during_a_pause_comes_after_it() {
    let fixture = fixture().await;
    let (id, pauses) = fixture.being_paused_twice().await;
    let (engine, permit) = (fixture.engine.clone(), fixture.permit(&id));
    let resumed = tokio::spawn(async move { engine.resume(&permit, HOUR, true).await });
    tokio::task::yield_now().await;
    fixture.driver.saves().open();
    for paused in pauses {
        paused.await.unwrap().unwrap();
    }
    assert!(resumed.await.unwrap().unwrap().state.is_running());
}

#[tokio::test]
async fn a_timeout_above_the_limit_is_refused_and_changes_nothing() {
    let fixture = fixture_with(|config| config.limits.max_timeout = HOUR).await;
    let id = fixture.create().await;
    let permit = fixture.permit(&id);
    let (engine, me) = (&fixture.engine, &fixture.me);
    let long = HOUR + Duration::from_secs(1);
    let refused = |error: SandboxError| {
        let SandboxError::TimeoutTooLong(too_long) = error else {
            panic!("{error}");
        };
        assert_eq!(too_long.most, HOUR);
    };
    let before = engine.authorize(me, &id).unwrap().1;
    refused(engine.set_timeout(&permit, long).await.unwrap_err());
    refused(engine.refresh(&permit, long).await.unwrap_err());
    refused(engine.connect(&permit, long, true).await.unwrap_err());
    refused(engine.fork(me, &permit, 1, long).await.unwrap_err());
    assert_eq!(engine.authorize(me, &id).unwrap().1, before);
    fixture.pause_aside(&id).await.unwrap().unwrap();
    refused(engine.connect(&permit, long, true).await.unwrap_err());
    refused(engine.resume(&permit, long, true).await.unwrap_err());
    let (_, record) = engine.authorize(me, &id).unwrap();
    assert_eq!(record.state.kind(), StateKind::Paused);
    assert!(engine.resume(&permit, HOUR, true).await.is_ok());
}
