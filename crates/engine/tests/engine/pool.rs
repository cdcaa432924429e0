//! Pools: members are made ahead of time, handed out once, and replaced.

mod counted;
mod failures;
mod handed_out;
mod parked;
mod standing;
mod still;

use std::collections::BTreeSet;
use std::time::Instant;

use serde_json::{Value, json};
use shoal_core::clock::Clock;
use shoal_core::driver::{Checkpointer, Driver, Start, StartKind};
use shoal_core::network::{RequestedEgress, RequestedNetwork};
use shoal_core::ports::inside::{CommandExit, CommandOutput};
use shoal_core::resources::{Mib, MilliCpu};
use shoal_core::sandbox::{Purpose, SandboxRecord};
use shoal_core::template::TemplateKey;
use shoal_engine::test_util::FakeRegistry;
use shoal_engine::{InitSpec, PoolView};
use tokio::task::JoinHandle;

use super::*;

struct Pooled {
    directory: tempfile::TempDir,
    driver: FakeDriver,
    clock: Arc<ManualClock>,
    images: FakeRegistry,
    guest: FakeGuest,
    engine: Engine,
    running: JoinHandle<()>,
    me: Principal,
}

async fn started(
    directory: &Path,
    driver: &FakeDriver,
    clock: &Arc<ManualClock>,
    images: &FakeRegistry,
    guest: &FakeGuest,
    change: impl FnOnce(&mut EngineConfig),
) -> (Engine, JoinHandle<()>) {
    let many = |config: &mut EngineConfig| {
        config.limits.sandboxes = 10_000;
        config.limits.sandboxes_per_team = 10_000;
        config.limits.memory_per_team = Some(Mib(10_000 << 10));
        change(config);
    };
    let images = Arc::new(images.clone());
    let engine = engine_over(directory, driver, clock, guest, images, many).await;
    let tasks = engine.clone();
    let running = tokio::spawn(async move {
        tasks.run().await;
    });
    (engine, running)
}

fn warm(size: u32) -> Value {
    json!({
        "name": "warm", "image": "registry.test/warm:1", "description": "d",
        "resources": {"cpuLimit": "2", "memoryLimit": "1Gi"},
        "pool": {
            "size": size, "warmupCmd": "warm,up", "startupCmd": "start,me",
            "resources": {"cpuLimit": "0.2", "memoryLimit": "100Mi"}
        }
    })
}

impl Pooled {
    async fn new() -> Self {
        Self::where_config(|_| {}).await
    }

    /// The same with other settings.
    async fn where_config(change: impl FnOnce(&mut EngineConfig)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (driver, clock) = (FakeDriver::new(), ManualClock::new());
        let (images, guest) = (FakeRegistry::default(), FakeGuest::default());
        let (engine, running) =
            started(directory.path(), &driver, &clock, &images, &guest, change).await;
        let me = principal(&engine, "mine").await;
        Self {
            directory,
            driver,
            clock,
            images,
            guest,
            engine,
            running,
            me,
        }
    }

    /// The server is killed, and another one started in its place.
    async fn crash(&mut self) {
        self.running.abort();
        let (engine, running) = started(
            self.directory.path(),
            &self.driver,
            &self.clock,
            &self.images,
            &self.guest,
            |_| {},
        )
        .await;
        (self.engine, self.running) = (engine, running);
    }

    async fn put(&self, entries: Value) {
        let json = entries.to_string();
        self.engine.replace_catalogue(&json, None).await.unwrap();
    }

    async fn filled(size: u32) -> Self {
        let fixture = Self::new().await;
        fixture.put(json!([warm(size)])).await;
        fixture.full(size).await;
        fixture
    }

    /// The same where nothing can be saved, so that each member is warmed up.
    async fn each_warmed_up(size: u32) -> Self {
        let fixture = Self::new().await;
        fixture.driver.refuse(Refusals {
            save: true,
            ..Refusals::default()
        });
        fixture.put(json!([warm(size)])).await;
        fixture.full(size).await;
        fixture
    }

    fn view(&self) -> PoolView {
        self.engine.pools().remove(0)
    }

    async fn until(&self, what: &str, there: impl Fn(&Self) -> bool) {
        let end = Instant::now() + Duration::from_secs(60);
        while !there(self) {
            assert!(Instant::now() < end, "never {what}: {:?}", self.view());
            tokio::task::yield_now().await;
        }
    }

    async fn full(&self, size: u32) {
        let size = usize::try_from(size).unwrap();
        let full = |fixture: &Self| {
            let view = fixture.view();
            (view.ready, view.starting) == (size, 0)
        };
        self.until("full", full).await;
    }

    fn members(&self) -> Vec<SandboxId> {
        let members = self.engine.pool_members("warm").unwrap();
        members.into_iter().map(|member| member.id).collect()
    }

    async fn create(&self) -> Arc<SandboxRecord> {
        self.asked(asked()).await
    }

    async fn asked(&self, new: SandboxRequest) -> Arc<SandboxRecord> {
        let created = self.engine.create(&self.me, new, None).await;
        created.unwrap().record
    }

    fn fails(&self, command: &str) {
        let end = CommandOutput::Exit(CommandExit {
            code: 3,
            error: None,
        });
        let said = CommandOutput::Stderr("no such thing\n".into());
        let answers = &mut self.guest.answers.lock();
        answers.insert(command.to_owned(), vec![said, end]);
    }
}

fn asked() -> SandboxRequest {
    SandboxRequest::of("warm".parse::<TemplateKey>().unwrap())
}

fn origin(record: &SandboxRecord) -> StartKind {
    record.report.as_ref().unwrap().origin
}

#[tokio::test]
async fn a_claimed_member_is_what_was_asked_for() {
    let fixture = Pooled::filled(2).await;
    let before = fixture.members();
    let limits = fixture.driver.resources(&before[0]).unwrap();
    assert_eq!((limits.cpu, limits.memory), (MilliCpu(200), Mib(100)));
    // No user sees or reaches it, and no deadline ends it.
    assert!(!before.iter().any(|id| {
        matches!(fixture.engine.routes().lookup(id), Lookup::Running(_))
            || fixture.engine.authorize(&fixture.me, id).is_ok()
    }));
    let listed = fixture
        .engine
        .list(&fixture.me, &ListFilter::all(10))
        .sandboxes;
    assert!(listed.is_empty());
    fixture.clock.advance(Duration::from_secs(1_000_000));
    let mut new = asked();
    new.timeout = Duration::from_secs(60);
    new.env.insert("OWN".to_owned(), "1".to_owned());
    new.metadata.insert("own".to_owned(), "label".to_owned());
    new.network = RequestedNetwork {
        egress: RequestedEgress {
            internet: Some(false),
            ..RequestedEgress::default()
        },
        ..RequestedNetwork::default()
    };
    let made = fixture.asked(new).await;
    assert_eq!(made.id, before[0], "the oldest");
    assert_eq!(origin(&made), StartKind::Pooled);
    assert_eq!(made.team, fixture.me.team);
    assert_eq!(made.spec.purpose, Purpose::Use);
    assert_eq!(made.spec.metadata["sbx-pool"], "false");
    assert_eq!(made.spec.metadata["sbx-user"], "mine");
    assert_eq!(made.spec.metadata["own"], "label");
    assert_eq!(made.spec.env["OWN"], "1");
    assert_eq!(made.deadline, fixture.clock.now() + Duration::from_secs(60));
    let limits = fixture.driver.resources(&made.id).unwrap();
    assert_eq!((limits.cpu, limits.memory), (MilliCpu(2000), Mib(1024)));
    assert_eq!(
        fixture.driver.egress(&made.id).unwrap().internet,
        Some(false)
    );
    let commands = fixture.guest.commands.lock().clone();
    let of_program = |program: &str| {
        let found = commands
            .iter()
            .filter(|(_, command)| command.program == program);
        found.cloned().collect::<Vec<_>>()
    };
    assert!((1..=2).contains(&of_program("warm").len()));
    let startup = of_program("start");
    assert_eq!(startup.len(), 1);
    let token = fixture.engine.envd_access_token(&made).unwrap();
    let used = startup[0].0.token.as_ref().unwrap();
    assert!(token.matches(used.reveal()));
    assert!(matches!(
        fixture.engine.routes().lookup(&made.id),
        Lookup::Running(_)
    ));
    let listed = fixture.engine.list(&fixture.me, &ListFilter::all(10));
    assert_eq!(listed.sandboxes.len(), 1);
    fixture.full(2).await;
    let view = fixture.view();
    assert_eq!((view.claimed, view.misses, view.fault), (1, 0, None));
    // From now on it has an end like any other.
    fixture.clock.advance(Duration::from_secs(61));
    let gone = |fixture: &Pooled| !fixture.driver.sandboxes().contains(&made.id);
    fixture.until("ended", gone).await;
}

#[tokio::test]
async fn rules_that_let_the_same_through_are_not_put_in_force_again() {
    let fixture = Pooled::filled(1).await;
    let mut new = asked();
    new.network.said_open = true;
    let made = fixture.asked(new).await;
    assert_eq!(origin(&made), StartKind::Pooled);
    assert_eq!(made.spec.network.egress.internet, Some(true));
    // The driver was not asked: it has what the member began with.
    assert_eq!(fixture.driver.egress(&made.id).unwrap().internet, None);
}

#[tokio::test]
async fn a_request_that_no_member_fits_gets_a_new_sandbox_as_with_an_empty_pool() {
    let fixture = Pooled::each_warmed_up(1).await;
    let mut other = asked();
    other.env.insert("FROM".to_owned(), "request".to_owned());
    let made = fixture.asked(other).await;
    assert_eq!(origin(&made), StartKind::Cold);
    assert!(!made.spec.metadata.contains_key("sbx-pool"));
    assert_eq!(fixture.view().misses, 0);
    // Variables of the image are no other environment.
    let mut same = asked();
    same.env.insert("FROM".to_owned(), "image".to_owned());
    fixture.guest.endless.lock().insert("warm up".to_owned());
    assert_eq!(origin(&*fixture.asked(same).await), StartKind::Pooled);
    let cold = fixture.create().await;
    assert_eq!(origin(&cold), StartKind::Cold);
    assert_eq!(fixture.view().misses, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_member_is_never_handed_out_twice() {
    let fixture = Pooled::filled(40).await;
    let me = fixture.me.clone();
    let creates = (0..1_000).map(|_| {
        let (engine, me) = (fixture.engine.clone(), me.clone());
        tokio::spawn(async move { engine.create(&me, asked(), None).await })
    });
    let creates: Vec<_> = creates.collect();
    let (mut ids, mut pooled) = (BTreeSet::new(), 0u64);
    for create in creates {
        let record = create.await.unwrap().unwrap().record;
        pooled += u64::from(origin(&record) == StartKind::Pooled);
        assert_eq!(record.team, fixture.me.team);
        assert!(
            ids.insert(record.id.clone()),
            "{} was handed out twice",
            record.id
        );
    }
    assert!(pooled >= 40, "{pooled}");
    let view = fixture.view();
    assert_eq!((view.claimed, view.misses), (pooled, 1_000 - pooled));
    fixture.full(40).await;
    assert_eq!(fixture.driver.sandboxes().len(), 1_040);
}

#[tokio::test]
async fn a_member_that_cannot_be_handed_out_is_killed_and_the_request_gets_another() {
    let fixture = Pooled::filled(2).await;
    let before = fixture.members();
    fixture.fails("start me");
    let made = fixture.create().await;
    assert_eq!(origin(&made), StartKind::Cold);
    assert!(!before.contains(&made.id));
    let fault = fixture.view().fault.unwrap().message;
    assert!(
        fault.contains("`startupCmd` failed with exit status 3: no such thing"),
        "{fault}"
    );
    let gone = |fixture: &Pooled| !fixture.driver.sandboxes().contains(&before[0]);
    fixture.until("ended", gone).await;

    fixture.guest.answers.lock().clear();
    fixture.full(2).await;
    // One that has stopped is not met: it left the pool.
    let dead = fixture.members()[0].clone();
    fixture.driver.fail(&dead, FailReason::Exited).await;
    fixture
        .until("gone", |fixture| !fixture.members().contains(&dead))
        .await;
    assert_eq!(origin(&*fixture.create().await), StartKind::Pooled);
    fixture.full(2).await;

    fixture.driver.refuse(Refusals {
        resize: true,
        ..Refusals::default()
    });
    assert_eq!(origin(&*fixture.create().await), StartKind::Cold);
}

#[tokio::test]
async fn a_startup_that_never_ends_costs_one_member_and_its_time() {
    let fixture = Pooled::filled(2).await;
    fixture.guest.endless.lock().insert("start me".to_owned());
    let (engine, me) = (fixture.engine.clone(), fixture.me.clone());
    let asks = tokio::spawn(async move { engine.create(&me, asked(), None).await });
    let started = |fixture: &Pooled| {
        let commands = fixture.guest.commands.lock();
        commands
            .iter()
            .any(|(_, command)| command.program == "start")
    };
    fixture.until("started", started).await;
    fixture.clock.advance(Duration::from_secs(31));
    let made = asks.await.unwrap().unwrap().record;
    assert_eq!(origin(&made), StartKind::Cold);
    let fault = fixture.view().fault.unwrap().message;
    assert!(fault.contains("did not end within 30 s"), "{fault}");
    fixture.full(2).await;
    assert_eq!(fixture.driver.sandboxes().len(), 3);
}

/// Waits for a fault of the pool, and that nothing of the member is left.
async fn faulty(fixture: &Pooled) -> String {
    fixture
        .until("faulty", |fixture| fixture.view().fault.is_some())
        .await;
    fixture
        .until("cleared", |fixture| fixture.driver.sandboxes().is_empty())
        .await;
    fixture.view().fault.unwrap().message
}

#[tokio::test]
async fn a_warm_up_that_fails_leaves_nothing_and_is_tried_again_later() {
    let fixture = Pooled::new().await;
    fixture.fails("warm up");
    fixture.put(json!([warm(1)])).await;
    let fault = faulty(&fixture).await;
    assert!(
        fault.contains("`warmupCmd` failed with exit status 3: no such thing"),
        "{fault}"
    );
    assert_eq!((fixture.view().starting, fixture.view().ready), (0, 0));
    assert_eq!(origin(&*fixture.create().await), StartKind::Cold);
    fixture.guest.answers.lock().clear();
    fixture.clock.advance(Duration::from_secs(1));
    fixture.full(1).await;
    assert_eq!(fixture.view().fault, None);
}

#[tokio::test]
async fn a_warm_up_that_never_ends_is_ended_unless_a_port_says_that_it_is_ready() {
    let fixture = Pooled::new().await;
    fixture.guest.endless.lock().insert("warm up".to_owned());
    fixture.put(json!([warm(1)])).await;
    let warming = |fixture: &Pooled| !fixture.guest.commands.lock().is_empty();
    fixture.until("warming up", warming).await;
    fixture.clock.advance(Duration::from_secs(121));
    let fault = faulty(&fixture).await;
    assert!(
        fault.contains("`warmupCmd` did not end within 120 s"),
        "{fault}"
    );
    let mut entry = warm(1);
    entry["pool"]["probePort"] = json!(8888);
    fixture.put(json!([entry])).await;
    fixture.clock.advance(Duration::from_secs(60));
    fixture.full(1).await;
}

#[tokio::test]
async fn a_port_that_never_opens_is_told_and_one_that_opens_late_is_waited_for() {
    let fixture = Pooled::new().await;
    fixture.guest.closed.lock().insert(8888);
    let mut entry = warm(1);
    entry["pool"]["probePort"] = json!(8888);
    fixture.put(json!([entry])).await;
    let warming = |fixture: &Pooled| !fixture.guest.commands.lock().is_empty();
    fixture.until("warming up", warming).await;
    fixture.clock.advance(Duration::from_secs(121));
    let fault = faulty(&fixture).await;
    assert!(fault.contains("nothing answers on port 8888"), "{fault}");
    fixture.clock.advance(Duration::from_secs(1));
    fixture
        .until("tried again", |fixture| fixture.view().starting == 1)
        .await;
    fixture.guest.closed.lock().clear();
    // Each look at the port is a moment later.
    let full = |fixture: &Pooled| {
        fixture.clock.advance(Duration::from_millis(100));
        fixture.view().ready == 1
    };
    fixture.until("full", full).await;
}

#[tokio::test]
async fn a_pool_shrinks_with_its_size_and_goes_with_its_entry() {
    let fixture = Pooled::filled(6).await;
    let before = fixture.members();
    fixture.put(json!([warm(2)])).await;
    fixture.full(2).await;
    // Nothing was made anew for that, and the oldest stay.
    assert_eq!(fixture.members(), before[..2]);
    fixture.put(json!([])).await;
    fixture
        .until("empty", |fixture| fixture.driver.sandboxes().is_empty())
        .await;
    assert!(fixture.engine.pools().is_empty());
    assert!(fixture.engine.pool_members("warm").is_none());
}

#[tokio::test]
async fn a_changed_entry_replaces_its_members_and_no_outdated_one_is_handed_out() {
    let fixture = Pooled::filled(5).await;
    let before = fixture.members();
    let mut entry = warm(5);
    entry["env"] = json!({"NEW": "1"});
    fixture.put(json!([entry])).await;
    let made = fixture.create().await;
    assert_eq!(made.spec.env["NEW"], "1");
    assert!(!before.contains(&made.id));
    let replaced = |fixture: &Pooled| {
        let now = fixture.members();
        now.len() == 5 && !now.iter().any(|id| before.contains(id))
    };
    fixture.until("replaced", replaced).await;
    fixture.full(5).await;
    fixture
        .until("cleared", |fixture| fixture.driver.sandboxes().len() == 6)
        .await;
}

#[tokio::test]
async fn members_that_an_operator_removes_are_replaced() {
    let fixture = Pooled::filled(3).await;
    let before = fixture.members();
    let engine = fixture.engine.clone();
    fixture.clock.advance(Duration::from_secs(1));
    assert_eq!(engine.remove_from_pool(before[0].as_str()), Some(1));
    fixture.full(3).await;
    assert_eq!(fixture.members()[..2], before[1..]);
    assert_eq!(engine.remove_from_pool("warm"), Some(3));
    fixture.full(3).await;
    assert!(!fixture.members().iter().any(|id| before.contains(id)));
    for unknown in ["nothing", "ia", before[0].as_str(), "-"] {
        assert_eq!(engine.remove_from_pool(unknown), None, "{unknown}");
    }
    // Claimed members cannot be removed here.
    let mine = fixture.create().await;
    assert_eq!(engine.remove_from_pool(mine.id.as_str()), None);
}

#[tokio::test]
async fn ready_members_outlive_the_server_and_half_made_ones_do_not() {
    let mut fixture = Pooled::each_warmed_up(2).await;
    let before = fixture.members();
    fixture.clock.advance(Duration::from_secs(1));
    fixture.guest.endless.lock().insert("warm up".to_owned());
    fixture.put(json!([warm(3)])).await;
    let making = |fixture: &Pooled| fixture.driver.sandboxes().len() == 3;
    fixture.until("making one", making).await;
    fixture
        .until("warming up", |fixture| {
            fixture.guest.commands.lock().len() == 3
        })
        .await;
    fixture.guest.endless.lock().clear();
    fixture.crash().await;
    fixture.full(3).await;
    assert_eq!(fixture.members()[..2], before[..]);
    fixture
        .until("cleared", |fixture| fixture.driver.sandboxes().len() == 3)
        .await;
    // They are handed out once, in the same order.
    assert_eq!(fixture.create().await.id, before[0]);
    assert_eq!(fixture.create().await.id, before[1]);
}

#[tokio::test]
async fn a_member_that_was_being_handed_out_is_nobodys_after_a_crash_and_one_that_was_is_its_owners()
 {
    let mut fixture = Pooled::filled(2).await;
    let mine = fixture.create().await;
    fixture.full(2).await;
    let claimed = fixture.members()[0].clone();
    fixture.guest.endless.lock().insert("start me".to_owned());
    let (engine, me) = (fixture.engine.clone(), fixture.me.clone());
    let asks = tokio::spawn(async move { engine.create(&me, asked(), None).await });
    let starts = |fixture: &Pooled| {
        let commands = fixture.guest.commands.lock();
        let started = commands.iter().filter(|(_, c)| c.program == "start");
        started.count() == 2
    };
    fixture.until("starting", starts).await;
    fixture.guest.endless.lock().clear();
    asks.abort();
    fixture.crash().await;
    fixture.full(2).await;
    assert!(!fixture.members().contains(&claimed));
    let cleared = |fixture: &Pooled| {
        let there = fixture.driver.sandboxes();
        there.len() == 3 && !there.contains(&claimed)
    };
    fixture.until("cleared", cleared).await;
    let (_, record) = fixture.engine.authorize(&fixture.me, &mine.id).unwrap();
    assert_eq!(origin(&record), StartKind::Pooled);
}

#[tokio::test]
async fn what_a_changed_catalogue_does_not_want_is_ended_by_the_next_server() {
    let mut fixture = Pooled::filled(2).await;
    let before = fixture.members();
    fixture.running.abort();
    let mut entry = warm(2);
    entry["user"] = json!("somebody");
    fixture.put(json!([entry])).await;
    fixture.crash().await;
    fixture.full(2).await;
    assert!(!fixture.members().iter().any(|id| before.contains(id)));
    fixture
        .until("cleared", |fixture| fixture.driver.sandboxes().len() == 2)
        .await;
}

#[tokio::test]
async fn a_pool_that_is_found_empty_grows_as_far_as_it_may() {
    let fixture = Pooled::each_warmed_up(0).await;
    let mut entry = warm(1);
    entry["pool"]["max"] = json!(3);
    entry["pool"]["scaleDownAfter"] = json!("1m");
    fixture.put(json!([entry])).await;
    fixture.full(1).await;
    fixture.guest.endless.lock().insert("warm up".to_owned());
    for _ in 0..6 {
        fixture.create().await;
    }
    assert_eq!(fixture.view().size, 3);
    fixture.guest.endless.lock().clear();
    fixture.engine.remove_from_pool("warm").unwrap();
    fixture.full(3).await;
    fixture.clock.advance(Duration::from_secs(61));
    fixture.full(1).await;
}

#[tokio::test]
async fn the_first_member_is_saved_and_the_next_ones_begin_with_its_memory() {
    let fixture = Pooled::filled(1).await;
    assert_eq!(fixture.driver.kept().len(), 1);
    let first = fixture.create().await;
    fixture.full(1).await;
    let next = fixture.create().await;
    fixture.full(1).await;
    assert_eq!(origin(&next), StartKind::Pooled);
    let start = fixture.driver.start(&next.id).unwrap();
    let saved = fixture.driver.kept();
    assert!(matches!(start, Start::Snapshot { id, memory: true } if id == saved[0]));
    assert!(matches!(
        fixture.driver.start(&first.id).unwrap(),
        Start::Image(_)
    ));
    let commands = fixture.guest.commands.lock().clone();
    let warm = commands.iter().filter(|(_, c)| c.program == "warm");
    assert_eq!(warm.count(), 1, "nothing is warmed up twice");
    // The daemon in that memory asks for the token of the first, which the next one replaces.
    let begun = fixture.guest.begun.lock().clone();
    let [of_first, of_next] =
        [&first, &next].map(|record| fixture.driver.guest_token(&record.id).unwrap());
    let replaced = |order: &InitSpec| {
        order.known_token.as_ref() == Some(&of_first) && order.access_token == of_next
    };
    assert!(begun.iter().any(replaced));
    assert!(begun.iter().all(|order| order.known_token.is_some()));
    // Its own user may rely on its own image, not on the pool's snapshot.
    assert_eq!(next.spec.snapshot, None);

    let mut entry = warm_entry_with_env();
    fixture.put(json!([entry.clone()])).await;
    fixture
        .until("saved anew", |fixture| {
            let kept = fixture.driver.kept();
            kept.len() == 1 && kept != saved
        })
        .await;
    fixture.full(1).await;
    entry["pool"]["size"] = json!(0);
    fixture.put(json!([entry])).await;
    fixture.put(json!([])).await;
    fixture
        .until("removed", |fixture| fixture.driver.kept().is_empty())
        .await;
}

fn warm_entry_with_env() -> Value {
    let mut entry = warm(1);
    entry["env"] = json!({"NEW": "1"});
    entry
}

#[tokio::test]
async fn what_was_saved_and_is_no_good_is_not_begun_with_again() {
    let fixture = Pooled::filled(1).await;
    let saved = fixture.driver.kept()[0];
    // It is lost behind the engine's back.
    fixture.driver.remove_snapshot(saved).await.unwrap();
    fixture.create().await;
    fixture
        .until("faulty", |fixture| fixture.view().fault.is_some())
        .await;
    fixture.clock.advance(Duration::from_secs(1));
    fixture.full(1).await;
    assert!(fixture.driver.kept().is_empty());
}

#[tokio::test]
async fn a_member_that_cannot_be_saved_is_a_member_all_the_same() {
    let fixture = Pooled::new().await;
    fixture.driver.refuse(Refusals {
        save: true,
        ..Refusals::default()
    });
    fixture.put(json!([warm(3)])).await;
    fixture.full(3).await;
    assert_eq!(fixture.view().fault, None);
}

#[tokio::test]
async fn a_claimed_member_has_the_name_that_was_asked_for_and_nobody_else_has_it() {
    let fixture = Pooled::filled(2).await;
    let mut called = asked();
    called
        .metadata
        .insert("shoal/name".to_owned(), "mine".to_owned());
    let made = fixture.asked(called.clone()).await;
    assert_eq!(origin(&made), StartKind::Pooled);
    let found = fixture.engine.find(&fixture.me, "mine").unwrap().1;
    assert_eq!(found.id, made.id);
    let again = fixture.engine.create(&fixture.me, called, None).await;
    assert!(matches!(again, Err(CreateError::Name(_))), "{again:?}");
    // Nothing was taken for that.
    fixture.full(2).await;
    assert_eq!(fixture.view().claimed, 1);
}
