//! Of the members that wait a few stay in memory, and the others are parked.

use shoal_core::memory::FreeMemory;
use shoal_core::parking::ParkingSettings;
use shoal_core::state::StateKind;
use shoal_protocol::activity::Activity;

use super::*;

const SETTLED: Duration = Duration::from_secs(10);

/// When a member that stays in memory is tried again.
const AGAIN: Duration = Duration::from_secs(300);

fn parks(config: &mut EngineConfig) {
    config.parking = Some(ParkingSettings {
        after: None,
        backoff: 1,
        disk_room: Mib(1),
    });
    // Only parking reads the use of sandboxes here.
    config.sample_every = Duration::from_secs(365 * 24 * 3600);
}

fn hot(size: u32, hot: u32) -> Value {
    let mut entry = warm(size);
    entry["pool"]["hot"] = json!(hot);
    entry
}

impl Pooled {
    /// A full pool whose members have settled.
    async fn of(size: u32, in_memory: u32) -> Self {
        let fixture = Self::where_config(parks).await;
        fixture.put(json!([hot(size, in_memory)])).await;
        fixture.full(size).await;
        fixture.clock.advance(SETTLED);
        fixture.look();
        fixture
    }

    /// Lets the pool look at its members, which it does every minute otherwise.
    fn look(&self) {
        self.clock.advance(Duration::from_secs(60));
    }

    async fn parked(&self, count: usize) {
        let parked = |fixture: &Self| fixture.view().parked == count;
        self.until("parked", parked).await;
    }

    /// The members that are parked.
    fn on_disk(&self) -> Vec<SandboxId> {
        let members = self.engine.pool_members("warm").unwrap();
        let parked = members.into_iter().filter(|member| member.parked);
        parked.map(|member| member.id).collect()
    }

    /// They wait frozen, as other members do, some time after they were awake.
    async fn frozen_again(&self, members: &[SandboxId]) {
        let frozen = |fixture: &Self| {
            fixture.clock.advance(Duration::from_millis(100));
            members.iter().all(|id| fixture.driver.is_frozen(id))
        };
        self.until("frozen", frozen).await;
    }

    /// No further member gets ready.
    fn makes_no_more(&self) {
        self.guest.endless.lock().insert("warm up".to_owned());
        self.driver.refuse(Refusals {
            memory: true,
            ..Refusals::default()
        });
    }
}

#[tokio::test]
async fn the_oldest_few_stay_in_memory_and_are_claimed_first() {
    let fixture = Pooled::of(3, 1).await;
    fixture.parked(2).await;
    let members = fixture.members();
    assert_eq!(
        fixture.on_disk(),
        members[1..],
        "the next to be claimed first"
    );
    assert_eq!(fixture.view().ready, 3, "all can be claimed");
    let made = fixture.create().await;
    assert_eq!((origin(&made), &made.id), (StartKind::Pooled, &members[0]));
    fixture.full(3).await;
    // The new member takes its place in memory.
    let next = fixture.members();
    assert_eq!(next[1..], members[1..]);
    assert_eq!(fixture.create().await.id, next[0]);
}

#[tokio::test]
async fn a_parked_member_wakes_as_what_was_asked_for() {
    let fixture = Pooled::of(2, 0).await;
    fixture.parked(2).await;
    fixture.makes_no_more();
    let id = fixture.members().remove(0);
    let before = fixture.guest.begun.lock().len();
    let mut new = asked();
    new.env.insert("OWN".to_owned(), "1".to_owned());
    new.network.egress.internet = Some(false);
    let made = fixture.asked(new).await;
    assert_eq!((origin(&made), &made.id), (StartKind::Pooled, &id));
    assert_eq!(made.state.kind(), StateKind::Running);
    assert_eq!(made.spec.purpose, Purpose::Use);
    assert!(matches!(
        fixture.driver.start(&id),
        Some(Start::Paused {
            memory: true,
            network: shoal_core::driver::PausedNetwork::Removed,
        })
    ));
    let limits = fixture.driver.resources(&id).unwrap();
    assert_eq!((limits.cpu, limits.memory), (MilliCpu(2000), Mib(1024)));
    assert_eq!(fixture.driver.egress(&id).unwrap().internet, Some(false));
    assert_eq!(fixture.driver.owner(&id).unwrap().team, fixture.me.team);
    {
        let begun = fixture.guest.begun.lock();
        let told: Vec<_> = begun[before..].iter().collect();
        assert_eq!(told.len(), 1, "the daemon is told once, while it wakes");
        assert_eq!(told[0].env["OWN"], "1");
        let commands = fixture.guest.commands.lock();
        let started = commands.iter().filter(|(_, run)| run.program == "start");
        assert_eq!(started.count(), 1);
    }
    assert!(matches!(
        fixture.engine.routes().lookup(&id),
        Lookup::Running(_)
    ));
    assert_eq!(fixture.view().misses, 0);
}

#[tokio::test]
async fn members_are_woken_when_more_are_to_stay_in_memory() {
    let fixture = Pooled::of(3, 1).await;
    fixture.parked(2).await;
    let members = fixture.members();
    fixture.put(json!([hot(3, 2)])).await;
    fixture.parked(1).await;
    assert_eq!(fixture.members(), members, "none is made anew");
    fixture.put(json!([warm(3)])).await;
    fixture.parked(0).await;
    assert_eq!(fixture.members(), members);
    fixture.frozen_again(&members).await;
}

/// The memory of a live sandbox on the machines below.
const EACH: Mib = Mib(1000);

/// A machine that keeps some memory free.
fn keeps_memory_free(config: &mut EngineConfig) {
    parks(config);
    config.limits.free_memory = FreeMemory(Some(Mib(500)));
}

impl Pooled {
    /// Memory for so many live sandboxes, beside what stays free.
    fn has_memory_for(&self, sandboxes: u32) {
        self.driver.set_memory(Mib(EACH.0 * sandboxes + 500), EACH);
    }
}

#[tokio::test]
async fn no_member_stays_in_memory_while_the_machine_is_short_of_it() {
    let fixture = Pooled::where_config(keeps_memory_free).await;
    fixture.has_memory_for(9);
    fixture.put(json!([hot(2, 2)])).await;
    fixture.full(2).await;
    fixture.clock.advance(SETTLED);
    fixture.look();
    assert_eq!(fixture.view().parked, 0);
    fixture.has_memory_for(2);
    fixture.look();
    fixture.parked(2).await;
    // Their memory is free now. They are not woken at once, to be parked again.
    let reads = fixture.driver.memory_reads();
    fixture.look();
    fixture
        .until("looked", |fixture| fixture.driver.memory_reads() > reads)
        .await;
    assert_eq!(fixture.view().parked, 2);
    fixture.has_memory_for(9);
    fixture.clock.advance(AGAIN);
    fixture.look();
    fixture.parked(0).await;
}

#[tokio::test]
async fn a_member_makes_room_before_a_create_is_refused() {
    let fixture = Pooled::where_config(keeps_memory_free).await;
    fixture.has_memory_for(9);
    let mut other = warm(0);
    other["name"] = "other".into();
    other.as_object_mut().unwrap().remove("pool");
    fixture.put(json!([hot(2, 2), other])).await;
    fixture.full(2).await;
    fixture.clock.advance(SETTLED);
    let members = fixture.members();
    fixture.has_memory_for(1);
    let other = SandboxRequest::of("other".parse::<TemplateKey>().unwrap());
    let made = fixture.asked(other).await;
    assert_eq!(origin(&made), StartKind::Cold);
    // The pool finds it out.
    fixture.look();
    fixture.parked(2).await;
    assert_eq!(fixture.members(), members, "both can still be claimed");
}

#[tokio::test]
async fn parked_members_outlive_the_server() {
    let mut fixture = Pooled::of(2, 0).await;
    fixture.parked(2).await;
    let members = fixture.members();
    fixture.crash().await;
    fixture.full(2).await;
    assert_eq!(fixture.on_disk(), members);
    let made = fixture.create().await;
    assert_eq!((origin(&made), &made.id), (StartKind::Pooled, &members[0]));
}

#[tokio::test]
async fn a_member_that_cannot_be_saved_stays_and_is_tried_again_later() {
    let fixture = Pooled::where_config(parks).await;
    fixture.put(json!([hot(1, 0)])).await;
    fixture.full(1).await;
    fixture.driver.refuse(Refusals {
        save: true,
        ..Refusals::default()
    });
    let saves = || fixture.driver.saves().passed();
    let before = saves();
    fixture.clock.advance(SETTLED);
    fixture.look();
    fixture.until("tried", |_| saves() > before).await;
    let id = fixture.members().remove(0);
    fixture.frozen_again(&[id]).await;
    assert_eq!((saves(), fixture.view().parked), (before + 1, 0));
    fixture.driver.refuse(Refusals::default());
    fixture.clock.advance(AGAIN);
    fixture.parked(1).await;
    assert_eq!(saves(), before + 2);
}

#[tokio::test]
async fn members_with_connections_to_the_outside_stay_in_memory() {
    let fixture = Pooled::where_config(parks).await;
    *fixture.guest.activity.lock() = Activity {
        connections: 1,
        ..Activity::default()
    };
    fixture.put(json!([hot(2, 0)])).await;
    fixture.full(2).await;
    let before = fixture.driver.saves().passed();
    let reads = fixture.driver.reads();
    fixture.clock.advance(SETTLED);
    fixture.look();
    fixture
        .until("looked at", |fixture| fixture.driver.reads() >= reads + 2)
        .await;
    *fixture.guest.activity.lock() = Activity::default();
    fixture.clock.advance(AGAIN);
    fixture.parked(2).await;
    assert_eq!(fixture.driver.saves().passed(), before + 2, "not before");
}

#[tokio::test]
async fn where_nothing_is_parked_members_stay_in_memory() {
    let fixture = Pooled::new().await;
    fixture.put(json!([hot(2, 0)])).await;
    fixture.full(2).await;
    fixture.clock.advance(SETTLED);
    fixture.frozen_again(&fixture.members()).await;
    fixture.look();
    assert_eq!(fixture.view().parked, 0);
    assert_eq!(origin(&*fixture.create().await), StartKind::Pooled);
}

#[tokio::test]
async fn a_member_that_does_not_wake_is_ended_and_its_client_gets_a_cold_sandbox() {
    let fixture = Pooled::of(2, 0).await;
    fixture.parked(2).await;
    let members = fixture.members();
    fixture.makes_no_more();
    fixture.driver.refuse(Refusals {
        resume: true,
        memory: true,
        ..Refusals::default()
    });
    let made = fixture.create().await;
    assert_eq!(origin(&made), StartKind::Cold);
    assert!(!members.contains(&made.id));
    assert!(fixture.view().fault.is_some(), "the operator sees why");
    let there = fixture.driver.sandboxes();
    assert!(
        members.iter().all(|id| !there.contains(id)),
        "none is left over"
    );
}

#[tokio::test]
async fn a_member_that_is_claimed_while_it_is_parked_wakes() {
    let fixture = Pooled::where_config(parks).await;
    fixture.put(json!([hot(1, 0)])).await;
    fixture.full(1).await;
    fixture.driver.saves().shut();
    fixture.clock.advance(SETTLED);
    fixture.look();
    fixture
        .until("saved", |fixture| fixture.driver.saves().waiting() == 1)
        .await;
    let id = fixture.members().remove(0);
    let engine = fixture.engine.clone();
    let me = fixture.me.clone();
    let claim = tokio::spawn(async move { engine.create(&me, asked(), None).await });
    fixture
        .until("taken", |fixture| !fixture.members().contains(&id))
        .await;
    fixture.driver.saves().open();
    let made = claim.await.unwrap().unwrap().record;
    assert_eq!((origin(&made), &made.id), (StartKind::Pooled, &id));
    assert!(made.state.is_running());
}

#[tokio::test]
async fn a_member_that_is_claimed_while_it_wakes_is_handed_out_and_not_frozen() {
    let fixture = Pooled::of(1, 0).await;
    fixture.parked(1).await;
    let id = fixture.members().remove(0);
    fixture.driver.starts().shut();
    fixture.put(json!([hot(1, 1)])).await;
    fixture
        .until("woken", |fixture| fixture.driver.starts().waiting() == 1)
        .await;
    let (engine, me) = (fixture.engine.clone(), fixture.me.clone());
    let claim = tokio::spawn(async move { engine.create(&me, asked(), None).await });
    fixture
        .until("taken", |fixture| !fixture.members().contains(&id))
        .await;
    fixture.driver.starts().open();
    let made = claim.await.unwrap().unwrap().record;
    assert_eq!((origin(&made), &made.id), (StartKind::Pooled, &id));
    fixture.full(1).await;
    fixture.clock.advance(SETTLED);
    fixture.frozen_again(&fixture.members()).await;
    assert!(!fixture.driver.is_frozen(&id));
    assert!(fixture.engine.authorize(&fixture.me, &id).is_ok());
}
