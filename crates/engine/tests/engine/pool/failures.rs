//! Failures of members, and their effect on the pool.

use super::*;

/// An entry whose members are ready when a port answers.
fn probed(size: u32) -> Value {
    let mut entry = warm(size);
    entry["pool"]["probePort"] = json!(8888);
    entry
}

impl Pooled {
    /// Waits until the one member that is being made looks at its port, which is closed.
    async fn starting(&self) -> SandboxId {
        let begun = |fixture: &Self| {
            let there = fixture.driver.sandboxes();
            fixture.members().iter().any(|id| there.contains(id))
        };
        self.until("starting", begun).await;
        self.members().remove(0)
    }

    /// Waits until a worker refills the pool of this entry, and blocks it.
    async fn looking(&self, entry: Value) {
        // The workers of earlier entries finish within some turns.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        self.images.finds.shut();
        self.put(json!([entry])).await;
        let looking = |fixture: &Self| fixture.images.finds.waiting() == 1;
        self.until("looking at the image", looking).await;
    }
}

#[tokio::test]
async fn a_member_that_is_ended_while_it_starts_says_nothing_against_what_it_began_with() {
    let fixture = Pooled::new().await;
    fixture.put(json!([probed(1)])).await;
    fixture.full(1).await;
    let saved = fixture.driver.kept();
    fixture.guest.closed.lock().insert(8888);
    fixture.create().await;
    let starting = fixture.starting().await;
    let begun_with = |fixture: &Pooled, id: &SandboxId| match fixture.driver.start(id) {
        Some(Start::Snapshot { id, memory: true }) => Some(id),
        _ => None,
    };
    assert_eq!(begun_with(&fixture, &starting), Some(saved[0]));
    assert_eq!(fixture.engine.remove_from_pool(starting.as_str()), Some(1));
    let ended = |fixture: &Pooled| !fixture.driver.sandboxes().contains(&starting);
    fixture.until("ended", ended).await;
    let next = fixture.starting().await;
    fixture.guest.closed.lock().clear();
    fixture.clock.advance(Duration::from_millis(100));
    fixture.full(1).await;
    assert_eq!(fixture.driver.kept(), saved);
    assert_eq!(begun_with(&fixture, &next), Some(saved[0]));
    assert_eq!(fixture.view().fault, None);
}

#[tokio::test]
async fn a_first_member_that_is_ended_while_it_is_saved_leaves_that_to_the_next() {
    let fixture = Pooled::new().await;
    fixture.driver.saves().shut();
    fixture.put(json!([warm(1)])).await;
    let saving = |fixture: &Pooled| fixture.driver.saves().waiting() == 1;
    fixture.until("saving", saving).await;
    let first = fixture.members().remove(0);
    // It dies, and only then an operator takes it out: nothing can be saved of it.
    assert_eq!(fixture.engine.remove_from_pool(first.as_str()), Some(1));
    fixture.driver.destroy(&first).await.unwrap();
    fixture.driver.saves().open();
    fixture.full(1).await;
    let next = fixture.create().await;
    fixture.full(1).await;
    assert!(next.id != first);
    assert_eq!(fixture.driver.kept().len(), 1);
}

#[tokio::test]
async fn a_pool_that_is_removed_begins_anew_with_what_it_saves() {
    let fixture = Pooled::filled(2).await;
    let saved = fixture.driver.kept();
    assert_eq!(fixture.engine.remove_from_pool("warm"), Some(2));
    fixture.full(2).await;
    let anew = |fixture: &Pooled| {
        let kept = fixture.driver.kept();
        kept.len() == 1 && kept != saved
    };
    fixture.until("saved anew", anew).await;
}

#[tokio::test]
async fn a_member_is_saved_when_its_programs_are_quiet() {
    let fixture = Pooled::new().await;
    fixture.driver.idles().shut();
    fixture.put(json!([warm(1)])).await;
    let waiting = |fixture: &Pooled| fixture.driver.idles().waiting() == 1;
    fixture.until("waited for", waiting).await;
    assert!(fixture.driver.kept().is_empty());
    fixture.driver.idles().open();
    fixture.full(1).await;
    assert_eq!(fixture.driver.kept().len(), 1);
}

#[tokio::test]
async fn the_next_server_begins_with_what_was_saved() {
    let mut fixture = Pooled::filled(1).await;
    let saved = fixture.driver.kept();
    fixture.crash().await;
    assert_eq!(fixture.driver.kept(), saved);
    fixture.create().await;
    fixture.full(1).await;
    let member = fixture.members().remove(0);
    assert!(matches!(
        fixture.driver.start(&member).unwrap(),
        Start::Snapshot { id, memory: true } if id == saved[0]
    ));
    // A pool that is no longer wanted leaves nothing, over a start either.
    fixture.put(json!([])).await;
    let removed = |fixture: &Pooled| fixture.driver.kept().is_empty();
    fixture.until("removed", removed).await;
}

#[tokio::test]
async fn what_was_saved_and_is_lost_while_no_server_runs_is_saved_anew() {
    let mut fixture = Pooled::filled(1).await;
    let saved = fixture.driver.kept();
    fixture.driver.remove_snapshot(saved[0]).await.unwrap();
    fixture.crash().await;
    fixture.create().await;
    fixture.full(1).await;
    assert_eq!(fixture.view().fault, None);
    let member = fixture.members().remove(0);
    assert!(matches!(
        fixture.driver.start(&member).unwrap(),
        Start::Image(_)
    ));
    assert_eq!(fixture.driver.kept().len(), 1);
}

#[tokio::test]
async fn what_is_saved_while_its_pool_is_removed_is_not_begun_with() {
    let fixture = Pooled::new().await;
    fixture.driver.saves().shut();
    fixture.put(json!([warm(1)])).await;
    let saving = |count| move |fixture: &Pooled| fixture.driver.saves().waiting() == count;
    fixture.until("saving", saving(1)).await;
    assert_eq!(fixture.engine.remove_from_pool("warm"), Some(1));
    fixture.until("saving the next too", saving(2)).await;
    fixture.driver.saves().open();
    fixture.full(1).await;
    fixture
        .until("one kept", |fixture| fixture.driver.kept().len() == 1)
        .await;
    let next = fixture.members().remove(0);
    // The members of the new start count.
    assert!(matches!(
        fixture.driver.start(&next).unwrap(),
        Start::Image(_)
    ));
    fixture.create().await;
    fixture.full(1).await;
    let Some(Start::Snapshot { id, .. }) = fixture.driver.start(&fixture.members()[0]) else {
        panic!("it begins with what was saved")
    };
    assert_eq!(fixture.driver.kept(), [id]);
}

#[tokio::test]
async fn an_entry_that_says_more_processor_than_there_is_has_a_pool_all_the_same() {
    let fixture = Pooled::new().await;
    let mut entry = warm(1);
    entry["resources"]["cpuLimit"] = json!("32");
    fixture.put(json!([entry])).await;
    fixture.full(1).await;
    let made = fixture.create().await;
    assert_eq!(origin(&made), StartKind::Pooled);
    // The operator's limits are granted as far as possible.
    let machine = fixture.engine.capabilities().cpu;
    assert_eq!(made.spec.resources.cpu, machine);
    // It began as one that may be given as much as a cold one is.
    assert_eq!(made.spec.cpu_ceiling, machine);
}

#[tokio::test]
async fn members_that_could_never_be_handed_out_are_not_made_again_and_again() {
    let fixture = Pooled::new().await;
    let mut entry = warm(1);
    entry["resources"]["cpuLimit"] = json!("1");
    entry["pool"]["resources"]["cpuLimit"] = json!("8");
    fixture.put(json!([entry])).await;
    let fault = faulty(&fixture).await;
    assert!(fault.contains("resources"), "{fault}");
    assert_eq!(fixture.view().starting, 0);
}

#[tokio::test]
async fn a_startup_that_fails_costs_one_member_and_is_no_miss() {
    let fixture = Pooled::new().await;
    let mut entry = warm(3);
    entry["pool"]["max"] = json!(6);
    fixture.put(json!([entry])).await;
    fixture.full(3).await;
    let before = fixture.members();
    fixture.fails("start me");
    assert_eq!(origin(&*fixture.create().await), StartKind::Cold);
    fixture.full(3).await;
    let now = fixture.members();
    assert_eq!(before.iter().filter(|id| now.contains(id)).count(), 2);
    let view = fixture.view();
    assert_eq!((view.size, view.claimed, view.misses), (3, 0, 0));
    assert!(view.fault.unwrap().message.contains("startupCmd"));
    // After another failure the next member is tried, and it is no miss either.
    fixture.guest.answers.lock().clear();
    // Those that replace them meanwhile are younger.
    fixture.clock.advance(Duration::from_millis(1));
    fixture.driver.refuse(Refusals {
        resize: true,
        ..Refusals::default()
    });
    assert_eq!(origin(&*fixture.create().await), StartKind::Cold);
    fixture.driver.refuse(Refusals::default());
    fixture.full(3).await;
    let view = fixture.view();
    assert_eq!((view.size, view.misses), (3, 0));
    assert!(!fixture.members().iter().any(|id| before.contains(id)));
}

#[tokio::test]
async fn a_change_that_no_member_is_made_from_is_no_fault_of_one() {
    let fixture = Pooled::filled(1).await;
    fixture.looking(warm(2)).await;
    // The pool is looked at as it was, and the member is made as it is.
    let mut entry = warm(2);
    entry["description"] = json!("other words");
    fixture.put(json!([entry])).await;
    fixture.images.finds.open();
    fixture.full(2).await;
    assert_eq!(fixture.view().fault, None);
}

#[tokio::test]
async fn a_change_that_makes_another_member_is_no_fault_of_the_one_before() {
    let fixture = Pooled::filled(1).await;
    fixture.looking(warm(2)).await;
    let mut entry = warm(2);
    entry["env"] = json!({"NEW": "1"});
    fixture.put(json!([entry])).await;
    fixture.images.finds.open();
    fixture.full(2).await;
    fixture
        .until("replaced", |fixture| fixture.driver.sandboxes().len() == 2)
        .await;
    assert_eq!(fixture.view().fault, None);
}

#[tokio::test]
async fn members_that_fail_side_by_side_count_as_one_try() {
    let fixture = Pooled::new().await;
    fixture.fails("warm up");
    fixture.put(json!([warm(4)])).await;
    let over = |fixture: &Pooled| fixture.view().starting == 0;
    for wait in [1, 2, 4] {
        faulty(&fixture).await;
        fixture.until("over", over).await;
        let tried = fixture.guest.commands.lock().len();
        fixture.clock.advance(Duration::from_secs(wait));
        // No sooner and no later than one alone would be.
        let again = |fixture: &Pooled| fixture.guest.commands.lock().len() == tried + 4;
        fixture.until("tried again", again).await;
    }
    fixture.until("over", over).await;
    fixture.guest.answers.lock().clear();
    fixture.clock.advance(Duration::from_secs(8));
    fixture.full(4).await;
}

#[tokio::test]
async fn a_claim_takes_no_place_of_the_machines() {
    let tight = |config: &mut EngineConfig| config.limits.sandboxes = 3;
    let fixture = Pooled::where_config(tight).await;
    fixture.put(json!([warm(2)])).await;
    fixture.full(2).await;
    // Two are claimed and one is made: the machine never has more than three.
    let mut unlike = asked();
    unlike.env.insert("FROM".to_owned(), "request".to_owned());
    let (engine, me) = (&fixture.engine, &fixture.me);
    let creates = [asked(), asked(), unlike.clone()].map(|new| engine.create(me, new, None));
    let made = futures_util::future::join_all(creates).await;
    let origins = made.into_iter().map(|made| origin(&made.unwrap().record));
    let expected = [StartKind::Pooled, StartKind::Pooled, StartKind::Cold];
    assert_eq!(origins.collect::<Vec<_>>(), expected);
    let full = engine.create(me, unlike, None).await;
    assert!(matches!(
        full,
        Err(CreateError::Full(QuotaExceeded::Installation(3)))
    ));
}

#[tokio::test]
async fn a_claim_takes_of_what_processor_time_its_team_may_have() {
    // Members have small limits until they are claimed, and count for no team until then.
    let tight = |config: &mut EngineConfig| config.limits.cpu_per_team = Some(MilliCpu(5000));
    let fixture = Pooled::where_config(tight).await;
    fixture.put(json!([warm(4)])).await;
    fixture.full(4).await;
    let (engine, me) = (&fixture.engine, &fixture.me);
    let creates = [asked(), asked(), asked()].map(|new| engine.create(me, new, None));
    let made = futures_util::future::join_all(creates).await;
    let (made, refused): (Vec<_>, Vec<_>) = made.into_iter().partition(Result::is_ok);
    assert_eq!((made.len(), refused.len()), (2, 1));
    for one in refused {
        let full = one.unwrap_err();
        assert!(
            matches!(full, CreateError::Full(QuotaExceeded::Cpu { .. })),
            "{full}"
        );
    }
}

#[tokio::test]
async fn a_failed_member_does_not_count_when_the_request_got_another() {
    let fixture = Pooled::where_config(|config| config.limits.sandboxes_per_team = 1).await;
    fixture.put(json!([warm(1)])).await;
    fixture.full(1).await;
    fixture.fails("start me");
    assert_eq!(origin(&*fixture.create().await), StartKind::Cold);
}

#[tokio::test]
async fn a_start_up_that_takes_long_holds_up_no_pool() {
    let fixture = Pooled::new().await;
    fixture.put(json!([probed(4)])).await;
    fixture.full(4).await;
    fixture.guest.endless.lock().insert("start me".to_owned());
    let (engine, me) = (fixture.engine.clone(), fixture.me.clone());
    let asking = tokio::spawn(async move { engine.create(&me, asked(), None).await });
    let begun = |fixture: &Pooled| {
        let commands = fixture.guest.commands.lock();
        commands
            .iter()
            .any(|(_, command)| command.program == "start")
    };
    fixture.until("begun", begun).await;
    fixture.full(4).await;
    fixture.guest.closed.lock().insert(8888);
    fixture.engine.remove_from_pool("warm").unwrap();
    // As many at a time as ever, and not one.
    let at_once = |fixture: &Pooled| fixture.view().starting == 4;
    fixture.until("made at once", at_once).await;
    asking.abort();
}

#[tokio::test]
async fn an_entry_that_is_corrected_forgets_what_failed_and_is_tried_at_once() {
    let fixture = Pooled::filled(1).await;
    fixture.fails("start me");
    fixture.fails("broken up");
    fixture.create().await;
    assert!(fixture.view().fault.is_some());
    let mut entry = warm(1);
    entry["pool"]["startupCmd"] = json!("start,well");
    fixture.put(json!([entry])).await;
    let forgotten = |fixture: &Pooled| fixture.view().fault.is_none();
    fixture.until("forgotten", forgotten).await;
    // The clock stands still: a pool that waited before its next try would never be full.
    entry["pool"]["warmupCmd"] = json!("broken,up");
    fixture.put(json!([entry])).await;
    let faulty = |fixture: &Pooled| fixture.view().fault.is_some();
    fixture.until("faulty", faulty).await;
    entry["pool"]["warmupCmd"] = json!(["warm", "up"]);
    fixture.put(json!([entry])).await;
    fixture.full(1).await;
    assert_eq!(fixture.view().fault, None);
}
