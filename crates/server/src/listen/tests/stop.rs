//! A stop: running requests get the time to end, and new requests are refused.

use tokio::net::TcpStream;

use super::served::{API, DOMAIN, Served, rest};
use super::*;

const CREATE: &str = "POST /v2/sandboxes";

/// Waits until the driver starts a sandbox.
async fn until_starting(served: &Served) {
    while served.driver.starts().waiting() == 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_stop_refuses_what_comes_and_ends_what_runs() {
    let served = Served::start().await;
    served.driver.starts().shut();
    let body = r#"{"templateID": "base"}"#;
    let creating = tokio::spawn(served.ask(served.request(API, CREATE, "", body)));
    until_starting(&served).await;
    // A body that is still on its way.
    let mut uploading = TcpStream::connect(served.address).await.unwrap();
    let request = served.request(API, CREATE, "Expect: 100-continue\r\n", body);
    let head = request.strip_suffix(body).unwrap();
    uploading.write_all(head.as_bytes()).await.unwrap();
    let mut go_on = [0; 25];
    uploading.read_exact(&mut go_on).await.unwrap();
    assert_eq!(&go_on, b"HTTP/1.1 100 Continue\r\n\r\n");

    served.stop();
    let in_domain = format!("3000-iabc.{DOMAIN}");
    let preview = format!("0123456789abcdefghij.preview.{DOMAIN}");
    for (host, path, part) in [
        (API, "/health", r#""error_code":"server_stopping""#),
        (API, "/api/v1/status", r#""code":"503""#),
        (in_domain.as_str(), "/", r#""code":503"#),
        // Not the API's answer: the path is the session's.
        (preview.as_str(), "/api/v1/status", r#""code":503"#),
    ] {
        let answer = served.ask(served.request(host, &format!("GET {path}"), "", ""));
        let answer = answer.await;
        assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
        let lower = answer.to_ascii_lowercase();
        for part in ["\r\nretry-after: 5\r\n", "\r\nconnection: close\r\n", part] {
            assert!(lower.contains(part), "no {part} in {answer}");
        }
    }
    uploading.write_all(body.as_bytes()).await.unwrap();
    assert!(!served.served.is_finished());
    served.driver.starts().open();
    for answer in [creating.await.unwrap(), rest(&mut uploading).await] {
        assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
    }
    served.served.await.unwrap();
    assert_eq!(served.driver.sandboxes().len(), 2);
    // Nothing listens any more.
    TcpStream::connect(served.address).await.unwrap_err();
}

#[tokio::test]
async fn a_stop_cuts_off_what_does_not_end() {
    let served = Served::start().await;
    served.driver.starts().shut();
    let body = r#"{"templateID": "base"}"#;
    let creating = tokio::spawn(served.ask(served.request(API, CREATE, "", body)));
    until_starting(&served).await;
    served.stop();
    // From now on, time passes whenever nothing else happens.
    tokio::time::pause();
    let begun = tokio::time::Instant::now();
    served.served.await.unwrap();
    assert!(begun.elapsed() >= GRACE);
    assert!(!creating.is_finished());
}
