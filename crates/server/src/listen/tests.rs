//! The listener's timeouts, on in-memory connections with paused time.

mod served;
mod stop;
mod traces;

use http::{Method, StatusCode};
use http_body_util::Empty;
use hyper::body::Bytes;
use hyper::client::conn::http2;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::*;

/// A server that refuses every request by its head.
fn refusing() -> DuplexStream {
    refusing_when(Arc::default())
}

/// The same, with other clients that wait for a connection when `crowding` is notified.
fn refusing_when(crowding: Arc<Notify>) -> DuplexStream {
    let (client, server) = duplex(64 << 10);
    let phase = ConnPhase::default();
    let service = tracking_phase(phase.clone(), async |request| {
        drop(request);
        let mut answer = Response::new(Body::from("no"));
        *answer.status_mut() = StatusCode::NOT_FOUND;
        answer
    });
    tokio::spawn(async move {
        let ending = CancellationToken::new();
        let server = HeadTimeout::new(server, HEADER_TIMEOUT, phase.clone(), None);
        serve_http(server, phase, service, ending, &crowding).await;
    });
    client
}

async fn answer(client: &mut DuplexStream) {
    let mut seen = Vec::new();
    while !seen.ends_with(b"\r\n\r\nno") {
        assert_ne!(client.read_buf(&mut seen).await.unwrap(), 0, "it closed");
    }
}

/// The time until the server closes the connection.
async fn closed_after(client: &mut (impl AsyncRead + Unpin)) -> Duration {
    let begun = tokio::time::Instant::now();
    let mut said = Vec::new();
    let closed = timeout(IDLE_TIMEOUT_HTTP2 * 3, client.read_to_end(&mut said)).await;
    // An aborted connection is closed too.
    let _ = closed.expect("it is never closed");
    begun.elapsed()
}

#[tokio::test(start_paused = true)]
async fn the_rest_of_an_unread_body_is_no_new_head() {
    let mut client = refusing();
    for _ in 0..3 {
        let head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5000\r\n\r\n";
        client.write_all(head).await.unwrap();
        answer(&mut client).await;
        client.write_all(&[b'x'; 5000]).await.unwrap();
        // Idle between two requests, for longer than the head timeout.
        sleep(HEADER_TIMEOUT * 4).await;
    }
    // A partial head times out.
    client.write_all(b"POST / HT").await.unwrap();
    let closed = async { client.read_u8().await.unwrap_err() };
    let closed = timeout(HEADER_TIMEOUT * 2, closed).await;
    assert_eq!(closed.unwrap().kind(), io::ErrorKind::UnexpectedEof);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_arrives_just_before_the_idle_timeout_is_answered() {
    let crowding = Arc::<Notify>::default();
    let request = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    for part in [request.len(), 10].repeat(20) {
        let mut client = refusing_when(crowding.clone());
        client.write_all(request).await.unwrap();
        answer(&mut client).await;
        sleep(CROWDED_TIMEOUT * 2).await;
        crowding.notify_waiters();
        client.write_all(&request[..part]).await.unwrap();
        tokio::task::yield_now().await;
        client.write_all(&request[part..]).await.unwrap();
        answer(&mut client).await;
        // Without a request, it is closed.
        sleep(CROWDED_TIMEOUT * 2).await;
        crowding.notify_waiters();
        assert_eq!(
            client.read_u8().await.unwrap_err().kind(),
            io::ErrorKind::UnexpectedEof
        );
    }
}

/// The preface of HTTP/2 and an empty SETTINGS frame.
const GREETING: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

#[tokio::test(start_paused = true)]
async fn an_http2_client_without_requests_has_the_head_timeout() {
    for first in [GREETING, &GREETING[..24]] {
        let mut client = refusing();
        client.write_all(first).await.unwrap();
        let after = closed_after(&mut client).await;
        let most = HEADER_TIMEOUT + FAREWELL * 2;
        assert!(HEADER_TIMEOUT <= after && after <= most, "{after:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn pings_do_not_extend_the_timeout_of_the_first_request() {
    let client = refusing();
    let (_sender, connection) = http2::Builder::new(TokioExecutor::new())
        .handshake::<_, Empty<Bytes>>(TokioIo::new(client))
        .await
        .unwrap();
    timeout(HEADER_TIMEOUT + FAREWELL * 2, connection)
        .await
        .expect("it is kept")
        .unwrap();
}

/// A stream that can be paused for reading.
struct Deaf {
    inner: DuplexStream,
    hears: watch::Receiver<bool>,
}

impl AsyncRead for Deaf {
    fn poll_read(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
        buffer: &mut tokio::io::ReadBuf<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        if *self.hears.borrow() {
            std::pin::Pin::new(&mut self.inner).poll_read(cx, buffer)
        } else {
            // The next request wakes the connection.
            std::task::Poll::Pending
        }
    }
}

impl AsyncWrite for Deaf {
    fn poll_write(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
        bytes: &[u8],
    ) -> std::task::Poll<io::Result<usize>> {
        std::pin::Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_flush(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        std::pin::Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        std::pin::Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

/// An HTTP/2 client that reads only while it waits for an answer, as many do.
async fn ask_and_rest(rest: Duration) -> hyper::Result<()> {
    let (hear, hears) = watch::channel(true);
    let stream = Deaf {
        inner: refusing(),
        hears,
    };
    let (mut sender, connection) = http2::Builder::new(TokioExecutor::new())
        .handshake::<_, Empty<Bytes>>(TokioIo::new(stream))
        .await?;
    tokio::spawn(connection);
    for _ in 0..2 {
        hear.send_replace(true);
        sender.ready().await?;
        let request = Request::builder().method(Method::GET).uri("http://x/");
        let answer = sender.send_request(request.body(Empty::new()).unwrap());
        assert_eq!(answer.await?.status(), StatusCode::NOT_FOUND);
        hear.send_replace(false);
        sleep(rest).await;
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn an_http2_client_may_be_idle_for_ten_minutes_without_answering_pings() {
    ask_and_rest(Duration::from_secs(300)).await.unwrap();
    ask_and_rest(Duration::from_secs(595)).await.unwrap();
    ask_and_rest(Duration::from_secs(700)).await.unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn a_connection_keeps_its_slot_until_it_closes() {
    let places = Arc::new(Semaphore::new(1));
    let (mut client, server) = duplex(1024);
    let phase = ConnPhase::default();
    let service = tracking_phase(
        phase.clone(),
        async |request: Request<DrainBody<Incoming>>| {
            let mut request = request;
            let upgraded = hyper::upgrade::on(&mut request);
            tokio::spawn(async move {
                let mut upgraded = TokioIo::new(upgraded.await.unwrap());
                let _ = upgraded.read_u8().await;
            });
            let mut answer = Response::new(Body::empty());
            *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
            let headers = answer.headers_mut();
            headers.insert("connection", "upgrade".parse().unwrap());
            headers.insert("upgrade", "echo".parse().unwrap());
            answer
        },
    );
    let place = places.clone().acquire_owned().await.unwrap();
    let server = HeadTimeout::new(server, HEADER_TIMEOUT, phase.clone(), Some(place));
    let ending = CancellationToken::new();
    let asked = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n";
    client.write_all(asked).await.unwrap();
    serve_http(server, phase, service, ending, &Notify::new()).await;
    // The upgraded connection is still open.
    assert_eq!(places.available_permits(), 0);
    drop(client);
    let _given_back = timeout(HEADER_TIMEOUT, places.acquire())
        .await
        .unwrap()
        .unwrap();
}
