use super::*;

fn data(number: usize) -> Event {
    Event::Stdout(number.to_string().into())
}

async fn take(subscription: &mut Subscription) -> String {
    match subscription.next().await {
        Some(Event::Stdout(bytes)) => String::from_utf8(bytes.to_vec()).unwrap(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_single_subscriber_may_block_forever() {
    let channel = Arc::new(OutputChannel::default());
    let mut slow = channel.subscribe().unwrap();
    let publisher = tokio::spawn({
        let channel = Arc::clone(&channel);
        async move {
            for number in 0..QUEUE_LENGTH + 5 {
                channel.publish(data(number)).await;
            }
        }
    });
    tokio::time::sleep(SUBSCRIBER_TIMEOUT * 100).await;
    assert!(!publisher.is_finished());
    for number in 0..QUEUE_LENGTH + 5 {
        assert_eq!(take(&mut slow).await, number.to_string());
    }
    publisher.await.unwrap();
    assert!(!slow.was_disconnected());
}

#[tokio::test(start_paused = true)]
async fn a_stuck_subscriber_that_blocks_others_is_disconnected() {
    let channel = Arc::new(OutputChannel::default());
    let mut stuck = channel.subscribe().unwrap();
    let mut quick = channel.subscribe().unwrap();
    let total = QUEUE_LENGTH * 3;
    let publisher = tokio::spawn({
        let channel = Arc::clone(&channel);
        async move {
            for number in 0..total {
                channel.publish(data(number)).await;
            }
        }
    });
    let start = Instant::now();
    for number in 0..total {
        assert_eq!(take(&mut quick).await, number.to_string());
    }
    assert!(start.elapsed() >= SUBSCRIBER_TIMEOUT);
    publisher.await.unwrap();
    for number in 0..QUEUE_LENGTH {
        assert_eq!(take(&mut stuck).await, number.to_string());
    }
    assert!(stuck.next().await.is_none());
    assert!(stuck.was_disconnected());
    assert!(!quick.was_disconnected());
}

#[tokio::test(start_paused = true)]
async fn a_new_subscriber_does_not_wait_for_a_stuck_one() {
    let channel = Arc::new(OutputChannel::default());
    let stuck = channel.subscribe().unwrap();
    let publisher = tokio::spawn({
        let channel = Arc::clone(&channel);
        async move {
            for number in 0..=QUEUE_LENGTH {
                channel.publish(data(number)).await;
            }
            channel.publish(data(1000)).await;
        }
    });
    tokio::time::sleep(SUBSCRIBER_TIMEOUT * 3).await;
    let mut late = channel.subscribe().unwrap();
    assert_eq!(take(&mut late).await, "1000");
    publisher.await.unwrap();
    assert!(stuck.was_disconnected());
}

#[tokio::test(start_paused = true)]
async fn a_dropped_subscriber_releases_the_process() {
    let channel = Arc::new(OutputChannel::default());
    let stuck = channel.subscribe().unwrap();
    let publisher = tokio::spawn({
        let channel = Arc::clone(&channel);
        async move {
            for number in 0..=QUEUE_LENGTH {
                channel.publish(data(number)).await;
            }
        }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    drop(stuck);
    publisher.await.unwrap();
}

#[tokio::test]
async fn a_closed_channel_yields_nothing_and_rejects_subscribers() {
    let channel = Arc::new(OutputChannel::default());
    let mut subscription = channel.subscribe().unwrap();
    channel.close(Event::End(Arc::default())).await;
    assert!(matches!(subscription.next().await, Some(Event::End(_))));
    assert!(subscription.next().await.is_none());
    assert_eq!(channel.subscribe().err(), Some(SubscribeError::Ended));
}

#[tokio::test]
async fn the_number_of_subscribers_is_bounded() {
    let channel = Arc::new(OutputChannel::default());
    let subscribers: Vec<_> = (0..MAX_SUBSCRIBERS)
        .map(|_| channel.subscribe().unwrap())
        .collect();
    assert_eq!(channel.subscribe().err(), Some(SubscribeError::Full));
    drop(subscribers);
    assert!(channel.subscribe().is_ok());
}
