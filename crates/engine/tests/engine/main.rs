//! The use cases, with a driver that only remembers and a clock that stands still.
#![expect(clippy::unwrap_used, reason = "tests")]
#![allow(clippy::too_many_lines, reason = "a scenario reads from top to bottom")]

mod at_once;
mod bounds;
mod build;
mod builtin;
mod catalogue;
mod closed;
mod drain;
mod drivers;
mod limits;
mod names;
mod native;
mod panics;
mod parking;
mod pool;
mod privileged;
mod registries;
mod rest;
mod saved;
mod tokens;
mod under_way;
mod woken;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use shoal_core::auth::{Principal, TeamSlug};
use shoal_core::driver::Owner;
use shoal_core::id::{BuildId, SandboxId, TemplateId};
use shoal_core::image::Images;
use shoal_core::limits::Bounds;
use shoal_core::network::Egress;
use shoal_core::ports::access::{KeyError, Keys, NewKey};
use shoal_core::quota::Quota;
use shoal_core::routes::{Lookup, RouteTable};
use shoal_core::state::FailReason;
use shoal_core::template::{Template, TemplateRef};
use shoal_engine::test_util::{
    self, BROKEN_IMAGE, FakeDriver, FakeGuest, ManualClock, NoImages, Refusals, record,
};
use shoal_engine::{
    CreateError, Engine, EngineConfig, EngineParts, EventKind, Idempotency, ListFilter, ListOrder,
    LogQuery, QuotaExceeded, SandboxError, SandboxRequest, SqliteStore,
};

struct Fixture {
    directory: tempfile::TempDir,
    driver: FakeDriver,
    clock: Arc<ManualClock>,
    guest: FakeGuest,
    engine: Engine,
    me: Principal,
}

async fn engine_on(
    directory: &Path,
    driver: &FakeDriver,
    clock: &Arc<ManualClock>,
    change: impl FnOnce(&mut EngineConfig),
) -> Engine {
    engine_with(directory, driver, clock, &FakeGuest::default(), change).await
}

async fn engine_with(
    directory: &Path,
    driver: &FakeDriver,
    clock: &Arc<ManualClock>,
    guest: &FakeGuest,
    change: impl FnOnce(&mut EngineConfig),
) -> Engine {
    let engine = engine_over(directory, driver, clock, guest, Arc::new(NoImages), change).await;
    let running = engine.clone();
    tokio::spawn(async move { running.run().await });
    engine
}

/// An engine that has recovered, but whose loops do not run.
async fn engine_over(
    directory: &Path,
    driver: &FakeDriver,
    clock: &Arc<ManualClock>,
    guest: &FakeGuest,
    images: Arc<dyn Images>,
    change: impl FnOnce(&mut EngineConfig),
) -> Engine {
    let mut config = EngineConfig::new(directory);
    change(&mut config);
    test_util::open(EngineParts {
        config,
        drivers: vec![Arc::new(driver.clone())],
        images,
        guest: Arc::new(guest.clone()),
        clock: clock.clone(),
        ..test_util::parts(directory)
    })
    .await
}

fn template(name: &str, image: &str) -> Template {
    let id = TemplateId::from_entropy(std::array::from_fn(|n| name.as_bytes()[n % name.len()]));
    let build = BuildId::from_entropy([1; 16]);
    Template {
        names: vec![name.parse().unwrap()],
        resources: record("ia").spec.resources,
        user: "user".to_owned(),
        env: BTreeMap::from([("FROM".to_owned(), "template".to_owned())]),
        public: true,
        ..Template::over(id, build, image.parse().unwrap(), record("ia").created_at)
    }
}

async fn principal(engine: &Engine, slug: &str) -> Principal {
    let admin = Principal {
        team: record("ia").team,
        slug: slug.parse().unwrap(),
        key: "00000000-0000-4000-8000-000000000000".parse().unwrap(),
        admin: true,
    };
    let slug: TeamSlug = slug.parse().unwrap();
    let (secret, _) = engine
        .create_key(&admin, &slug, "test", false)
        .await
        .unwrap();
    engine.authenticate(&secret).await.unwrap().unwrap()
}

async fn fixture_with(change: impl FnOnce(&mut EngineConfig)) -> Fixture {
    fixture_of(FakeGuest::default(), change).await
}

async fn fixture_of(guest: FakeGuest, change: impl FnOnce(&mut EngineConfig)) -> Fixture {
    let directory = tempfile::tempdir().unwrap();
    let (driver, clock) = (FakeDriver::new(), ManualClock::new());
    let engine = engine_with(directory.path(), &driver, &clock, &guest, change).await;
    engine
        .put_template(template("base", "test/image:1"))
        .await
        .unwrap();
    engine
        .put_template(template("broken", BROKEN_IMAGE))
        .await
        .unwrap();
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

async fn fixture() -> Fixture {
    fixture_with(|_| {}).await
}

/// Has the store below `directory` refuse some writes (`INSERT ON …`, `UPDATE ON …`), until its trigger
/// `broken` is dropped.
fn refuse_writes(directory: &Path, which: &str) -> rusqlite::Connection {
    let connection = rusqlite::Connection::open(directory.join("shoal.db")).unwrap();
    let broken = format!(
        "CREATE TRIGGER broken BEFORE {which}
         BEGIN SELECT RAISE(ABORT, 'told to refuse'); END"
    );
    connection.execute_batch(&broken).unwrap();
    connection
}

/// Waits, within bounds, until something is so.
async fn until(what: &str, so: impl Fn() -> bool) {
    let end = std::time::Instant::now() + Duration::from_secs(60);
    while !so() {
        assert!(std::time::Instant::now() < end, "never {what}");
        tokio::task::yield_now().await;
    }
}

fn new(template: &str) -> SandboxRequest {
    SandboxRequest::of(template.parse::<TemplateRef>().unwrap())
}

impl Fixture {
    async fn create(&self) -> SandboxId {
        self.engine
            .create(&self.me, new("base"), None)
            .await
            .unwrap()
            .record
            .id
            .clone()
    }

    /// A sandbox that rests, and that traffic wakes.
    async fn asleep(&self, timeout: Duration) -> SandboxId {
        let asked = SandboxRequest {
            timeout,
            auto_resume: true,
            ..new("base")
        };
        let made = self.engine.create(&self.me, asked, None).await;
        let id = made.unwrap().record.id.clone();
        let (permit, _) = self.engine.authorize(&self.me, &id).unwrap();
        self.engine.pause(&permit, None, false).await.unwrap();
        id
    }

    fn lives(&self, id: &SandboxId) -> bool {
        self.engine.authorize(&self.me, id).is_ok()
    }

    /// Waits until the sandbox has ended in every view.
    async fn ended(&self, id: &SandboxId) {
        let mut events = self.engine.subscribe();
        while self.driver.sandboxes().contains(id) {
            events.recv().await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_sandbox_is_created_seen_and_killed() {
    let fixture = fixture().await;
    let mut asked = new("base");
    asked.env.insert("OWN".to_owned(), "1".to_owned());
    asked.metadata.insert("k".to_owned(), "v".to_owned());
    let created = fixture
        .engine
        .create(&fixture.me, asked, None)
        .await
        .unwrap();
    let id = created.record.id.clone();
    assert_eq!(created.record.spec.env["FROM"], "template");
    assert_eq!(created.record.spec.env["OWN"], "1");
    assert!(created.record.report.is_some());
    assert_eq!(fixture.driver.sandboxes(), std::slice::from_ref(&id));

    let routes = fixture.engine.routes();
    let Lookup::Running(route) = routes.lookup(&id) else {
        panic!("it runs")
    };
    let ended = routes.ended(&route);
    let (permit, record) = fixture.engine.authorize(&fixture.me, &id).unwrap();
    let token = fixture.engine.envd_access_token(&record).unwrap();
    assert!(token.matches(route.guest_token.reveal()));
    assert!(token.matches(route.envd_access_token.as_ref().unwrap().reveal()));
    fixture.engine.kill(&permit).await.unwrap();
    ended.await;
    assert!(matches!(routes.lookup(&id), Lookup::Unknown));
    assert!(fixture.driver.sandboxes().is_empty());
    assert!(matches!(
        fixture.engine.kill(&permit).await,
        Err(SandboxError::NotFound(_))
    ));
}

#[tokio::test]
async fn another_tenant_sees_nothing() {
    let fixture = fixture().await;
    let id = fixture.create().await;
    let other = principal(&fixture.engine, "other").await;
    let refused = fixture.engine.authorize(&other, &id).unwrap_err();
    assert!(matches!(refused, SandboxError::NotFound(_)));
    assert!(
        fixture
            .engine
            .list(&other, &ListFilter::all(10))
            .sandboxes
            .is_empty()
    );
    let logs = fixture.engine.logs(&other, &id, Default::default()).await;
    assert!(matches!(logs, Err(SandboxError::NotFound(_))));
}

#[tokio::test]
async fn a_sandbox_ends_at_its_deadline_and_not_before() {
    let fixture = fixture().await;
    let (early, late) = (fixture.create().await, fixture.create().await);
    let (permit, _) = fixture.engine.authorize(&fixture.me, &late).unwrap();
    fixture
        .engine
        .set_timeout(&permit, Duration::from_secs(900))
        .await
        .unwrap();
    fixture.clock.advance(Duration::from_secs(300));
    fixture.ended(&early).await;
    assert!(fixture.lives(&late));
    fixture.clock.advance(Duration::from_secs(600));
    fixture.ended(&late).await;
    // Their logs say how long each was given.
    for (id, seconds) in [(early, 300), (late, 900)] {
        let query = LogQuery {
            limit: 10,
            ..LogQuery::default()
        };
        let log = fixture.engine.logs(&fixture.me, &id, query).await.unwrap();
        let last = &log.last().unwrap().message;
        assert!(
            last.contains(&format!("its time ({seconds} s) was up")),
            "{last}"
        );
    }
}

#[tokio::test]
async fn connecting_never_shortens_a_life_and_nothing_exceeds_the_limit() {
    let fixture = fixture().await;
    let id = fixture.create().await;
    let (permit, record) = fixture.engine.authorize(&fixture.me, &id).unwrap();
    let seconds = |n| Duration::from_secs(n);
    let after = fixture
        .engine
        .connect(&permit, seconds(10), true)
        .await
        .unwrap()
        .record;
    assert_eq!(after.deadline, record.deadline);
    let after = fixture
        .engine
        .connect(&permit, seconds(1000), true)
        .await
        .unwrap()
        .record;
    assert_eq!(after.deadline.since(record.started_at), seconds(1000));
    let after = fixture
        .engine
        .set_timeout(&permit, seconds(20))
        .await
        .unwrap();
    assert_eq!(after.deadline.since(record.started_at), seconds(20));
    let after = fixture.engine.refresh(&permit, seconds(0)).await.unwrap();
    assert_eq!(after.deadline.since(record.started_at), seconds(20));
    let after = fixture
        .engine
        .set_timeout(&permit, seconds(20 * 3600))
        .await
        .unwrap();
    assert_eq!(after.deadline.since(record.started_at), seconds(20 * 3600));
    // No number of calls makes a life longer than the limit, counted from its start.
    fixture.clock.advance(seconds(10 * 3600));
    let after = fixture
        .engine
        .set_timeout(&permit, seconds(20 * 3600))
        .await
        .unwrap();
    assert_eq!(after.deadline.since(record.started_at), seconds(24 * 3600));

    let mut long = new("base");
    long.timeout = seconds(24 * 3600 + 1);
    let refused = fixture
        .engine
        .create(&fixture.me, long, None)
        .await
        .unwrap_err();
    let CreateError::TimeoutTooLong(too_long) = refused else {
        panic!("{refused}");
    };
    assert_eq!(too_long.most, seconds(24 * 3600));
    fixture
        .engine
        .set_timeout(&permit, seconds(0))
        .await
        .unwrap();
    fixture.ended(&id).await;
}

#[tokio::test]
async fn a_start_that_fails_says_why_and_leaves_nothing() {
    let fixture = fixture().await;
    let refused = fixture
        .engine
        .create(&fixture.me, new("broken"), None)
        .await
        .unwrap_err();
    assert_eq!(
        refused.to_string(),
        "image test/broken:1 is not on this node: pull it first"
    );
    let refused = fixture
        .engine
        .create(&fixture.me, new("nothing"), None)
        .await
        .unwrap_err();
    assert_eq!(refused.to_string(), "template 'nothing' not found");
    let refused = fixture
        .engine
        .create(&fixture.me, new("base:v2"), None)
        .await
        .unwrap_err();
    assert_eq!(
        refused.to_string(),
        "tag 'v2' does not exist for template 'base'"
    );
    assert!(
        fixture
            .engine
            .list(&fixture.me, &ListFilter::all(10))
            .sandboxes
            .is_empty()
    );
    assert!(fixture.driver.sandboxes().is_empty());
}

#[tokio::test]
async fn a_sandbox_that_stops_by_itself_is_cleared() {
    let fixture = fixture().await;
    let id = fixture.create().await;
    let mut events = fixture.engine.subscribe();
    fixture.driver.fail(&id, FailReason::OutOfMemory).await;
    let event = events.recv().await.unwrap();
    assert_eq!((event.kind, event.sandbox), (EventKind::Killed, id.clone()));
    assert!(!fixture.lives(&id));
    assert!(fixture.driver.sandboxes().is_empty());
    // Clients that still send requests learn why.
    let told = fixture.engine.routes().lookup(&id);
    assert!(matches!(told, Lookup::Failed(FailReason::OutOfMemory)));
}

#[tokio::test]
async fn what_could_not_be_cleared_is_hidden_and_cleared_later() {
    let fixture = fixture().await;
    let id = fixture.create().await;
    fixture.driver.refuse(Refusals {
        destroy: true,
        ..Refusals::default()
    });
    let (permit, _) = fixture.engine.authorize(&fixture.me, &id).unwrap();
    let refused = fixture.engine.kill(&permit).await.unwrap_err();
    let logged = shoal_core::detail::Chain(&refused).to_string();
    assert!(logged.ends_with("told to refuse"), "{logged}");
    assert!(!fixture.lives(&id));
    fixture.driver.refuse(Refusals::default());
    fixture.clock.advance(Duration::from_secs(60));
    fixture.ended(&id).await;
}

#[tokio::test]
async fn limits_hold_for_each_tenant_and_for_the_machine() {
    let fixture = fixture_with(|config| {
        config.limits.sandboxes_per_team = 2;
        config.limits.sandboxes = 3;
    })
    .await;
    fixture.create().await;
    fixture.create().await;
    let refused = fixture.engine.create(&fixture.me, new("base"), None).await;
    assert!(matches!(
        refused,
        Err(CreateError::Full(QuotaExceeded::Team(2)))
    ));
    let other = principal(&fixture.engine, "other").await;
    fixture
        .engine
        .create(&other, new("base"), None)
        .await
        .unwrap();
    let refused = fixture.engine.create(&other, new("base"), None).await;
    assert!(matches!(
        refused,
        Err(CreateError::Full(QuotaExceeded::Installation(3)))
    ));
}

#[tokio::test]
async fn an_idempotency_key_makes_one_sandbox() {
    let fixture = fixture().await;
    let key = |request: u8| {
        Some(Idempotency {
            key: "k".to_owned(),
            request: [request; 32],
        })
    };
    let first = fixture
        .engine
        .create(&fixture.me, new("base"), key(1))
        .await
        .unwrap();
    let again = fixture
        .engine
        .create(&fixture.me, new("base"), key(1))
        .await
        .unwrap();
    assert_eq!(first.record.id, again.record.id);
    let other = fixture
        .engine
        .create(&fixture.me, new("base"), key(2))
        .await;
    assert!(matches!(other, Err(CreateError::IdempotencyMismatch)));
    let failed = Some(Idempotency {
        key: "f".to_owned(),
        request: [1; 32],
    });
    for _ in 0..2 {
        let refused = fixture
            .engine
            .create(&fixture.me, new("broken"), failed.clone())
            .await;
        assert!(
            matches!(refused, Err(CreateError::Driver(_))),
            "a failure may be tried again"
        );
    }
}

#[tokio::test]
async fn a_restart_takes_over_what_runs_and_ends_what_does_not() {
    let Fixture {
        directory,
        driver,
        clock,
        engine,
        me,
        ..
    } = fixture().await;
    let kept = engine.create(&me, new("base"), None).await.unwrap().record;
    let lost = engine.create(&me, new("base"), None).await.unwrap().record;
    let unknown = engine.create(&me, new("base"), None).await.unwrap().record;
    drop(engine);

    // Another machine's worth of damage: one sandbox died, one record was lost.
    let driver_after = FakeDriver::new();
    for record in [&kept, &unknown] {
        shoal_core::driver::Driver::create(
            &driver_after,
            shoal_core::driver::StartSpec {
                keep_connections: false,
                guest_token: driver.guest_token(&record.id).unwrap(),
                id: record.id.clone(),
                execution: record.execution,
                start: shoal_core::driver::Start::Image(record.spec.image.clone()),
                runtime: None,
                limits: Bounds::none()
                    .grant(record.spec.resources, record.spec.cpu_ceiling)
                    .unwrap(),
                owner: Owner {
                    team: record.team,
                    disk: None,
                },
                egress: Egress::default(),
                env: BTreeMap::new(),
                privileged: false,
            },
        )
        .await
        .unwrap();
    }
    rusqlite_delete(directory.path(), &unknown.id);
    drop(driver);
    let engine = engine_on(directory.path(), &driver_after, &clock, |_| {}).await;
    let (_, found) = engine.authorize(&me, &kept.id).unwrap();
    assert_eq!(found, kept);
    let mut events = engine.subscribe();
    while engine.authorize(&me, &lost.id).is_ok() {
        events.recv().await.unwrap();
    }
    assert_eq!(driver_after.sandboxes(), std::slice::from_ref(&kept.id));
    clock.advance(Duration::from_secs(300));
    while driver_after.sandboxes().contains(&kept.id) {
        events.recv().await.unwrap();
    }
}

#[tokio::test]
async fn a_request_whose_sandbox_outlives_the_server_makes_no_second_one() {
    let Fixture {
        directory,
        driver,
        clock,
        engine,
        me,
        ..
    } = fixture().await;
    let asked = |key: &str| {
        Some(Idempotency {
            key: key.to_owned(),
            request: [1; 32],
        })
    };
    let made = engine.create(&me, new("base"), asked("k")).await.unwrap();
    let other = engine.create(&me, new("base"), asked("o")).await.unwrap();
    drop(engine);
    // Killed after both ran, and before it had noted that the requests were through; the machine
    // has lost one of them.
    let store = rusqlite::Connection::open(directory.path().join("shoal.db")).unwrap();
    let unsettled = store.execute("UPDATE idempotency SET sandbox = NULL", []);
    assert_eq!(unsettled.unwrap(), 2);
    drop(store);
    let lost = &other.record.id;
    shoal_core::driver::Driver::destroy(&driver, lost)
        .await
        .unwrap();

    let engine = engine_on(directory.path(), &driver, &clock, |_| {}).await;
    let again = engine.create(&me, new("base"), asked("k")).await.unwrap();
    assert_eq!(again.record.id, made.record.id);
    let anew = engine.create(&me, new("base"), asked("o")).await.unwrap();
    assert_ne!(anew.record.id, *lost);
}

#[tokio::test]
async fn a_record_of_an_earlier_version_keeps_its_idempotency_key() {
    let Fixture {
        directory,
        driver,
        clock,
        engine,
        me,
        ..
    } = fixture().await;
    let key = || {
        Some(Idempotency {
            key: "k".to_owned(),
            request: [1; 32],
        })
    };
    let made = engine.create(&me, new("base"), key()).await.unwrap();
    drop(engine);
    let store = rusqlite::Connection::open(directory.path().join("shoal.db")).unwrap();
    // The earlier layout: the key is a part of the specification.
    let moved = "UPDATE sandboxes SET document = json_remove(json_set(document, \
                 '$.spec.claim', json_extract(document, '$.idempotency')), '$.idempotency') \
                 WHERE json_type(document, '$.idempotency') = 'object'";
    assert_eq!(store.execute(moved, []).unwrap(), 1);
    let unsettled = store.execute("UPDATE idempotency SET sandbox = NULL", []);
    assert_eq!(unsettled.unwrap(), 1);
    drop(store);

    let engine = engine_on(directory.path(), &driver, &clock, |_| {}).await;
    let again = engine.create(&me, new("base"), key()).await.unwrap();
    assert_eq!(again.record.id, made.record.id);
}

fn rusqlite_delete(directory: &Path, id: &SandboxId) {
    let connection = rusqlite::Connection::open(directory.join("shoal.db")).unwrap();
    connection
        .execute("DELETE FROM sandboxes WHERE id = ?1", [id.as_str()])
        .unwrap();
}

#[tokio::test]
async fn rules_can_be_replaced_and_foolish_ones_change_nothing() {
    let fixture = fixture().await;
    let id = fixture.create().await;
    let (permit, _) = fixture.engine.authorize(&fixture.me, &id).unwrap();
    let closed = Egress {
        internet: Some(false),
        ..Egress::default()
    };
    fixture
        .engine
        .set_network(&permit, closed.clone())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(fixture.driver.egress(&id), Some(closed.clone()));
    let foolish = Egress {
        dns_servers: vec!["10.0.0.1".parse().unwrap()],
        ..Egress::default()
    };
    assert!(fixture.engine.set_network(&permit, foolish).await.is_err());
    let (_, record) = fixture.engine.authorize(&fixture.me, &id).unwrap();
    assert_eq!(record.spec.network.egress, closed);
}

#[tokio::test]
async fn a_list_is_filtered_ordered_and_paged() {
    let fixture = fixture().await;
    let mut ids = Vec::new();
    for n in 0..5 {
        let mut asked = new("base");
        asked
            .metadata
            .insert("even".to_owned(), (n % 2 == 0).to_string());
        let created = fixture
            .engine
            .create(&fixture.me, asked, None)
            .await
            .unwrap();
        ids.push(created.record.id.clone());
        fixture.clock.advance(Duration::from_secs(1));
    }
    let walk = |mut filter: ListFilter| {
        let mut seen = Vec::new();
        loop {
            let page = fixture.engine.list(&fixture.me, &filter);
            seen.extend(page.sandboxes.iter().map(|record| record.id.clone()));
            match page.next {
                // As a client would send it back.
                Some(next) => filter.after = Some(next.to_string().parse().unwrap()),
                None => return seen,
            }
        }
    };
    let newest_first: Vec<_> = ids.iter().rev().cloned().collect();
    assert_eq!(walk(ListFilter::all(2)), newest_first);
    assert_eq!(
        walk(ListFilter {
            order: ListOrder::Ascending,
            ..ListFilter::all(1)
        }),
        ids
    );
    let even = BTreeMap::from([("even".to_owned(), "true".to_owned())]);
    let even = walk(ListFilter {
        metadata: even,
        ..ListFilter::all(100)
    });
    assert_eq!(even, [ids[4].clone(), ids[2].clone(), ids[0].clone()]);
    assert!(
        walk(ListFilter {
            running: false,
            ..ListFilter::all(100)
        })
        .is_empty()
    );
}

#[tokio::test]
async fn a_key_speaks_for_its_tenant_until_it_is_removed() {
    let fixture = fixture().await;
    let (engine, me) = (&fixture.engine, &fixture.me);
    let forbidden = engine
        .create_key(me, &"other".parse().unwrap(), "x", false)
        .await;
    assert!(forbidden.is_err());
    // A quota that nothing would enforce.
    let limited = NewKey {
        team: me.slug.clone(),
        name: "limited".to_owned(),
        admin: false,
        quota: Some(Quota::default()),
    };
    let refused = Keys::create(engine, me, limited).await;
    assert!(matches!(refused, Err(KeyError::NotServed(_))));
    let (secret, record) = engine
        .create_key(me, &me.slug, "second", false)
        .await
        .unwrap();
    let found = engine.authenticate(&secret).await.unwrap().unwrap();
    assert_eq!((found.team, found.admin), (me.team, false));
    assert_eq!(
        engine
            .rename_key(me, record.id, "renamed")
            .await
            .unwrap()
            .name,
        "renamed"
    );
    engine.delete_key(me, record.id).await.unwrap();
    assert!(engine.authenticate(&secret).await.unwrap().is_none());
    assert!(
        engine.delete_key(me, me.key).await.is_err(),
        "a key cannot remove itself"
    );
    assert!(
        engine.mint_first_key(|_| Ok(())).await.unwrap().is_none(),
        "there is a key"
    );
}
