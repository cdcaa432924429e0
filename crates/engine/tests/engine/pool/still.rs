//! Waiting members are frozen.

use super::*;

const SETTLED: Duration = Duration::from_secs(10);

async fn frozen(fixture: &Pooled) {
    let all = |fixture: &Pooled| {
        let members = fixture.members();
        members.iter().all(|id| fixture.driver.is_frozen(id))
    };
    fixture.until("frozen", all).await;
}

#[tokio::test]
async fn members_are_frozen_while_they_wait_and_thaw_when_claimed() {
    let fixture = Pooled::filled(2).await;
    fixture.clock.advance(SETTLED - Duration::from_millis(1));
    let early = fixture.create().await;
    assert_eq!(origin(&early), StartKind::Pooled);
    fixture.full(2).await;
    fixture.clock.advance(Duration::from_millis(1));
    let first = fixture.members().remove(0);
    fixture
        .until("frozen", |fixture| fixture.driver.is_frozen(&first))
        .await;
    let made = fixture.create().await;
    assert_eq!((origin(&made), &made.id), (StartKind::Pooled, &first));
    for id in [&early.id, &made.id] {
        assert!(!fixture.driver.is_frozen(id));
    }
    fixture.full(2).await;
    fixture.clock.advance(SETTLED);
    frozen(&fixture).await;
    assert!(
        !fixture.driver.is_frozen(&made.id),
        "it is no member any more"
    );
}

#[tokio::test]
async fn the_next_server_lets_them_go_on_as_well() {
    let mut fixture = Pooled::filled(1).await;
    fixture.clock.advance(SETTLED / 2);
    fixture.crash().await;
    fixture.full(1).await;
    let id = fixture.members().remove(0);
    assert!(!fixture.driver.is_frozen(&id), "it has not settled yet");
    fixture.clock.advance(SETTLED);
    frozen(&fixture).await;
    fixture.crash().await;
    fixture.full(1).await;
    let made = fixture.create().await;
    assert_eq!(origin(&made), StartKind::Pooled);
    assert!(!fixture.driver.is_frozen(&made.id));
}

#[tokio::test]
async fn an_entry_may_want_its_members_to_go_on() {
    let fixture = Pooled::filled(1).await;
    fixture.clock.advance(SETTLED);
    frozen(&fixture).await;
    let before = fixture.members();
    let mut entry = warm(1);
    entry["pool"]["keepRunning"] = json!(true);
    let mut other = warm(1);
    other["name"] = json!("other");
    fixture.put(json!([entry, other])).await;
    let replaced = |fixture: &Pooled| fixture.members().iter().all(|id| !before.contains(id));
    fixture.until("replaced", replaced).await;
    let both = |fixture: &Pooled| {
        let pools = fixture.engine.pools();
        pools
            .iter()
            .all(|pool| (pool.ready, pool.starting) == (1, 0))
    };
    fixture.until("full", both).await;
    let id = fixture.members().remove(0);
    let others = fixture.engine.pool_members("other").unwrap();
    fixture.clock.advance(SETTLED);
    // Both are looked at in turn.
    let all = |fixture: &Pooled| others.iter().all(|one| fixture.driver.is_frozen(&one.id));
    fixture.until("frozen", all).await;
    let made = fixture.create().await;
    assert_eq!(made.id, id);
    assert_eq!(fixture.driver.freezes(&id), 0);
}
