//! Drivers without capabilities, and several drivers on one node.

use shoal_core::driver::{Capability, Driver, DriverError};
use shoal_core::resources::MilliCpu;
use shoal_core::sandbox::OnTimeout;
use shoal_core::snapshot::Contents;
use shoal_core::state::StateKind;
use shoal_core::template::RuntimeName;
use shoal_engine::{
    AllowedRuntimes, CpuTarget, InvalidDrivers, NewSnapshot, OpenEngineError, Resize,
    ResizeCreated, SnapshotFilter, TakeError,
};

use super::*;

/// An engine over these drivers, with the template `base` and a key for each test.
async fn engine_of(
    directory: &Path,
    drivers: &[&FakeDriver],
    clock: &Arc<ManualClock>,
    guest: &FakeGuest,
) -> Engine {
    let config = EngineConfig {
        runtimes: AllowedRuntimes::Any,
        ..EngineConfig::new(directory)
    };
    let as_port = |driver: &&FakeDriver| Arc::new((*driver).clone()) as Arc<dyn Driver>;
    let engine = test_util::open(EngineParts {
        config,
        drivers: drivers.iter().map(as_port).collect(),
        guest: Arc::new(guest.clone()),
        clock: clock.clone(),
        ..test_util::parts(directory)
    })
    .await;
    let running = engine.clone();
    tokio::spawn(async move { running.run().await });
    engine
}

/// A node whose only driver creates and destroys sandboxes, and can do nothing else.
async fn bare() -> Fixture {
    let directory = tempfile::tempdir().unwrap();
    let driver = FakeDriver::without_capabilities("bare", &["bare"]);
    let (clock, guest) = (ManualClock::new(), FakeGuest::default());
    let engine = engine_of(directory.path(), &[&driver], &clock, &guest).await;
    let base = template("base", "test/image:1");
    engine.put_template(base).await.unwrap();
    let me = principal(&engine, "mine").await;
    Fixture {
        directory,
        driver,
        clock,
        guest,
        engine,
        me,
    }
}

/// The capability that an error names, if it is one of a driver that lacks it.
fn lacking(error: &DriverError) -> Option<Capability> {
    match error {
        DriverError::Lacks {
            runtime,
            capability,
        } => {
            assert_eq!(runtime.as_str(), "bare", "the error names the runtime");
            Some(*capability)
        }
        _ => None,
    }
}

fn of_sandbox<T: std::fmt::Debug>(refused: Result<T, SandboxError>) -> Option<Capability> {
    match refused.unwrap_err() {
        SandboxError::Driver(error) => lacking(&error),
        other => panic!("{other:?}"),
    }
}

fn of_create<T: std::fmt::Debug>(refused: Result<T, CreateError>) -> Option<Capability> {
    match refused.unwrap_err() {
        CreateError::Driver(error) => lacking(&error),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_pause_without_the_capability_is_refused_before_it_begins() {
    let bare = bare().await;
    let id = bare.create().await;
    let (permit, before) = bare.engine.authorize(&bare.me, &id).unwrap();
    let mut events = bare.engine.subscribe();
    for contents in [None, Some(Contents::Filesystem), Some(Contents::Memory)] {
        let refused = bare.engine.pause(&permit, contents, false).await;
        assert_eq!(of_sandbox(refused), Some(Capability::Checkpoint));
    }
    let refused = bare.engine.pause(&permit, None, false).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "runtime bare cannot pause sandboxes or take snapshots: use a sandbox of another runtime"
    );
    let taken = bare
        .engine
        .snapshot(&bare.me, &permit, NewSnapshot::default())
        .await;
    match taken.unwrap_err() {
        TakeError::Sandbox(SandboxError::Driver(error)) => {
            assert_eq!(lacking(&error), Some(Capability::Checkpoint));
        }
        other => panic!("{other:?}"),
    }
    let timeout = Duration::from_secs(60);
    let forked = bare.engine.fork(&bare.me, &permit, 2, timeout).await;
    assert_eq!(of_sandbox(forked), Some(Capability::Checkpoint));

    let (_, after) = bare.engine.authorize(&bare.me, &id).unwrap();
    assert_eq!(after, before, "the record is unchanged");
    assert!(!*bare.guest.frozen.lock(), "the daemon was never frozen");
    assert!(events.try_recv().is_err(), "nothing happened");
    let none = SnapshotFilter::default();
    assert!(bare.engine.snapshots(&bare.me, &none).is_empty());
    bare.engine.kill(&permit).await.unwrap();
    assert!(bare.driver.sandboxes().is_empty());
}

#[tokio::test]
async fn limits_and_rules_stay_without_the_capability_to_change_them() {
    let bare = bare().await;
    let id = bare.create().await;
    let (permit, before) = bare.engine.authorize(&bare.me, &id).unwrap();
    let resize = Resize {
        cpu: Some(MilliCpu(500)),
        memory: None,
    };
    let refused = bare.engine.resize(&permit, resize).await;
    assert_eq!(of_sandbox(refused), Some(Capability::Resize));
    let closed = Egress {
        internet: Some(false),
        ..Egress::default()
    };
    let refused = bare.engine.set_network(&permit, closed).await.unwrap();
    assert_eq!(of_sandbox(refused), Some(Capability::Egress));
    let (_, after) = bare.engine.authorize(&bare.me, &id).unwrap();
    assert_eq!(after, before, "the record is unchanged");
    assert!(!after.resizing && after.aim.is_none());
}

#[tokio::test]
async fn a_create_that_needs_a_capability_makes_nothing_without_it() {
    let bare = bare().await;
    for keep_memory in [false, true] {
        let paused_later = SandboxRequest {
            on_timeout: OnTimeout::Pause,
            keep_memory,
            ..new("base")
        };
        let refused = bare.engine.create(&bare.me, paused_later, None).await;
        assert_eq!(of_create(refused), Some(Capability::Checkpoint));
    }
    let resized = SandboxRequest {
        resize: Some(ResizeCreated {
            cpu: CpuTarget::Factor(2.0),
            early_return: false,
        }),
        ..new("base")
    };
    let refused = bare.engine.create(&bare.me, resized, None).await;
    assert_eq!(of_create(refused), Some(Capability::Resize));
    assert!(bare.driver.sandboxes().is_empty());
    let created = bare.engine.create(&bare.me, new("base"), None).await;
    assert!(created.is_ok(), "other sandboxes start");
}

#[tokio::test]
async fn a_bare_driver_survives_a_restart_and_counts_no_disk() {
    let bare = bare().await;
    let id = bare.create().await;
    let teams = bare.engine.teams(&bare.me).await.unwrap();
    assert!(teams.iter().all(|team| team.disk_bytes.is_none()));
    let (directory, guest) = (bare.directory.path(), FakeGuest::default());
    let again = engine_of(directory, &[&bare.driver], &bare.clock, &guest).await;
    let (permit, record) = again.authorize(&bare.me, &id).unwrap();
    assert_eq!(record.state.kind(), StateKind::Running);
    again.kill(&permit).await.unwrap();
    assert!(bare.driver.sandboxes().is_empty());
}

/// A node with the drivers `first` (runtime `one`) and `second` (runtime `two`).
struct TwoDrivers {
    directory: tempfile::TempDir,
    first: FakeDriver,
    second: FakeDriver,
    clock: Arc<ManualClock>,
    engine: Engine,
    me: Principal,
}

async fn two_drivers() -> TwoDrivers {
    let directory = tempfile::tempdir().unwrap();
    let first = FakeDriver::named("first", &["one"]);
    let second = FakeDriver::named("second", &["two"]);
    let (clock, guest) = (ManualClock::new(), FakeGuest::default());
    let engine = engine_of(directory.path(), &[&first, &second], &clock, &guest).await;
    let base = template("base", "test/image:1");
    engine.put_template(base).await.unwrap();
    let me = principal(&engine, "mine").await;
    TwoDrivers {
        directory,
        first,
        second,
        clock,
        engine,
        me,
    }
}

impl TwoDrivers {
    async fn create(&self, runtime: Option<&str>) -> SandboxId {
        let asked = SandboxRequest {
            runtime: runtime.map(|name| name.parse::<RuntimeName>().unwrap()),
            ..new("base")
        };
        let created = self.engine.create(&self.me, asked, None).await.unwrap();
        created.record.id.clone()
    }

    async fn restart(&self) -> Engine {
        let (directory, guest) = (self.directory.path(), FakeGuest::default());
        engine_of(directory, &[&self.first, &self.second], &self.clock, &guest).await
    }
}

#[tokio::test]
async fn a_sandbox_belongs_to_the_driver_of_its_runtime() {
    let node = two_drivers().await;
    let usual = node.create(None).await;
    let one = node.create(Some("one")).await;
    let two = node.create(Some("two")).await;
    let mut of_first = [usual, one];
    of_first.sort();
    assert_eq!(node.first.sandboxes(), of_first);
    assert_eq!(node.second.sandboxes(), std::slice::from_ref(&two));

    let (permit, record) = node.engine.authorize(&node.me, &two).unwrap();
    assert_eq!(record.report.as_ref().unwrap().runtime.as_str(), "two");
    node.engine.pause(&permit, None, false).await.unwrap();
    let timeout = Duration::from_secs(60);
    node.engine.connect(&permit, timeout, true).await.unwrap();
    let limits = Resize {
        cpu: Some(MilliCpu(500)),
        memory: None,
    };
    node.engine.resize(&permit, limits).await.unwrap();
    assert_eq!(node.second.resources(&two).unwrap().cpu, MilliCpu(500));
    let closed = Egress {
        internet: Some(false),
        ..Egress::default()
    };
    let set = node.engine.set_network(&permit, closed.clone()).await;
    set.unwrap().unwrap();
    assert_eq!(node.second.egress(&two), Some(closed));
    node.second.fail(&two, FailReason::Exited).await;
    until("ended", || node.second.sandboxes().is_empty()).await;
    assert_eq!(node.first.sandboxes(), of_first, "the others still run");

    let unknown = SandboxRequest {
        runtime: "three".parse().ok(),
        ..new("base")
    };
    let refused = node.engine.create(&node.me, unknown, None).await;
    assert_eq!(
        refused.unwrap_err().to_string(),
        "runtime three is not available: use one of one, two"
    );
}

#[tokio::test]
async fn a_clone_starts_where_its_snapshot_is() {
    let node = two_drivers().await;
    let source = node.create(Some("two")).await;
    let (permit, _) = node.engine.authorize(&node.me, &source).unwrap();
    let named = NewSnapshot {
        name: Some("kept".parse().unwrap()),
        ..NewSnapshot::default()
    };
    let taken = node.engine.snapshot(&node.me, &permit, named).await;
    taken.unwrap();
    assert_eq!((node.first.kept().len(), node.second.kept().len()), (0, 1));
    let timeout = Duration::from_secs(60);
    let forks = node.engine.fork(&node.me, &permit, 1, timeout).await;
    let fork = forks.unwrap().remove(0).unwrap().record.id.clone();
    assert!(node.second.sandboxes().contains(&fork));

    // After a restart the snapshot is still found in its driver.
    let engine = node.restart().await;
    let clone = engine.create(&node.me, new("kept"), None).await.unwrap();
    assert!(node.second.sandboxes().contains(&clone.record.id));
    assert!(node.first.sandboxes().is_empty());
    let reference: TemplateRef = "kept".parse().unwrap();
    engine.delete_snapshot(&node.me, &reference).await.unwrap();
    assert!(node.second.kept().is_empty());
}

#[tokio::test]
async fn recovery_asks_every_driver() {
    let node = two_drivers().await;
    let mut kept = vec![node.create(None).await, node.create(Some("two")).await];
    let strays = [node.create(None).await, node.create(Some("two")).await];
    let paused = node.create(Some("two")).await;
    let (permit, _) = node.engine.authorize(&node.me, &paused).unwrap();
    node.engine.pause(&permit, None, false).await.unwrap();
    for stray in &strays {
        rusqlite_delete(node.directory.path(), stray);
    }
    let engine = node.restart().await;
    for id in &kept {
        let (_, record) = engine.authorize(&node.me, id).unwrap();
        assert_eq!(record.state.kind(), StateKind::Running);
    }
    let (permit, record) = engine.authorize(&node.me, &paused).unwrap();
    assert_eq!(record.state.kind(), StateKind::Paused);
    let timeout = Duration::from_secs(60);
    let connected = engine.connect(&permit, timeout, true).await.unwrap();
    assert!(connected.resumed);
    assert_eq!(
        node.first.sandboxes(),
        [kept.remove(0)],
        "without the stray"
    );
    let mut of_second = [kept.remove(0), paused];
    of_second.sort();
    assert_eq!(node.second.sandboxes(), of_second, "without the stray");
}

#[tokio::test]
async fn a_runtime_belongs_to_one_driver() {
    let directory = tempfile::tempdir().unwrap();
    let open = async |drivers: Vec<Arc<dyn Driver>>| {
        let parts = EngineParts {
            drivers,
            ..test_util::parts(directory.path())
        };
        match Engine::open(parts).await {
            Err(OpenEngineError::Drivers(invalid)) => invalid,
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("the drivers are accepted"),
        }
    };
    let driver = |name| Arc::new(FakeDriver::named(name, &["one"])) as Arc<dyn Driver>;
    let twice = open(vec![driver("first"), driver("second")]).await;
    let one: RuntimeName = "one".parse().unwrap();
    assert_eq!(twice, InvalidDrivers::Duplicate(one));
    assert_eq!(open(Vec::new()).await, InvalidDrivers::NoRuntime);
}
