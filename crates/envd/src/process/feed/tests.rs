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
    let feed = Arc::new(Feed::default());
    let mut slow = feed.subscribe().unwrap();
    let publisher = tokio::spawn({
        let feed = Arc::clone(&feed);
        async move {
            for number in 0..QUEUE + 5 {
                feed.publish(data(number)).await;
            }
        }
    });
    tokio::time::sleep(PATIENCE * 100).await;
    assert!(!publisher.is_finished());
    for number in 0..QUEUE + 5 {
        assert_eq!(take(&mut slow).await, number.to_string());
    }
    publisher.await.unwrap();
    assert!(!slow.was_cut());
}

#[tokio::test(start_paused = true)]
async fn a_stuck_subscriber_that_blocks_others_is_disconnected() {
    let feed = Arc::new(Feed::default());
    let mut stuck = feed.subscribe().unwrap();
    let mut quick = feed.subscribe().unwrap();
    let total = QUEUE * 3;
    let publisher = tokio::spawn({
        let feed = Arc::clone(&feed);
        async move {
            for number in 0..total {
                feed.publish(data(number)).await;
            }
        }
    });
    let start = Instant::now();
    for number in 0..total {
        assert_eq!(take(&mut quick).await, number.to_string());
    }
    assert!(start.elapsed() >= PATIENCE);
    publisher.await.unwrap();
    for number in 0..QUEUE {
        assert_eq!(take(&mut stuck).await, number.to_string());
    }
    assert!(stuck.next().await.is_none());
    assert!(stuck.was_cut());
    assert!(!quick.was_cut());
}

#[tokio::test(start_paused = true)]
async fn a_new_subscriber_does_not_wait_for_a_stuck_one() {
    let feed = Arc::new(Feed::default());
    let stuck = feed.subscribe().unwrap();
    let publisher = tokio::spawn({
        let feed = Arc::clone(&feed);
        async move {
            for number in 0..=QUEUE {
                feed.publish(data(number)).await;
            }
            feed.publish(data(1000)).await;
        }
    });
    tokio::time::sleep(PATIENCE * 3).await;
    let mut late = feed.subscribe().unwrap();
    assert_eq!(take(&mut late).await, "1000");
    publisher.await.unwrap();
    assert!(stuck.was_cut());
}

#[tokio::test(start_paused = true)]
async fn a_dropped_subscriber_releases_the_process() {
    let feed = Arc::new(Feed::default());
    let stuck = feed.subscribe().unwrap();
    let publisher = tokio::spawn({
        let feed = Arc::clone(&feed);
        async move {
            for number in 0..=QUEUE {
                feed.publish(data(number)).await;
            }
        }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    drop(stuck);
    publisher.await.unwrap();
}

#[tokio::test]
async fn a_closed_channel_yields_nothing_and_rejects_subscribers() {
    let feed = Arc::new(Feed::default());
    let mut subscription = feed.subscribe().unwrap();
    feed.close(Event::End(Arc::default())).await;
    assert!(matches!(subscription.next().await, Some(Event::End(_))));
    assert!(subscription.next().await.is_none());
    assert_eq!(feed.subscribe().err(), Some(Refusal::Ended));
}

#[tokio::test]
async fn the_number_of_subscribers_is_bounded() {
    let feed = Arc::new(Feed::default());
    let seats: Vec<_> = (0..MAX_SUBSCRIBERS)
        .map(|_| feed.subscribe().unwrap())
        .collect();
    assert_eq!(feed.subscribe().err(), Some(Refusal::Full));
    drop(seats);
    assert!(feed.subscribe().is_ok());
}
