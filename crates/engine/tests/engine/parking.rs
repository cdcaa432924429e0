//! Idle sandboxes are parked, and their clients do not notice.

mod connections;
mod labels;
mod memory;

use shoal_core::driver::{Checkpointer, PausedNetwork, Start, StartKind};
use shoal_core::parking::ParkingSettings;
use shoal_core::ports::inside::SandboxCommand;
use shoal_core::resources::{Mib, MilliCpu, Usage};
use shoal_core::routes::NotResumed;
use shoal_core::sandbox::{OnTimeout, SandboxRecord};
use shoal_core::snapshot::Contents;
use shoal_core::state::{State, StateKind};
use shoal_engine::{NewSnapshot, Resize};
use shoal_protocol::activity::Activity;

use super::rest::left_in;
use super::*;

/// The idle time in these tests, and the time between two looks.
const AFTER: u64 = 60;
const LOOK: u64 = 5;

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn parks(config: &mut EngineConfig) {
    config.parking = Some(ParkingSettings {
        after: Some(seconds(AFTER)),
        backoff: 1,
        disk_room: Mib(1),
    });
    // Only parking reads the use of sandboxes here.
    config.sample_every = seconds(365 * 24 * 3600);
}

async fn parking() -> Fixture {
    fixture_with(parks).await
}

fn long() -> SandboxRequest {
    SandboxRequest {
        timeout: seconds(24 * 3600),
        ..new("base")
    }
}

impl Fixture {
    fn seen(&self, id: &SandboxId) -> Arc<SandboxRecord> {
        self.engine.authorize(&self.me, id).unwrap().1
    }

    fn state_now(&self, id: &SandboxId) -> StateKind {
        self.seen(id).state.kind()
    }

    async fn start_one(&self, request: SandboxRequest) -> SandboxId {
        let made = self.engine.create(&self.me, request, None).await;
        made.unwrap().record.id.clone()
    }

    /// Lets one interval between looks pass, and waits for the look.
    async fn look(&self, id: &SandboxId) {
        let before = self.driver.reads();
        self.clock.advance(seconds(LOOK));
        until("looked", || {
            self.driver.reads() > before || self.state_now(id) != StateKind::Running
        })
        .await;
    }

    async fn pass(&self, id: &SandboxId, time: u64) {
        for _ in 0..time / LOOK {
            self.look(id).await;
        }
    }

    /// Waits until an idle sandbox is parked. On a busy machine a look may see less than it could.
    async fn parked(&self, id: &SandboxId) {
        let end = std::time::Instant::now() + seconds(60);
        while self.state_now(id) != StateKind::Parked {
            assert!(std::time::Instant::now() < end, "never parked");
            match self.state_now(id) {
                StateKind::Running => self.look(id).await,
                _ => tokio::task::yield_now().await,
            }
        }
    }

    fn refuses(&self, change: impl FnOnce(&mut Refusals)) {
        let mut refusals = Refusals::default();
        change(&mut refusals);
        self.driver.refuse(refusals);
    }
}

#[tokio::test]
async fn an_idle_sandbox_is_parked_after_its_time_and_shows_as_running() {
    let fixture = parking().await;
    let id = fixture.start_one(long()).await;
    let before = fixture.seen(&id);
    let mut events = fixture.engine.subscribe();
    fixture.pass(&id, AFTER - LOOK).await;
    assert_eq!(fixture.state_now(&id), StateKind::Running, "too early");
    fixture.parked(&id).await;
    assert_eq!(events.recv().await.unwrap().kind, EventKind::Parked);
    let record = fixture.seen(&id);
    assert!(record.state.shows_running() && !record.state.is_running());
    assert_eq!(record.state.saved().unwrap().contents, Contents::Memory);
    let same = (record.deadline, record.started_at, record.report.clone());
    let was = (before.deadline, before.started_at, before.report.clone());
    assert_eq!(same, was);
    let listed = fixture.engine.list(&fixture.me, &ListFilter::all(9));
    assert_eq!(listed.sandboxes.len(), 1);
    assert_eq!(fixture.engine.usage(&fixture.me).counted, 1, "it counts");
    let routes = fixture.engine.routes();
    assert!(matches!(routes.lookup(&id), Lookup::Parked(_)));
    // A signed URL finds it by its token.
    assert_eq!(routes.find_by_token(&|_| true), Some(id));
}

#[tokio::test]
async fn every_use_wakes_a_parked_sandbox_and_its_life_goes_on() {
    let fixture = parking().await;
    let id = fixture.start_one(long()).await;
    let before = fixture.seen(&id);
    let (engine, me) = (&fixture.engine, &fixture.me);
    for access in [
        "port", "client", "connect", "snapshot", "fork", "cpu", "files",
    ] {
        fixture.parked(&id).await;
        let run = fixture.seen(&id).execution;
        let (permit, _) = engine.authorize(me, &id).unwrap();
        match access {
            "port" => {
                let route = engine.routes().wake(&id).await.unwrap();
                assert!(engine.routes().visit(&route).is_some());
            }
            "client" => {
                let client = engine.open_client(&permit, None).await.unwrap();
                client.run(SandboxCommand::shell("true")).await.unwrap();
            }
            "connect" => {
                let connected = engine.connect(&permit, seconds(9), true).await.unwrap();
                assert!(!connected.resumed, "to its users it ran");
            }
            "snapshot" => {
                let taken = engine.snapshot(me, &permit, NewSnapshot::default()).await;
                taken.unwrap();
            }
            "fork" => {
                let forks = engine.fork(me, &permit, 1, seconds(9)).await.unwrap();
                assert!(forks[0].is_ok());
            }
            "cpu" => {
                let resize = Resize {
                    cpu: Some(MilliCpu(1000)),
                    memory: None,
                };
                engine.resize(&permit, resize).await.unwrap();
            }
            _ => {
                engine.rotate_tokens(&permit).await.unwrap();
            }
        }
        let record = fixture.seen(&id);
        assert_eq!(record.state, State::Running, "{access}");
        assert_ne!(record.execution, run, "{access}");
        let life = (record.deadline, record.started_at, record.created_at);
        let was = (before.deadline, before.started_at, before.created_at);
        assert_eq!(life, was, "{access}");
        let report = record.report.as_ref().unwrap();
        assert_eq!(report.origin, StartKind::Cold, "as it was made");
    }
    assert!(!*fixture.guest.frozen.lock());
}

#[tokio::test]
async fn what_needs_no_program_inside_does_not_wake_it() {
    let fixture = parking().await;
    let id = fixture.start_one(long()).await;
    fixture.parked(&id).await;
    let engine = &fixture.engine;
    let (permit, _) = engine.authorize(&fixture.me, &id).unwrap();
    let starts = fixture.driver.starts().passed();
    let set = engine.set_timeout(&permit, seconds(7000)).await.unwrap();
    assert_eq!(set.deadline, fixture.engine.now() + seconds(7000));
    engine.refresh(&permit, seconds(8000)).await.unwrap();
    let closed = Egress {
        internet: Some(false),
        ..Egress::default()
    };
    let network = engine.set_network(&permit, closed.clone()).await.unwrap();
    network.unwrap();
    let _ = engine.metrics(&permit, None, None);
    // For its users it is running.
    let resumed = engine.resume(&permit, seconds(9), true).await.unwrap_err();
    let text = "cannot resume a sandbox that is running";
    assert_eq!(resumed.to_string(), text);
    assert_eq!(fixture.state_now(&id), StateKind::Parked);
    assert_eq!(fixture.driver.starts().passed(), starts);
    engine.routes().wake(&id).await.unwrap();
    assert_eq!(
        fixture.driver.egress(&id),
        Some(closed),
        "its next run has them"
    );
}

#[tokio::test]
async fn a_sandbox_that_is_used_or_works_is_not_parked() {
    let fixture = parking().await;
    let id = fixture.start_one(long()).await;
    let (permit, _) = fixture.engine.authorize(&fixture.me, &id).unwrap();
    let client = fixture.engine.open_client(&permit, None).await.unwrap();
    // The engine does not check it while a client is connected.
    fixture.clock.advance(seconds(AFTER * 10));
    drop(client);
    let stays = async |why: &str| {
        fixture.pass(&id, AFTER + 6 * LOOK).await;
        assert_eq!(fixture.state_now(&id), StateKind::Running, "{why}");
    };
    *fixture.guest.activity.lock() = Activity {
        commands: vec![vec!["sleep".to_owned(), "1000".to_owned()]],
        ..Activity::default()
    };
    stays("a command runs").await;
    *fixture.guest.activity.lock() = Activity {
        orphans: 1,
        ..Activity::default()
    };
    stays("a program runs in the background").await;
    *fixture.guest.activity.lock() = Activity {
        connections: 1,
        ..Activity::default()
    };
    stays("it is connected to the outside").await;
    *fixture.guest.activity.lock() = Activity::default();
    let mut usage = Usage::default();
    for _ in 0..(AFTER / LOOK + 6) {
        usage.cpu_nanos += 1_000_000_000;
        fixture.driver.set_usage(&id, usage);
        fixture.look(&id).await;
    }
    assert_eq!(fixture.state_now(&id), StateKind::Running, "it computes");
    fixture.driver.set_room(1 << 20);
    usage.memory_bytes = 1;
    fixture.driver.set_usage(&id, usage);
    stays("the disk has no room").await;
    fixture.driver.set_room(2 << 20);
    fixture.parked(&id).await;
}

#[tokio::test]
async fn a_request_that_comes_meanwhile_wakes_it_and_one_under_way_keeps_it() {
    let fixture = parking().await;
    let id = fixture.start_one(long()).await;
    let routes = fixture.engine.routes();
    let Lookup::Running(route) = routes.lookup(&id) else {
        panic!("it runs");
    };
    let visit = routes.visit(&route).unwrap();
    fixture.clock.advance(seconds(AFTER * 10));
    drop(visit);
    fixture.driver.saves().shut();
    for _ in 0..AFTER / LOOK + 6 {
        if fixture.state_now(&id) == StateKind::Running {
            fixture.look(&id).await;
        }
    }
    until("saving", || fixture.driver.saves().waiting() == 1).await;
    assert!(routes.visit(&route).is_none(), "it is about to be parked");
    let waking: Vec<_> = (0..200).map(|_| tokio::spawn(routes.wake(&id))).collect();
    tokio::task::yield_now().await;
    fixture.driver.saves().open();
    let mut runs = Vec::new();
    for woken in waking {
        runs.push(woken.await.unwrap().unwrap().execution);
    }
    assert!(runs.iter().all(|run| *run == runs[0]), "one run for all");
    assert!(routes.visit(&route).is_none(), "that route is an old one");
    assert_eq!(fixture.state_now(&id), StateKind::Running);
}

#[tokio::test]
async fn a_park_that_fails_leaves_it_running_and_a_wake_that_fails_leaves_it_parked() {
    let fixture = parking().await;
    let id = fixture.start_one(long()).await;
    fixture.refuses(|refuses| refuses.save = true);
    let saves = fixture.driver.saves().passed();
    for _ in 0..AFTER / LOOK + 6 {
        if fixture.driver.saves().passed() == saves {
            fixture.look(&id).await;
        }
    }
    until("saving", || fixture.driver.saves().passed() > saves).await;
    until("runs on", || {
        fixture.state_now(&id) == StateKind::Running && !*fixture.guest.frozen.lock()
    })
    .await;
    assert_eq!(fixture.driver.saves().passed(), saves + 1);
    let routes = fixture.engine.routes();
    assert!(matches!(routes.lookup(&id), Lookup::Running(_)));
    fixture.refuses(|_| {});
    fixture.parked(&id).await;

    fixture.refuses(|refuses| refuses.resume = true);
    let woken = routes.wake(&id).await.unwrap_err();
    assert!(matches!(woken, NotResumed::Failed(_)), "{woken:?}");
    let (permit, _) = fixture.engine.authorize(&fixture.me, &id).unwrap();
    let connected = fixture.engine.connect(&permit, seconds(9), true).await;
    let error = connected.unwrap_err();
    assert!(matches!(error, SandboxError::NotWoken(_)), "{error}");
    assert_eq!(fixture.state_now(&id), StateKind::Parked);
    fixture.refuses(|_| {});
    routes.wake(&id).await.unwrap();
    assert_eq!(fixture.state_now(&id), StateKind::Running);
}

#[tokio::test]
async fn the_deadline_of_a_parked_sandbox_goes_on() {
    let fixture = parking().await;
    let mut ids = Vec::new();
    for (on_timeout, keep_memory) in [
        (OnTimeout::Kill, true),
        (OnTimeout::Pause, true),
        (OnTimeout::Pause, false),
    ] {
        let request = SandboxRequest {
            on_timeout,
            keep_memory,
            timeout: seconds(3600),
            ..new("base")
        };
        ids.push(fixture.start_one(request).await);
    }
    for id in &ids {
        fixture.parked(id).await;
    }
    let starts = fixture.driver.starts().passed();
    fixture.clock.advance(seconds(3600));
    fixture.ended(&ids[0]).await;
    until("paused", || fixture.state_now(&ids[1]) == StateKind::Paused).await;
    until("paused", || fixture.state_now(&ids[2]) == StateKind::Paused).await;
    let contents = |id| fixture.seen(id).state.saved().unwrap().contents;
    assert_eq!(contents(&ids[1]), Contents::Memory);
    assert_eq!(contents(&ids[2]), Contents::Filesystem);
    // Only files that are still in memory need the programs.
    assert_eq!(fixture.driver.starts().passed(), starts + 1);
    let (permit, _) = fixture.engine.authorize(&fixture.me, &ids[1]).unwrap();
    let resumed = fixture.engine.resume(&permit, seconds(60), true).await;
    resumed.unwrap();
    let start = fixture.driver.start(&ids[1]);
    let expected = Start::Paused {
        memory: true,
        network: PausedNetwork::Removed,
    };
    assert_eq!(start, Some(expected));
}

#[tokio::test]
async fn a_parked_sandbox_is_paused_and_killed_without_a_start() {
    let fixture = parking().await;
    let (one, two) = (
        fixture.start_one(long()).await,
        fixture.start_one(long()).await,
    );
    fixture.parked(&one).await;
    fixture.parked(&two).await;
    let starts = fixture.driver.starts().passed();
    let (permit, _) = fixture.engine.authorize(&fixture.me, &one).unwrap();
    fixture.engine.pause(&permit, None, true).await.unwrap();
    assert_eq!(fixture.state_now(&one), StateKind::Paused);
    let (permit, _) = fixture.engine.authorize(&fixture.me, &two).unwrap();
    fixture.engine.kill(&permit).await.unwrap();
    assert!(!fixture.lives(&two));
    assert_eq!(fixture.driver.starts().passed(), starts);
}

#[tokio::test]
async fn a_restart_resolves_a_park_and_a_wake_at_every_point() {
    let fixture = fixture().await;
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.push(fixture.start_one(long()).await);
    }
    let driver = &fixture.driver;
    let mut saved = None;
    for id in [&ids[1], &ids[2], &ids[3]] {
        saved = Some(driver.pause(id, Contents::Memory).await.unwrap());
    }
    let saved = saved.unwrap();
    for (id, state) in [
        // Killed before it was saved, and after.
        (&ids[0], State::Parking),
        (&ids[1], State::Parking),
        (&ids[2], State::Waking(saved.clone())),
        (&ids[3], State::Parked(saved.clone())),
        // Its checkpoint is gone.
        (&ids[4], State::Parked(saved)),
    ] {
        left_in(&fixture, id, state).await;
    }
    let engine = engine_on(fixture.directory.path(), driver, &fixture.clock, parks).await;
    let kind = |id: &SandboxId| {
        let found = engine.authorize(&fixture.me, id).ok();
        found.map(|(_, record)| record.state.kind())
    };
    for (id, expected) in [
        (&ids[0], Some(StateKind::Running)),
        (&ids[1], Some(StateKind::Parked)),
        (&ids[2], Some(StateKind::Parked)),
        (&ids[3], Some(StateKind::Parked)),
        (&ids[4], None),
    ] {
        until("resolved", || kind(id) == expected).await;
    }
    for id in [&ids[1], &ids[2], &ids[3]] {
        engine.routes().wake(id).await.unwrap();
        assert_eq!(kind(id), Some(StateKind::Running));
    }
}

#[tokio::test]
async fn a_park_that_panics_leaves_a_sandbox_that_can_be_used() {
    let fixture = parking().await;
    let id = fixture.start_one(long()).await;
    fixture.refuses(|refuses| refuses.panic = true);
    let saves = fixture.driver.saves().passed();
    for _ in 0..AFTER / LOOK + 6 {
        if fixture.driver.saves().passed() == saves {
            fixture.look(&id).await;
        }
    }
    until("saving", || fixture.driver.saves().passed() > saves).await;
    until("recovered", || fixture.state_now(&id) == StateKind::Running).await;
    fixture.refuses(|_| {});
    let (permit, _) = fixture.engine.authorize(&fixture.me, &id).unwrap();
    let client = fixture.engine.open_client(&permit, None).await.unwrap();
    drop(client);
    fixture.parked(&id).await;
}

#[tokio::test]
async fn nothing_is_parked_when_it_is_off() {
    let fixture = fixture_with(|config| {
        parks(config);
        config.parking = None;
    })
    .await;
    let id = fixture.start_one(long()).await;
    fixture.clock.advance(seconds(AFTER * 10));
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    assert_eq!(fixture.state_now(&id), StateKind::Running);
    assert_eq!(fixture.driver.saves().passed(), 0);
}
