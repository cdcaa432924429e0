//! How many failed and unstarted builds are remembered.

use super::*;

impl Fixture {
    fn fails(&self, line: &str) {
        let exit = CommandOutput::Exit(CommandExit {
            code: 1,
            error: None,
        });
        let mut answers = self.guest.answers.lock();
        answers.insert(words(line), vec![exit]);
    }
}

#[tokio::test]
async fn of_a_template_the_last_builds_that_failed_are_remembered() {
    let fixture = fixture().await;
    fixture.fails("fails");
    let ready = fixture.build("made", &["a"]).await;
    let early = fixture.build("made", &["fails"]).await;
    let mut last = early.clone();
    for _ in 0..20 {
        fixture.clock.advance(Duration::from_secs(1));
        last = fixture.build("made", &["fails"]).await;
    }
    let engine = &fixture.engine;
    let remembered = || engine.builds_of(&ready.template).len();
    until("forgotten", || remembered() == 1 + 20).await;
    let known = |build: &BuildRecord| engine.build(&fixture.me, build.id).is_some();
    assert!(known(&ready) && known(&last) && !known(&early));
    // An unstarted build has failed when it is cancelled.
    let unbegun = fixture.announce("made").await;
    fixture.clock.advance(Duration::from_secs(1));
    let cancelled = engine.cancel_build(&fixture.me, unbegun.id).await;
    cancelled.unwrap();
    assert!(known(&unbegun));
    assert_eq!(remembered(), 1 + 20);
    let stored = engine_on(
        fixture.directory.path(),
        &fixture.driver,
        &fixture.clock,
        |_| (),
    )
    .await;
    assert_eq!(stored.builds_of(&ready.template).len(), 1 + 20);
}

#[tokio::test]
async fn of_a_team_the_last_builds_that_failed_without_a_template_are_remembered() {
    let fixture = fixture().await;
    fixture.fails("fails");
    let early = fixture.build("made", &["fails"]).await;
    for _ in 0..200 {
        fixture.clock.advance(Duration::from_secs(1));
        fixture.build("made", &["fails"]).await;
    }
    let engine = &fixture.engine;
    let remembered = || engine.builds_of(&early.template).len();
    until("forgotten", || remembered() == 200).await;
    assert!(engine.build(&fixture.me, early.id).is_none());
}

#[tokio::test]
async fn builds_that_nobody_begins_are_bounded_and_said_to_be() {
    let fixture = fixture().await;
    let announce = |number: usize| {
        let new = BuildRequest {
            name: format!("made{number}").parse().unwrap(),
            tags: Vec::new(),
            resources: Resources::default(),
        };
        fixture.engine.announce_build(&fixture.me, new)
    };
    let first = announce(0).await.unwrap();
    for number in 1..200 {
        announce(number).await.unwrap();
    }
    let refused = announce(200).await.unwrap_err();
    assert!(
        matches!(refused, BuildError::TooManyAnnounced(_)),
        "{refused}"
    );
    let words = refused.to_string();
    assert!(
        words.contains("200") && words.contains("begin or cancel"),
        "{words}"
    );
    let cancelled = fixture.engine.cancel_build(&fixture.me, first.id);
    cancelled.await.unwrap();
    announce(200).await.unwrap();
}
