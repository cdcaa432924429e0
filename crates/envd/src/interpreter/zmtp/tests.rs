use std::time::Duration;

use proptest::prelude::*;
use tokio::io::{DuplexStream, duplex};
use tokio::time::timeout;

use super::*;

/// A decoder of an open connection.
fn open(limit: usize) -> Decoder {
    let mut decoder = Decoder::default();
    (decoder.ready, decoder.limit) = (true, limit);
    decoder
}

fn encode(frames: &[Vec<u8>]) -> BytesMut {
    let mut bytes = BytesMut::new();
    for (place, frame) in frames.iter().enumerate() {
        let more = u8::from(place + 1 < frames.len());
        put_length(&mut bytes, more, frame.len());
        bytes.put_slice(frame);
    }
    bytes
}

#[tokio::test]
async fn two_peers_handshake_and_exchange_messages() {
    let (one, other) = duplex(64);
    let dealer = tokio::spawn(Socket::over(one, Role::Dealer));
    let mut router = Socket::over(other, Role::Dealer).await.unwrap();
    let mut dealer = dealer.await.unwrap().unwrap();
    let frames = [Bytes::from_static(b"a"), vec![7; 70_000].into()];
    let (sent, got) = tokio::join!(dealer.send(&frames), router.next());
    sent.unwrap();
    assert_eq!(got.unwrap().frames, frames);
    drop(dealer);
    assert!(matches!(router.next().await, Err(ConnectionError::Closed)));
}

/// Two peers after their handshake, with a pipe of this capacity.
async fn two_ends(between: usize) -> (Socket<DuplexStream>, Socket<DuplexStream>) {
    let (one, other) = duplex(between);
    let (one, other) = (
        Socket::over(one, Role::Dealer),
        Socket::over(other, Role::Dealer),
    );
    tokio::try_join!(one, other).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_large_message_waits_for_budget_and_a_short_one_does_not() {
    let (mut their, mut our) = two_ends(1 << 10).await;
    let budget = Budget::with_bytes(8 << 20);
    our.set_budget(&budget);
    let large = [Bytes::from_static(b"head"), vec![7; 3 << 20].into()];
    let sending = tokio::spawn(async move {
        for _ in 0..2 {
            their.send(&large[..1]).await.unwrap();
            their.send(&large).await.unwrap();
        }
        their
    });
    let taken = budget.reserve(4 << 20).await;
    our.next().await.unwrap();
    let wait = Duration::from_secs(1);
    assert!(timeout(wait, our.next()).await.is_err());
    drop(taken);
    let message = our.next().await.unwrap();
    assert_eq!((message.frames[1].len(), message.skipped), (3 << 20, 0));
    // The reservation lives as long as the message.
    our.next().await.unwrap();
    assert!(timeout(wait, our.next()).await.is_err());
    assert!(timeout(wait, budget.reserve(4 << 20)).await.is_err());
    // Skipping needs no budget.
    let passed = our.next_short().await.unwrap();
    assert_eq!((passed.frames[0].len(), passed.skipped), (4, 3 << 20));
    drop((message, sending.await.unwrap()));
    timeout(wait, budget.reserve(8 << 20)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_wait_for_budget_keeps_its_place() {
    let (mut their, mut our) = two_ends(4 << 20).await;
    let budget = Budget::with_bytes(8 << 20);
    our.set_budget(&budget);
    assert!(!our.is_partial());
    their.send(&[vec![7; 3 << 20].into()]).await.unwrap();
    let taken = budget.reserve(8 << 20).await;
    let wait = Duration::from_secs(1);
    assert!(timeout(wait, our.next()).await.is_err());
    assert!(our.is_partial());
    // A later request waits longer.
    let mut later = Box::pin(budget.reserve(8 << 20));
    assert!(timeout(wait, &mut later).await.is_err());
    assert!(timeout(wait, our.next()).await.is_err());
    drop(taken);
    let message = timeout(wait, our.next()).await.unwrap().unwrap();
    assert!(message.reservation.had_to_wait() && !our.is_partial());
    drop(message);
    timeout(wait, later).await.unwrap();

    // A message that is no longer wanted is not waited for.
    their.send(&[vec![7; 3 << 20].into()]).await.unwrap();
    let taken = budget.reserve(8 << 20).await;
    assert!(!taken.had_to_wait());
    assert!(timeout(wait, our.next()).await.is_err());
    assert_eq!(our.next_short().await.unwrap().skipped, 3 << 20);
    drop(taken);
    timeout(wait, budget.reserve(8 << 20)).await.unwrap();
}

#[tokio::test]
async fn the_buffer_of_a_large_message_is_freed() {
    let (one, other) = duplex(1 << 20);
    let dealer = tokio::spawn(Socket::over(one, Role::Dealer));
    let mut router = Socket::over(other, Role::Dealer).await.unwrap();
    let mut dealer = dealer.await.unwrap().unwrap();
    for size in [5 << 20, 8 << 20] {
        let frames = [Bytes::from(vec![7; size]), Bytes::from_static(b"end")];
        for with_another in [false, true] {
            let sending = async {
                dealer.send(&frames).await.unwrap();
                if with_another {
                    dealer.send(&frames[1..]).await.unwrap();
                }
            };
            let taking = async {
                assert_eq!(router.next().await.unwrap().frames, frames);
                if with_another {
                    router.next().await.unwrap();
                }
            };
            tokio::join!(sending, taking);
            // The buffer is freed, and the next one is small.
            router.reserve_buffer(MIN_READ);
            assert!(router.buffer.capacity() <= MAX_READ);
        }
    }
}

#[tokio::test]
async fn a_subscriber_subscribes_to_all_topics() {
    let (one, other) = duplex(1024);
    let subscriber = tokio::spawn(Socket::over(one, Role::Subscriber));
    let mut publisher = Socket::over(other, Role::Dealer).await.unwrap();
    assert_eq!(publisher.next().await.unwrap().frames, [&[1_u8][..]]);
    subscriber.await.unwrap().unwrap();
}

#[tokio::test]
async fn an_invalid_greeting_is_rejected() {
    for place in [0, 9, 10, 12] {
        let (one, mut other) = duplex(1024);
        let mut greeting = GREETING;
        greeting[place] = 0;
        other.write_all(&greeting).await.unwrap();
        let greeted = Socket::over(one, Role::Dealer).await;
        assert!(
            matches!(greeted.err(), Some(ConnectionError::Protocol(_))),
            "{place}"
        );
    }
}

#[test]
fn an_announced_frame_length_allocates_nothing() {
    let mut decoder = open(MAX_MESSAGE);
    let mut bytes = BytesMut::from(&[LONG, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff][..]);
    assert!(decoder.decode(&mut bytes).unwrap().is_none());
    assert!(bytes.capacity() < 1024);
    bytes.put_slice(&[0; 100]);
    assert!(decoder.decode(&mut bytes).unwrap().is_none());
    assert!(bytes.is_empty());
}

#[test]
fn endless_frames_and_commands_are_rejected() {
    let mut decoder = open(MAX_MESSAGE);
    let mut bytes = BytesMut::from(&[LONG, 1, 0, 0, 0, 0, 0, 0, 0][..]);
    assert!(decoder.decode(&mut bytes).is_err());

    let mut decoder = open(MAX_MESSAGE);
    let mut bytes = BytesMut::from(&[COMMAND | LONG, 0, 0, 0, 1, 0, 0, 0, 0][..]);
    assert!(decoder.decode(&mut bytes).is_err());

    let mut decoder = open(MAX_MESSAGE);
    let mut bytes = BytesMut::from(&[MORE, 0].repeat(decoder::MAX_FRAMES + 1)[..]);
    assert!(decoder.decode(&mut bytes).is_err());
}

#[test]
fn short_frames_of_an_oversized_message_are_kept() {
    let mut decoder = open(10);
    let mut bytes = encode(&[b"head".to_vec(), vec![0; 300], b"tail".to_vec()]);
    bytes.put_slice(&encode(&[b"next".to_vec()]));
    let long = decoder.decode(&mut bytes).unwrap().unwrap();
    assert_eq!(long.frames, [&b"head"[..], b"", b"tail"]);
    assert_eq!(long.skipped, 300);
    let next = decoder.decode(&mut bytes).unwrap().unwrap();
    assert_eq!((next.frames.len(), next.skipped), (1, 0));
}

proptest! {
    #[test]
    fn messages_are_decoded_at_any_chunk_size(
        messages in prop::collection::vec(
            prop::collection::vec(prop::collection::vec(any::<u8>(), 0..400), 1..5),
            0..5,
        ),
        step in 1_usize..100,
    ) {
        let mut wire = BytesMut::new();
        for message in &messages {
            wire.put_slice(&encode(message));
        }
        let mut decoder = open(MAX_MESSAGE);
        let (mut buffer, mut found) = (BytesMut::new(), Vec::new());
        for chunk in wire.chunks(step) {
            buffer.put_slice(chunk);
            while let Some(message) = decoder.decode(&mut buffer).unwrap() {
                found.push(message.frames);
            }
        }
        prop_assert_eq!(found, messages);
    }

    #[test]
    fn noise_does_not_panic_the_decoder(noise in prop::collection::vec(any::<u8>(), 0..500)) {
        let mut bytes = BytesMut::from(&noise[..]);
        let mut decoder = open(100);
        while let Ok(Some(_)) = decoder.decode(&mut bytes) {}
    }
}
