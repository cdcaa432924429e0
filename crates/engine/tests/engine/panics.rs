//! Injected panics: in the task of one sandbox, and in a task of the engine.

use shoal_core::state::StateKind;
use shoal_tasks::TaskEnded;

use super::*;

impl Fixture {
    fn panic(&self, panic: bool) {
        self.driver.refuse(Refusals {
            panic,
            ..Refusals::default()
        });
    }

    fn shown(&self, id: &SandboxId) -> Option<StateKind> {
        let found = self.engine.authorize(&self.me, id);
        found.ok().map(|(_, record)| record.state.kind())
    }

    async fn close_network(&self, id: &SandboxId) -> Result<(), SandboxError> {
        let (permit, _) = self.engine.authorize(&self.me, id)?;
        let closed = Egress {
            internet: Some(false),
            ..Egress::default()
        };
        self.engine.set_network(&permit, closed).await.unwrap()
    }
}

#[tokio::test]
async fn a_sandbox_whose_task_panics_is_recovered_and_goes_on() {
    let fixture = fixture().await;
    let id = fixture.create().await;
    fixture.panic(true);
    let interrupted = fixture.close_network(&id).await;
    assert!(
        matches!(interrupted, Err(SandboxError::Interrupted(_))),
        "{interrupted:?}"
    );
    fixture.panic(false);
    let end = std::time::Instant::now() + Duration::from_secs(60);
    while let Err(error) = fixture.close_network(&id).await {
        assert!(matches!(error, SandboxError::Interrupted(_)), "{error}");
        assert!(std::time::Instant::now() < end, "never recovered");
        tokio::task::yield_now().await;
    }
    assert_eq!(fixture.shown(&id), Some(StateKind::Running));
    // It still ends by its deadline.
    fixture.clock.advance(Duration::from_secs(301));
    until("ended", || !fixture.lives(&id)).await;
    until("cleared", || fixture.driver.sandboxes().is_empty()).await;
}

#[tokio::test]
async fn a_pause_that_panics_leaves_a_sandbox_that_runs() {
    let fixture = fixture().await;
    let id = fixture.create().await;
    fixture.panic(true);
    let (permit, _) = fixture.engine.authorize(&fixture.me, &id).unwrap();
    let interrupted = fixture.engine.pause(&permit, None, false).await;
    assert!(
        matches!(interrupted, Err(SandboxError::Interrupted(_))),
        "{interrupted:?}"
    );
    fixture.panic(false);
    until("running again", || {
        fixture.shown(&id) == Some(StateKind::Running)
    })
    .await;
    fixture.engine.pause(&permit, None, false).await.unwrap();
    assert_eq!(fixture.shown(&id), Some(StateKind::Paused));
}

#[tokio::test]
async fn a_create_that_panics_leaves_nothing() {
    let fixture = fixture().await;
    fixture.panic(true);
    let made = fixture.engine.create(&fixture.me, new("base"), None).await;
    // Not found when its recovery ends before the request looks.
    assert!(
        matches!(
            made,
            Err(CreateError::Sandbox(
                SandboxError::Interrupted(_) | SandboxError::NotFound(_)
            ))
        ),
        "{made:?}"
    );
    until("forgotten", || {
        let all = ListFilter::default();
        fixture.engine.list(&fixture.me, &all).sandboxes.is_empty()
    })
    .await;
    assert!(fixture.driver.sandboxes().is_empty());
}

#[tokio::test]
async fn a_sandbox_that_panics_again_is_ended() {
    let fixture = fixture().await;
    let id = fixture.create().await;
    fixture.panic(true);
    let end = std::time::Instant::now() + Duration::from_secs(60);
    while fixture.lives(&id) {
        let interrupted = fixture.close_network(&id).await;
        assert!(
            matches!(
                interrupted,
                Err(SandboxError::Interrupted(_) | SandboxError::NotFound(_))
            ),
            "{interrupted:?}"
        );
        assert!(std::time::Instant::now() < end, "never ended");
        tokio::task::yield_now().await;
    }
    until("cleared", || fixture.driver.sandboxes().is_empty()).await;
}

#[tokio::test]
async fn a_task_of_the_engine_that_ends_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let (driver, clock) = (FakeDriver::new(), ManualClock::new());
    let guest = FakeGuest::default();
    let images = Arc::new(NoImages);
    let engine = engine_over(directory.path(), &driver, &clock, &guest, images, |_| {}).await;
    driver.end_events();
    let ended = engine.run().await;
    assert!(
        matches!(ended, TaskEnded::Early("driver events")),
        "{ended}"
    );
}
