use std::sync::atomic::AtomicUsize;

use proptest::prelude::*;

use super::*;

/// A connection that counts the open ones.
#[derive(Debug)]
struct Fake {
    open: bool,
    alive: Arc<AtomicUsize>,
}

impl Keep for Fake {
    fn is_open(&self) -> bool {
        self.open
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Default)]
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn connect(&self) -> Fake {
        self.0.fetch_add(1, Ordering::Relaxed);
        Fake {
            open: true,
            alive: self.0.clone(),
        }
    }

    fn alive(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

fn holder(team: u8, sandbox: u8) -> Holder {
    Holder {
        team: TeamId::from_entropy([team; 16]),
        sandbox: format!("i{}", char::from(b'a' + sandbox)).parse().unwrap(),
        execution: ExecutionId::from_entropy([sandbox; 16]),
    }
}

fn line(port: u16) -> Line {
    Line { port, http2: false }
}

#[test]
fn one_sandbox_leaves_half_of_the_places_and_one_team_a_third() {
    let places: Places<Fake> = Places::new(90);
    let mut taken = Vec::new();
    while let Ok(place) = places.take(&holder(1, 1)) {
        taken.push(place);
    }
    assert_eq!(taken.len(), 45);
    assert_eq!(places.take(&holder(1, 1)).unwrap_err(), Full::Share);
    for sandbox in 2..20 {
        while let Ok(place) = places.take(&holder(1, sandbox)) {
            taken.push(place);
        }
    }
    assert_eq!(taken.len(), 60);
    assert_eq!(places.take(&holder(1, 25)).unwrap_err(), Full::Share);
    // Another team, and a released place, still work.
    for sandbox in 20..25 {
        taken.push(places.take(&holder(2, sandbox)).unwrap());
    }
    drop(taken);
    assert!(places.take(&holder(1, 1)).is_ok());
    assert_eq!(places.state.lock().busy, 0);
    assert!(places.state.lock().busy_of_sandbox.is_empty());
    assert!(places.state.lock().busy_of_team.is_empty());
}

#[test]
fn a_sandbox_with_thousands_of_ports_keeps_few_idle_connections() {
    let (places, counted) = (Places::new(1000), Counted::default());
    let owner = holder(1, 1);
    for port in 1..=2300 {
        let place = places.take(&owner).unwrap();
        places.keep(line(port), counted.connect(), place);
        assert!(counted.alive() <= IDLE_OF_SANDBOX);
    }
    // The newest remain.
    assert!(places.reuse(owner.execution, line(2300)).is_some());
    assert!(places.reuse(owner.execution, line(1)).is_none());
    places.forget(owner.execution);
    assert_eq!(counted.alive(), 0);
}

#[test]
fn the_least_recently_used_idle_connection_is_closed() {
    let (places, counted) = (Places::new(4), Counted::default());
    let (first, second) = (holder(1, 1), holder(2, 2));
    let place = places.take(&first).unwrap();
    places.keep(line(80), counted.connect(), place);
    let held: Vec<_> = (0..2).map(|n| places.take(&holder(3 + n, 3 + n))).collect();
    assert!(held.iter().all(Result::is_ok));
    assert_eq!(counted.alive(), 1);
    // Four places: two busy, one idle, one free. Then the idle one is closed.
    let third = places.take(&second).unwrap();
    assert_eq!(counted.alive(), 1);
    let _fourth = places.take(&holder(9, 9)).unwrap();
    assert_eq!(counted.alive(), 0);
    assert_eq!(places.take(&holder(10, 10)).unwrap_err(), Full::All);
    drop(third);
    assert!(places.take(&holder(10, 10)).is_ok());
}

#[test]
fn a_closed_connection_is_not_reused() {
    let (places, counted) = (Places::new(8), Counted::default());
    let owner = holder(1, 1);
    let mut closed = counted.connect();
    closed.open = false;
    places.keep(line(80), closed, places.take(&owner).unwrap());
    assert_eq!(counted.alive(), 0);
    assert!(places.reuse(owner.execution, line(80)).is_none());
    assert_eq!(places.state.lock().busy, 0);
}

#[tokio::test(start_paused = true)]
async fn connections_close_after_the_idle_timeout() {
    let (places, counted) = (Places::new(8), Counted::default());
    for sandbox in 1..3 {
        let place = places.take(&holder(1, sandbox)).unwrap();
        places.keep(line(80), counted.connect(), place);
        tokio::time::advance(IDLE_TIME / 2).await;
    }
    places.close_old();
    assert_eq!(counted.alive(), 1);
    tokio::time::advance(IDLE_TIME / 2).await;
    places.close_old();
    assert_eq!(counted.alive(), 0);
}

proptest! {
    /// In any sequence of operations, places are never exceeded and never lost.
    #[test]
    fn no_place_is_lost(steps in proptest::collection::vec((0..4u8, 0..3u8, 0..5u8), 0..300)) {
        let (places, counted) = (Places::new(12), Counted::default());
        let mut busy = Vec::new();
        for (what, team, sandbox) in steps {
            let owner = holder(team, team * 5 + sandbox);
            let port = line(u16::from(sandbox % 2));
            match what {
                0 => if let Ok(place) = places.take(&owner) {
                    busy.push((port, counted.connect(), place));
                },
                1 => if let Some((connection, place)) = places.reuse(owner.execution, port) {
                    busy.push((port, connection, place));
                },
                2 => if let Some((port, connection, place)) = busy.pop() {
                    places.keep(port, connection, place);
                },
                _ => if !busy.is_empty() {
                    busy.swap_remove(usize::from(sandbox) % busy.len());
                },
            }
            prop_assert_eq!(places.state.lock().busy, busy.len());
            prop_assert!(counted.alive() <= 12);
        }
        busy.clear();
        for run in 0..15 {
            places.forget(holder(0, run).execution);
        }
        prop_assert_eq!(counted.alive(), 0);
        prop_assert_eq!(places.state.lock().busy, 0);
    }
}
