use connectrpc::ErrorCode;

use super::super::exit::Status;
use super::super::output_channel::OutputChannel;
use super::*;

/// The last event for a subscriber that looks a second after its deadline, when the process has ended like this.
async fn told(status: Status) -> Result<ProcessEvent, ConnectError> {
    let output = Arc::<OutputChannel>::default();
    let mut events = EventStream {
        first: None,
        subscription: output.subscribe().unwrap(),
        keepalive: Duration::from_secs(90),
        deadline: Some(Instant::now()),
        ended: false,
    };
    tokio::time::advance(Duration::from_secs(1)).await;
    output.close(Event::End(Arc::new(status.to_event()))).await;
    let event = events.next().await.unwrap();
    assert!(events.next().await.is_none());
    event
}

#[tokio::test(start_paused = true)]
async fn who_looks_late_is_told_of_the_deadline_that_killed_the_process() {
    let killed = told(Status::Killed(9)).await.err().unwrap();
    assert_eq!(killed.code, ErrorCode::DeadlineExceeded);
    // One that ended by itself has ended.
    assert!(told(Status::Exited(3)).await.is_ok());
}
