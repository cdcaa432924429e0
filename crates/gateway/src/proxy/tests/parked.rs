//! Parked sandboxes: clients cannot distinguish them from running ones.

use super::*;

async fn parked(change: impl FnOnce(&mut Route)) -> Fixture {
    let fixture = fixture(change).await;
    *fixture.routes.parked.lock() = true;
    fixture.routes.rest(Ok(()));
    fixture
}

#[tokio::test]
async fn a_request_wakes_a_parked_sandbox_whatever_its_daemon_will_say() {
    let fixture = parked(|_| {}).await;
    let answer = ask(&fixture, &to(fixture.server.port(), "/", "")).await;
    assert!(answer.ends_with("hello"), "{answer}");
    fixture.routes.rest(Ok(()));
    // Without the token: the daemon answers, as that of a running sandbox does. None listens here.
    let answer = ask(&fixture, &to(ENVD_PORT, "/files?signature=v1_x", "")).await;
    assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
    assert!(fixture.routes.asleep.lock().is_none(), "it was woken");
}

#[tokio::test]
async fn a_request_without_the_traffic_token_does_not_wake_it() {
    let fixture = parked(|route| route.traffic_access_token = Some(traffic_token())).await;
    let port = fixture.server.port();
    let answer = ask(&fixture, &to(port, "/", "")).await;
    assert!(answer.contains("is missing"), "{answer}");
    assert!(fixture.routes.asleep.lock().is_some(), "it stays parked");
    let token = traffic_token();
    let more = format!("e2b-traffic-access-token: {}\n", token.reveal());
    let answer = ask(&fixture, &to(port, "/", &more)).await;
    assert!(answer.ends_with("hello"), "{answer}");
}

#[tokio::test]
async fn a_failed_wake_says_that_it_can_be_tried_again() {
    let fixture = fixture(|_| {}).await;
    *fixture.routes.parked.lock() = true;
    fixture
        .routes
        .rest(Err(NotResumed::Failed("broken".to_owned())));
    let answer = ask(&fixture, &to(fixture.server.port(), "/", "")).await;
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    assert!(answer.contains("cannot be woken: try again"), "{answer}");
}

#[tokio::test]
async fn a_request_that_meets_a_park_wakes_it() {
    let fixture = fixture(|_| {}).await;
    *fixture.routes.refuses_visits.lock() = 1;
    let answer = ask(&fixture, &to(fixture.server.port(), "/", "")).await;
    assert!(answer.ends_with("hello"), "{answer}");
}

#[tokio::test]
async fn an_open_stream_and_an_upgraded_connection_are_visits_until_they_end() {
    let fixture = fixture(|_| {}).await;
    let port = fixture.server.port();
    let until = async |count: usize| {
        let end = std::time::Instant::now() + Duration::from_secs(60);
        while Arc::strong_count(&fixture.routes.visits) != count + 1 {
            assert!(std::time::Instant::now() < end, "never {count}");
            tokio::task::yield_now().await;
        }
    };
    let mut stream = send(&fixture, &to(port, "/forever", "")).await;
    let mut first = [0; 1];
    stream.read_exact(&mut first).await.unwrap();
    until(1).await;
    let upgrade = format!(
        "GET /upgrade HTTP/1.1\nHost: localhost\nConnection: upgrade\nUpgrade: echo\n\
         E2b-Sandbox-Id: iabc\nE2b-Sandbox-Port: {port}\n\n"
    );
    let mut upgraded = send(&fixture, &upgrade).await;
    upgraded.read_exact(&mut first).await.unwrap();
    until(2).await;
    drop(stream);
    until(1).await;
    drop(upgraded);
    until(0).await;
}

/// Waits until a count is reached. `what` is held by the fixture too.
async fn until_held(what: &Arc<()>, count: usize) {
    let end = std::time::Instant::now() + Duration::from_secs(60);
    while Arc::strong_count(what) != count + 1 {
        assert!(std::time::Instant::now() < end, "never {count}");
        tokio::task::yield_now().await;
    }
}

/// An upgraded connection to a sandbox whose connections go on after a park, and that echoes.
async fn idle() -> (Fixture, TcpStream) {
    let fixture = fixture(|route| route.keeps_connections = true).await;
    let stream = upgraded(&fixture).await;
    until_held(&fixture.routes.connections, 1).await;
    (fixture, stream)
}

async fn echoes(stream: &mut TcpStream, text: &str) {
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut seen = vec![0; text.len()];
    stream.read_exact(&mut seen).await.unwrap();
    assert_eq!(seen, text.as_bytes());
}

#[tokio::test]
async fn an_idle_upgraded_connection_is_no_visit_and_its_use_wakes_the_sandbox() {
    let (fixture, mut stream) = idle().await;
    echoes(&mut stream, "before").await;
    for text in ["one", "two"] {
        until_held(&fixture.routes.visits, 0).await;
        *fixture.routes.parked.lock() = true;
        fixture.routes.rest(Ok(()));
        echoes(&mut stream, text).await;
        assert!(fixture.routes.asleep.lock().is_none(), "it was woken");
    }
    drop(stream);
    until_held(&fixture.routes.connections, 0).await;
}

#[tokio::test]
async fn the_end_of_a_connection_reaches_a_parked_sandbox() {
    let (fixture, stream) = idle().await;
    until_held(&fixture.routes.visits, 0).await;
    *fixture.routes.parked.lock() = true;
    fixture.routes.rest(Ok(()));
    drop(stream);
    until_held(&fixture.routes.connections, 0).await;
    assert!(fixture.routes.asleep.lock().is_none(), "it was woken");
}

#[tokio::test]
async fn somebody_else_may_wake_the_sandbox_of_an_idle_connection() {
    let (fixture, mut stream) = idle().await;
    until_held(&fixture.routes.visits, 0).await;
    fixture.routes.route.send_modify(|route| {
        let mut next = Route::clone(route.as_ref().unwrap());
        next.execution = ExecutionId::from_entropy([2; 16]);
        *route = Some(Arc::new(next));
    });
    *fixture.routes.refuses_old.lock() = true;
    echoes(&mut stream, "again").await;
}

#[tokio::test]
async fn an_idle_connection_ends_when_its_sandbox_wakes_elsewhere_or_not_at_all() {
    let elsewhere = |route: &mut Route| route.network = ExecutionId::from_entropy([2; 16]);
    for woken in [Ok(()), Err(NotResumed::Failed("broken".to_owned()))] {
        let (fixture, mut stream) = idle().await;
        until_held(&fixture.routes.visits, 0).await;
        *fixture.routes.parked.lock() = true;
        fixture.routes.rest(woken);
        if let Some(Ok(route)) = &mut *fixture.routes.asleep.lock() {
            elsewhere(Arc::make_mut(route));
        }
        stream.write_all(b"lost").await.unwrap();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest).await;
        assert_eq!(rest, b"");
        until_held(&fixture.routes.connections, 0).await;
    }
}

#[tokio::test]
async fn an_idle_connection_ends_with_its_sandbox() {
    let (fixture, mut stream) = idle().await;
    fixture.routes.disconnected.send_replace(true);
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest).await;
    assert_eq!(rest, b"");
    until_held(&fixture.routes.connections, 0).await;
}
