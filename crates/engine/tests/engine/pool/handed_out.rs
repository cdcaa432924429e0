//! Whatever happens, and in whichever order, no member is handed out twice, and none is lost.

use std::cell::RefCell;

use proptest::prelude::*;
use shoal_engine::{Created, SandboxError};
use tokio::runtime::{Builder, Runtime};

use super::*;

/// What happens to a pool.
#[derive(Debug, Clone, Copy)]
enum Event {
    /// So many ask at once.
    Asked(usize),
    /// Whoever has asked is answered.
    Answered,
    /// It is filled again.
    Filled,
    /// A member dies.
    Died,
    /// It is to have another size.
    Sized(u32),
    /// The server is killed, whatever it is about, and another one started.
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

/// A pool that something happens to, and what was told of it.
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
                // The next one opens the store when the killed one's has been closed.
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

    /// Hears what was answered. What was asked of a server that was killed may have no answer.
    fn hear(&mut self) {
        for asking in std::mem::take(&mut self.asking) {
            let answer = match self.runtime.block_on(asking) {
                // The task of the sandbox was killed first.
                Ok(Err(CreateError::Sandbox(SandboxError::Interrupted(_)))) | Err(_) => continue,
                Ok(answer) => answer,
            };
            let id = answer.unwrap().record.id.clone();
            assert!(self.told.insert(id.clone()), "{id} was handed out twice");
        }
    }

    /// What has failed is tried again: each failure that is noted is waited out, whenever that is.
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

    /// At the end each sandbox is a member or belongs to the team, and the team has all it was told
    /// of. Members change until the pool is settled: one that died may not have been noticed yet.
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
