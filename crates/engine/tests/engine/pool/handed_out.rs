//! A property of pools: after any sequence of events, no member was handed out twice, and none is lost.

use std::cell::RefCell;

use proptest::prelude::*;
use shoal_engine::{Created, SandboxError};
use tokio::runtime::{Builder, Runtime};

use super::*;

/// An event of a pool.
#[derive(Debug, Clone, Copy)]
enum Event {
    /// This many creates arrive at once.
    Asked(usize),
    /// All creates under way are answered.
    Answered,
    /// The pool is filled again.
    Filled,
    /// A member dies.
    Died,
    /// The catalogue gives the pool another size.
    Sized(u32),
    /// The server is killed at any point of its work, and another one starts.
    Crashed,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (1usize..6).prop_map(Event::Asked),
        2 => Just(Event::Answered),
        2 => Just(Event::Filled),
        1 => Just(Event::Died),
        1 => (0u32..5).prop_map(Event::Sized),
        1 => Just(Event::Crashed),
    ]
}

/// A pool during a sequence of events, and the sandboxes that creates have returned.
struct Course {
    runtime: Runtime,
    fixture: Pooled,
    size: u32,
    asking: Vec<JoinHandle<Result<Created, CreateError>>>,
    told: BTreeSet<SandboxId>,
}

fn runtime() -> Runtime {
    let threads = Builder::new_multi_thread().worker_threads(2).build();
    threads.unwrap()
}

impl Course {
    fn begin() -> Self {
        let (runtime, size) = (runtime(), 3);
        let fixture = runtime.block_on(Pooled::filled(size));
        Self {
            runtime,
            fixture,
            size,
            asking: Vec::new(),
            told: BTreeSet::new(),
        }
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Asked(many) => {
                for _ in 0..many {
                    let (engine, me) = (self.fixture.engine.clone(), self.fixture.me.clone());
                    let asks = async move { engine.create(&me, asked(), None).await };
                    self.asking.push(self.runtime.spawn(asks));
                }
            }
            Event::Answered => self.hear(),
            Event::Filled => self.fill(),
            Event::Died => {
                if let Some(member) = self.fixture.members().first() {
                    let driver = &self.fixture.driver;
                    self.runtime
                        .block_on(driver.fail(member, FailReason::Exited));
                }
            }
            Event::Sized(size) => {
                self.size = size;
                let entries = json!([warm(size)]);
                self.runtime.block_on(self.fixture.put(entries));
            }
            Event::Crashed => {
                let killed = std::mem::replace(&mut self.runtime, runtime());
                killed.shutdown_timeout(Duration::from_secs(20));
                self.hear();
                // The next server can open the store only after the killed one has closed it.
                let elsewhere = tempfile::tempdir().unwrap();
                let idle = test_util::open(test_util::parts(elsewhere.path()));
                self.fixture.engine = self.runtime.block_on(idle);
                let log = self.fixture.directory.path().join("shoal.db-wal");
                let closed = until("closed", || !log.exists());
                self.runtime.block_on(closed);
                self.runtime.block_on(self.fixture.crash());
            }
        }
    }

    /// Collects the answers of all creates under way. Creates of a killed server may have none.
    fn hear(&mut self) {
        for asking in std::mem::take(&mut self.asking) {
            let answer = match self.runtime.block_on(asking) {
                // The sandbox's task was killed before the create.
                Ok(Err(CreateError::Sandbox(SandboxError::Interrupted(_)))) | Err(_) => continue,
                Ok(answer) => answer,
            };
            let id = answer.unwrap().record.id.clone();
            assert!(self.told.insert(id.clone()), "{id} was handed out twice");
        }
    }

    /// Waits until the pool is full. The pool retries failed starts after a delay, so the clock skips the delay of
    /// each recorded failure.
    fn fill(&self) {
        let fixture = &self.fixture;
        fixture.clock.advance(Duration::from_secs(2));
        let size = usize::try_from(self.size).unwrap();
        let waited_out = RefCell::new(None);
        let full = |fixture: &Pooled| {
            let view = fixture.view();
            let fault = view.fault.map(|fault| fault.at);
            if fault.is_some() && *waited_out.borrow() != fault {
                *waited_out.borrow_mut() = fault;
                fixture.clock.advance(Duration::from_secs(10));
            }
            (view.ready, view.starting) == (size, 0)
        };
        self.runtime.block_on(fixture.until("full", full));
    }

    /// Checks that each sandbox is a member or belongs to the team, and that the team has every sandbox that was
    /// returned. The check is repeated, because the pool may not have noticed a dead member yet.
    fn ends(mut self) {
        self.hear();
        self.fill();
        let fixture = &self.fixture;
        let cleared = |fixture: &Pooled| {
            let owned = fixture.engine.list(&fixture.me, &ListFilter::all(10_000));
            let owned: BTreeSet<SandboxId> = owned
                .sandboxes
                .iter()
                .map(|record| record.id.clone())
                .collect();
            let members: BTreeSet<SandboxId> = fixture.members().into_iter().collect();
            assert!(
                self.told.is_subset(&owned),
                "a sandbox that was answered is lost"
            );
            assert!(owned.is_disjoint(&members), "a member belongs to a team");
            let all: BTreeSet<SandboxId> = owned.union(&members).cloned().collect();
            fixture
                .driver
                .sandboxes()
                .into_iter()
                .collect::<BTreeSet<_>>()
                == all
        };
        self.runtime.block_on(fixture.until("cleared", cleared));
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 16,
        max_shrink_iters: 30,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn no_member_is_handed_out_twice_or_lost(events in prop::collection::vec(event(), 1..14)) {
        let mut course = Course::begin();
        for event in events {
            course.happens(event);
        }
        course.ends();
    }
}
