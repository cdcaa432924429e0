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
