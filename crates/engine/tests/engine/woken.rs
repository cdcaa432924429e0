//! Many want a sandbox that rests: one attempt for all of them, and its end before all of them.

use shoal_core::routes::NotResumed;

use super::*;

/// How many ask at once: many more than may wait for a sandbox.
const MANY: usize = 200;

async fn asleep() -> (Fixture, SandboxId) {
    let fixture = fixture().await;
    let id = fixture.asleep(new("base").timeout).await;
    (fixture, id)
}

#[tokio::test]
async fn all_who_wait_for_a_sandbox_share_the_attempt_that_fails() {
    let (fixture, id) = asleep().await;
    fixture.driver.refuse(Refusals {
        resume: true,
        ..Refusals::default()
    });
    let (starts, routes) = (fixture.driver.starts(), fixture.engine.routes());
    let before = starts.passed();
    starts.shut();
    let many: Vec<_> = (0..MANY).map(|_| tokio::spawn(routes.wake(&id))).collect();
    until("resuming", || starts.waiting() == 1).await;
    // All callers have asked: each started before this one.
    let late = tokio::spawn(routes.wake(&id));
    for _ in 0..MANY {
        tokio::task::yield_now().await;
    }
    starts.open();
    for one in many.into_iter().chain([late]) {
        let woken = one.await.unwrap();
        assert!(matches!(woken, Err(NotResumed::Failed(_))), "{woken:?}");
    }
    assert_eq!(starts.passed() - before, 1, "one attempt for all");
    // The next caller does not get the error of a former attempt.
    fixture.driver.refuse(Refusals::default());
    routes.wake(&id).await.unwrap();
    assert_eq!(starts.passed() - before, 2);
}

#[tokio::test]
async fn a_sandbox_that_many_want_is_ended_first_and_is_never_too_busy_for_that() {
    let (fixture, id) = asleep().await;
    let (permit, _) = fixture.engine.authorize(&fixture.me, &id).unwrap();
    let (starts, engine) = (fixture.driver.starts(), &fixture.engine);
    let before = starts.passed();
    starts.shut();
    let again = |timeout| {
        let (engine, permit) = (engine.clone(), permit.clone());
        tokio::spawn(async move { engine.resume(&permit, timeout, true).await })
    };
    fixture.driver.refuse(Refusals {
        resume: true,
        ..Refusals::default()
    });
    let first = again(Duration::from_secs(60));
    until("resuming", || starts.waiting() == 1).await;
    let many: Vec<_> = (0..MANY)
        .map(|n| again(Duration::from_secs(n as u64)))
        .collect();
    let busy = || many.iter().filter(|one| one.is_finished()).count();
    until("no more can wait", || busy() > 0).await;
    let (killing, same) = (engine.clone(), permit.clone());
    let killed = tokio::spawn(async move { killing.kill(&same).await });
    for _ in 0..MANY {
        tokio::task::yield_now().await;
    }
    assert!(!killed.is_finished(), "it waits for the attempt");
    starts.open();
    killed.await.unwrap().unwrap();
    assert!(first.await.unwrap().is_err());
    for one in many {
        assert!(one.await.unwrap().is_err());
    }
    assert_eq!(starts.passed() - before, 1, "none was tried before the end");
    assert!(fixture.driver.sandboxes().is_empty() && !fixture.lives(&id));
}
