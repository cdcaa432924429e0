//! Other tokens for a sandbox that runs.

use shoal_engine::NewSnapshot;

use super::*;

impl Fixture {
    fn tokens(&self, id: &SandboxId) -> (String, Option<String>) {
        let (_, record) = self.engine.authorize(&self.me, id).unwrap();
        let envd = self.engine.envd_access_token(&record).unwrap();
        let traffic = self.engine.traffic_access_token(&record);
        let traffic = traffic.map(|token| token.reveal().to_owned());
        (envd.reveal().to_owned(), traffic)
    }

    /// The tokens of the last start: the one that it showed, and the one that it gave.
    fn last_init(&self) -> (Option<String>, Option<String>) {
        let known = self.guest.known.lock().last().cloned().flatten();
        let given = self.guest.given.lock().last().cloned().flatten();
        (known, given)
    }

    async fn private(&self) -> SandboxId {
        let mut asked = new("base");
        asked.network.allow_public_traffic = Some(false);
        let made = self.engine.create(&self.me, asked, None).await.unwrap();
        made.record.id.clone()
    }

    /// The same installation after a restart.
    async fn restarted(self) -> Self {
        let (directory, driver, clock) = (self.directory.path(), &self.driver, &self.clock);
        let engine = engine_with(directory, driver, clock, &self.guest, |_| {}).await;
        Self { engine, ..self }
    }
}

#[tokio::test]
async fn a_rotation_replaces_both_tokens_for_good_and_ends_what_the_old_ones_opened() {
    let fixture = fixture().await;
    let (id, bystander) = (fixture.private().await, fixture.create().await);
    let (before, others) = (fixture.tokens(&id), fixture.tokens(&bystander));
    let routes = fixture.engine.routes();
    let Lookup::Running(route) = routes.lookup(&id) else {
        panic!("it runs")
    };
    let ended = routes.ended(&route);
    let (permit, _) = fixture.engine.authorize(&fixture.me, &id).unwrap();
    fixture.engine.rotate_tokens(&permit).await.unwrap();
    ended.await;
    let after = fixture.tokens(&id);
    assert_ne!(before.0, after.0);
    assert_ne!(before.1, after.1);
    assert_eq!(
        fixture.last_init(),
        (Some(before.0.clone()), Some(after.0.clone()))
    );
    assert_eq!(fixture.tokens(&bystander), others);
    let Lookup::Running(route) = routes.lookup(&id) else {
        panic!("it runs")
    };
    let envd = route.envd_access_token.as_ref().unwrap();
    assert!(envd.matches(&after.0) && !envd.matches(&before.0));

    // A clone begins with what the daemon in its memory asks for, and has tokens of its own.
    let taken = fixture
        .engine
        .snapshot(&fixture.me, &permit, NewSnapshot::default())
        .await;
    let taken = taken.unwrap().reference("mine");
    let clone = fixture.engine.create(&fixture.me, new(&taken), None).await;
    let clone = clone.unwrap().record.id.clone();
    let own = fixture.tokens(&clone).0;
    assert_eq!(
        fixture.last_init(),
        (Some(after.0.clone()), Some(own.clone()))
    );
    assert!(own != after.0 && own != before.0);

    // A pause and a restart change nothing.
    fixture.engine.pause(&permit, None, false).await.unwrap();
    let paused = fixture.engine.rotate_tokens(&permit).await.unwrap_err();
    assert!(matches!(paused, SandboxError::Paused(_)), "{paused}");
    let fixture = fixture.restarted().await;
    assert_eq!(fixture.tokens(&id), after);
    let (permit, _) = fixture.engine.authorize(&fixture.me, &id).unwrap();
    fixture.engine.rotate_tokens(&permit).await.unwrap_err();
    let resumed = fixture
        .engine
        .resume(&permit, Duration::from_secs(60), true)
        .await;
    resumed.unwrap();
    assert_eq!(
        fixture.last_init(),
        (Some(after.0.clone()), Some(after.0.clone()))
    );
    fixture.engine.rotate_tokens(&permit).await.unwrap();
    assert_ne!(fixture.tokens(&id), after);
}

#[tokio::test]
async fn a_rotation_whose_answer_is_lost_is_finished_with_the_same_tokens() {
    let fixture = fixture().await;
    let id = fixture.create().await;
    let before = fixture.tokens(&id);
    let (permit, _) = fixture.engine.authorize(&fixture.me, &id).unwrap();
    *fixture.guest.lost.lock() = true;
    let lost = fixture.engine.rotate_tokens(&permit).await.unwrap_err();
    assert!(matches!(lost, SandboxError::Guest(_)), "{lost}");
    let (_, given) = fixture.last_init();
    *fixture.guest.lost.lock() = false;
    let fixture = fixture.restarted().await;
    let settled = || fixture.tokens(&id) != before;
    until("settled", settled).await;
    // The daemon accepts the old and the new token, so either answer is right.
    assert_eq!(fixture.last_init(), (Some(before.0.clone()), given.clone()));
    assert_eq!(Some(fixture.tokens(&id).0), given);
}

#[tokio::test]
async fn what_has_no_tokens_has_none_to_rotate() {
    let fixture = fixture().await;
    let asked = SandboxRequest {
        secure: false,
        ..new("base")
    };
    let made = fixture.engine.create(&fixture.me, asked, None).await;
    let id = made.unwrap().record.id.clone();
    let (permit, _) = fixture.engine.authorize(&fixture.me, &id).unwrap();
    let refused = fixture.engine.rotate_tokens(&permit).await.unwrap_err();
    assert!(matches!(refused, SandboxError::NoTokens(_)), "{refused}");
}
