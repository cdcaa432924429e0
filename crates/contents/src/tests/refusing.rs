//! S3 servers that refuse requests or answer wrongly.

use std::convert::Infallible;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};

use object_store::aws::AmazonS3Builder;

use super::*;

/// A server on loopback that reads the head of each request and answers `answer`, with nothing to close the connection at once.
fn server(answer: &'static str) -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    // It ends with the process of the tests.
    std::thread::spawn(move || -> Infallible {
        loop {
            let (mut client, _) = listener.accept().unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") && !answer.is_empty() {
                let mut byte = [0];
                if client.read(&mut byte).unwrap_or(0) == 0 {
                    break;
                }
                head.push(byte[0]);
            }
            // The client may have gone.
            let _ = client.write_all(answer.as_bytes());
        }
    });
    address
}

fn at(address: SocketAddr) -> ObjectContents {
    choose_tls();
    let builder = AmazonS3Builder::new()
        .with_endpoint(format!("http://{address}"))
        .with_allow_http(true)
        .with_access_key_id("key")
        .with_secret_access_key("secret");
    let bucket = bucket();
    let objects = bucket.open_with(builder).unwrap();
    ObjectContents::owned(objects, &bucket, "one")
}

#[tokio::test]
async fn one_that_does_not_answer_is_unavailable() {
    let broken =
        "HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    for answer in ["", broken] {
        let contents = at(server(answer));
        let claimed = contents.claim().await.unwrap_err();
        assert!(matches!(claimed, StoreError::Unavailable(_)), "{claimed:?}");
        let read = contents.get(digest(b"")).await.unwrap_err();
        assert!(matches!(read, StoreError::Unavailable(_)), "{read:?}");
    }
}

#[tokio::test]
async fn one_that_refuses_the_key_has_to_be_looked_after() {
    let refused = "HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    let claimed = at(server(refused)).claim().await.unwrap_err();
    assert!(matches!(claimed, StoreError::Failed(_)), "{claimed:?}");
}
