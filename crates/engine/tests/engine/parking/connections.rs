//! Connections that are open and idle do not keep a sandbox from being parked, and go on after it.

use shoal_core::routes::{OpenConnection, Route};

use super::*;

/// A sandbox with an open connection, and the route by which it was opened.
async fn connected(fixture: &Fixture) -> (SandboxId, Arc<Route>, OpenConnection) {
    let id = fixture.start_one(long()).await;
    let routes = fixture.engine.routes();
    let Lookup::Running(route) = routes.lookup(&id) else {
        panic!("it runs");
    };
    let open = routes.open_connection(&route);
    (id, route, open.unwrap())
}

/// Whether a future has resolved.
async fn resolved(mut future: impl Future<Output = ()> + Unpin) -> bool {
    tokio::select! {
        biased;
        () = &mut future => true,
        () = tokio::task::yield_now() => false,
    }
}

fn network(fixture: &Fixture, id: &SandboxId) -> Option<PausedNetwork> {
    match fixture.driver.start(id) {
        Some(Start::Paused { network, .. }) => Some(network),
        _ => None,
    }
}

#[tokio::test]
async fn a_sandbox_is_parked_with_its_network_while_a_connection_is_open() {
    let fixture = parking().await;
    let (id, route, open) = connected(&fixture).await;
    let routes = fixture.engine.routes();
    let mut over = routes.disconnected(&route);
    for _ in 0..2 {
        fixture.parked(&id).await;
        assert!(!resolved(&mut over).await, "it goes on");
        assert!(routes.visit(&route).is_none(), "its use wakes the sandbox");
        let woken = routes.wake(&id).await.unwrap();
        assert_eq!(woken.address, route.address);
        assert_eq!(network(&fixture, &id), Some(PausedNetwork::Kept));
        assert!(!resolved(&mut over).await, "it goes on");
    }
    drop(open);
    fixture.parked(&id).await;
    assert!(resolved(&mut over).await, "no connection was open");
    routes.wake(&id).await.unwrap();
    assert_eq!(network(&fixture, &id), Some(PausedNetwork::Removed));
}

#[tokio::test]
async fn connections_end_with_a_pause_a_failed_wake_new_tokens_and_the_sandbox() {
    let fixture = parking().await;
    let (engine, me) = (&fixture.engine, &fixture.me);
    let routes = engine.routes();
    for end in ["pause", "wake", "tokens", "kill"] {
        let (id, route, _open) = connected(&fixture).await;
        let over = routes.disconnected(&route);
        fixture.parked(&id).await;
        let (permit, _) = engine.authorize(me, &id).unwrap();
        match end {
            "pause" => {
                engine.pause(&permit, None, true).await.unwrap();
                engine.resume(&permit, seconds(60), true).await.unwrap();
                assert_eq!(network(&fixture, &id), Some(PausedNetwork::Removed));
            }
            "wake" => {
                fixture.refuses(|refuses| refuses.resume = true);
                routes.wake(&id).await.unwrap_err();
                fixture.refuses(|_| {});
                assert_eq!(fixture.state_now(&id), StateKind::Parked);
            }
            "tokens" => {
                engine.rotate_tokens(&permit).await.unwrap();
            }
            _ => engine.kill(&permit).await.unwrap(),
        }
        assert!(resolved(over).await, "{end}");
    }
}

#[tokio::test]
async fn a_paused_sandbox_keeps_no_network_whatever_happened_before() {
    let fixture = parking().await;
    let (engine, me) = (&fixture.engine, &fixture.me);
    for before in ["parked", "woken", "never parked"] {
        let (id, _, _open) = connected(&fixture).await;
        let prepared = async |network| {
            until("prepared", || fixture.driver.network(&id) == Some(network)).await;
        };
        match before {
            "parked" | "woken" => {
                fixture.parked(&id).await;
                prepared(PausedNetwork::Kept).await;
            }
            // The park fails after it was decided.
            _ => {
                fixture.refuses(|refuses| refuses.save = true);
                let saves = fixture.driver.saves().passed();
                while fixture.driver.saves().passed() == saves {
                    fixture.look(&id).await;
                }
                until("runs on", || fixture.state_now(&id) == StateKind::Running).await;
                fixture.refuses(|_| {});
            }
        }
        if before == "woken" {
            engine.routes().wake(&id).await.unwrap();
        }
        let (permit, _) = engine.authorize(me, &id).unwrap();
        engine.pause(&permit, None, true).await.unwrap();
        prepared(PausedNetwork::Removed).await;
        engine.kill(&permit).await.unwrap();
    }
}

#[tokio::test]
async fn a_sandbox_that_is_not_parked_registers_no_connection() {
    let fixture = fixture().await;
    let id = fixture.start_one(long()).await;
    let Lookup::Running(route) = fixture.engine.routes().lookup(&id) else {
        panic!("it runs");
    };
    assert!(fixture.engine.routes().open_connection(&route).is_none());
}
