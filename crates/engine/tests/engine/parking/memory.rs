//! The machine's memory: idle sandboxes are parked before another one is refused.

use shoal_core::memory::FreeMemory;
use shoal_core::ports::sandboxes::QuotaExceeded;

use tokio::task::JoinHandle;

use super::*;

/// The memory of each live sandbox.
const EACH: Mib = Mib(1000);

/// A machine with room for `sandboxes`, which must idle for a long time before they are parked.
async fn machine(sandboxes: u32) -> Fixture {
    let fixture = fixture_with(|config| {
        parks(config);
        config.limits.free_memory = FreeMemory(Some(Mib(500)));
        if let Some(parking) = &mut config.parking {
            parking.after = Some(seconds(20 * AFTER));
        }
    })
    .await;
    fixture.has_room_for(sandboxes);
    fixture
}

impl Fixture {
    fn has_room_for(&self, sandboxes: u32) {
        self.driver.set_memory(Mib(EACH.0 * sandboxes + 600), EACH);
    }

    async fn try_start(&self) -> Result<SandboxId, CreateError> {
        let made = self.engine.create(&self.me, long(), None).await;
        made.map(|made| made.record.id.clone())
    }
}

#[tokio::test]
async fn a_create_is_refused_when_nothing_can_be_parked() {
    let fixture = machine(2).await;
    let first = fixture.try_start().await.unwrap();
    let second = fixture.try_start().await.unwrap();
    let third = fixture.try_start().await.unwrap();
    // The engine does not know yet that they are idle.
    let refused = fixture.try_start().await.unwrap_err();
    let text = refused.to_string();
    assert!(matches!(
        refused,
        CreateError::Full(QuotaExceeded::Machine { .. })
    ));
    assert!(
        text.contains("0 MiB are left, and 500 MiB stay free"),
        "{text}"
    );
    for kept in [&first, &second, &third] {
        assert_eq!(fixture.state_now(kept), StateKind::Running);
    }
    for ended in [&first, &second] {
        let (permit, _) = fixture.engine.authorize(&fixture.me, ended).unwrap();
        fixture.engine.kill(&permit).await.unwrap();
    }
    fixture.try_start().await.unwrap();
}

/// Five starts at once on a machine with memory for three, which do not get ready.
async fn five_starts() -> (
    Arc<Fixture>,
    Vec<JoinHandle<Result<SandboxId, CreateError>>>,
) {
    let fixture = Arc::new(machine(9).await);
    fixture.driver.set_memory(Mib(700), Mib(0));
    // The first look has passed: until the clock moves, only starts read the memory.
    until("looked", || fixture.driver.memory_reads() > 0).await;
    let before = fixture.driver.memory_reads();
    fixture.driver.starts().shut();
    let starts = (0..5).map(|_| {
        let fixture = fixture.clone();
        tokio::spawn(async move { fixture.try_start().await })
    });
    let starts = starts.collect();
    let all =
        || fixture.driver.memory_reads() == before + 5 && fixture.driver.starts().waiting() == 3;
    until("starting", all).await;
    (fixture, starts)
}

#[tokio::test]
async fn starts_wait_for_each_other_when_memory_is_scarce() {
    let (fixture, starts) = five_starts().await;
    fixture.driver.starts().open();
    for start in starts {
        start.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn starts_do_not_wait_for_each_other_for_long() {
    let (fixture, starts) = five_starts().await;
    fixture.clock.advance(seconds(5));
    let refused = || starts.iter().filter(|start| start.is_finished()).count() == 2;
    until("refused", refused).await;
    fixture.driver.starts().open();
    let mut failed = 0;
    for start in starts {
        failed += usize::from(start.await.unwrap().is_err());
    }
    assert_eq!(failed, 2);
}

#[tokio::test]
async fn a_flood_of_refused_creates_does_not_read_the_use_of_all_sandboxes_each_time() {
    let fixture = machine(9).await;
    let id = fixture.try_start().await.unwrap();
    fixture.look(&id).await;
    fixture.driver.set_memory(Mib(0), Mib(0));
    let before = fixture.driver.reads();
    for _ in 0..10 {
        fixture.try_start().await.unwrap_err();
    }
    assert_eq!(fixture.driver.reads(), before + 1);
}

#[tokio::test]
async fn the_sandbox_that_was_idle_for_longest_makes_room() {
    let fixture = machine(9).await;
    let first = fixture.try_start().await.unwrap();
    fixture.look(&first).await;
    let second = fixture.try_start().await.unwrap();
    fixture.pass(&first, 4 * LOOK).await;
    fixture.has_room_for(1);
    let third = fixture.try_start().await.unwrap();
    assert_eq!(fixture.state_now(&first), StateKind::Parked);
    assert_eq!(fixture.state_now(&second), StateKind::Running);
    assert_eq!(fixture.state_now(&third), StateKind::Running);
    // Its users see it running, so it wakes, and the next one makes room for it.
    fixture.engine.routes().wake(&first).await.unwrap();
    assert_eq!(fixture.state_now(&second), StateKind::Parked);
}

#[tokio::test]
async fn a_wake_is_not_refused_and_a_resume_is() {
    let fixture = machine(9).await;
    let parked = fixture.try_start().await.unwrap();
    let paused = fixture.try_start().await.unwrap();
    let (permit, _) = fixture.engine.authorize(&fixture.me, &paused).unwrap();
    fixture.engine.pause(&permit, None, true).await.unwrap();
    fixture.pass(&parked, 4 * LOOK).await;
    fixture.has_room_for(0);
    let awake = fixture.try_start().await.unwrap();
    assert_eq!(fixture.state_now(&parked), StateKind::Parked);
    fixture.engine.routes().wake(&parked).await.unwrap();
    let states = [&parked, &awake].map(|id| fixture.state_now(id));
    assert_eq!(states, [StateKind::Running; 2]);
    let resumed = fixture.engine.connect(&permit, seconds(60), true).await;
    assert!(
        matches!(
            resumed,
            Err(SandboxError::Full(QuotaExceeded::Machine { .. }))
        ),
        "it does not resume"
    );
    assert_eq!(fixture.state_now(&paused), StateKind::Paused);
}

#[tokio::test]
async fn idle_sandboxes_are_parked_early_while_memory_is_short() {
    let fixture = machine(3).await;
    let id = fixture.try_start().await.unwrap();
    let used = fixture.try_start().await.unwrap();
    // There is room for another one, but for no more.
    fixture.driver.set_memory(Mib(2 * EACH.0 + 700), EACH);
    let routes = fixture.engine.routes();
    let route = routes.wake(&used).await.unwrap();
    let _request = routes.visit(&route).unwrap();
    fixture.parked(&id).await;
    assert_eq!(fixture.state_now(&used), StateKind::Running);
}
