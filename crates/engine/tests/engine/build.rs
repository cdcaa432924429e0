//! Builds: a step runs once, tags refer to builds, and a build that has ended leaves nothing running.

mod bases;
mod begun;
mod environment;
mod forgotten;
mod inherited;
mod stages;
mod tags;

use std::collections::HashSet;

use shoal_core::build::{Action, Base, BuildRecord, BuildStatus, LogLevel, Plan, Stage, Step};
use shoal_core::driver::DriverError;
use shoal_core::ports::inside::{CommandExit, CommandOutput};
use shoal_core::resources::Resources;
use shoal_core::snapshot::Contents;
use shoal_core::template::TemplateKey;
use shoal_engine::{BuildError, BuildRequest, NewSnapshot, TemplateError};

use super::*;

fn run(line: &str) -> Step {
    Step {
        action: Action::Run {
            command: line.to_owned(),
            user: None,
        },
        line: None,
        force: false,
    }
}

fn plan(lines: &[&str]) -> Plan {
    Plan {
        stages: vec![Stage {
            base: Base::Template("base".parse().unwrap()),
            steps: lines.iter().map(|line| run(line)).collect(),
        }],
        keep_env: Vec::new(),
        start: None,
        ready: None,
        force: false,
    }
}

/// The command line of a step, as the fake daemon spells it.
fn words(line: &str) -> String {
    format!("/bin/bash -l -c {line}")
}

impl Fixture {
    async fn announce(&self, name: &str) -> Arc<BuildRecord> {
        let new = BuildRequest {
            name: name.parse().unwrap(),
            tags: Vec::new(),
            resources: Resources::default(),
        };
        self.engine.announce_build(&self.me, new).await.unwrap()
    }

    async fn begin(&self, build: &BuildRecord, plan: Plan) -> Result<(), BuildError> {
        let begun = self.engine.begin_build(&self.me, build.id, plan);
        begun.await
    }

    fn now_of(&self, build: &BuildRecord) -> Arc<BuildRecord> {
        self.engine.build(&self.me, build.id).unwrap()
    }

    /// Waits until a build has ended.
    async fn built(&self, build: &BuildRecord) -> Arc<BuildRecord> {
        loop {
            let now = self.now_of(build);
            if now.status.is_final() {
                return now;
            }
            tokio::task::yield_now().await;
        }
    }

    async fn build(&self, name: &str, lines: &[&str]) -> Arc<BuildRecord> {
        let build = self.announce(name).await;
        self.begin(&build, plan(lines)).await.unwrap();
        self.built(&build).await
    }

    fn ran(&self) -> Vec<String> {
        let commands = std::mem::take(&mut *self.guest.commands.lock());
        let lines = commands
            .into_iter()
            .filter_map(|(_, c)| c.args.last().cloned());
        lines.collect()
    }

    async fn said(&self, build: &BuildRecord) -> Vec<String> {
        let log = self
            .engine
            .build_log(build.id, LogLevel::Debug)
            .await
            .unwrap();
        log.into_iter().map(|entry| entry.message).collect()
    }
}

#[tokio::test]
async fn what_was_done_is_not_done_again_as_far_as_it_is_the_same() {
    let fixture = fixture().await;
    let one = fixture.build("made", &["a", "b"]).await;
    assert_eq!(one.status, BuildStatus::Ready, "{:?}", one.failure);
    assert_eq!(fixture.ran(), ["a", "b"]);
    let two = fixture.build("made", &["a", "b"]).await;
    assert_eq!((two.status, fixture.ran().len()), (BuildStatus::Ready, 0));
    assert_eq!(one.template, two.template);
    fixture.build("made", &["a", "c", "b"]).await;
    assert_eq!(fixture.ran(), ["c", "b"]);
    // Another team has no layers yet.
    let other = Fixture {
        me: principal(&fixture.engine, "other").await,
        ..fixture
    };
    other.build("made", &["a", "b"]).await;
    assert_eq!(other.ran(), ["a", "b"]);
    assert_eq!(other.driver.sandboxes().len(), 0, "nothing is left running");
}

#[tokio::test]
async fn a_step_that_fails_ends_the_build_and_leaves_no_template() {
    let fixture = fixture().await;
    let exit = CommandOutput::Exit(CommandExit {
        code: 3,
        error: None,
    });
    let said = CommandOutput::Stderr("why\nand how".into());
    fixture
        .guest
        .answers
        .lock()
        .insert(words("b"), vec![said, exit]);
    let build = fixture.build("made", &["a", "b", "c"]).await;
    let failure = build.failure.clone().unwrap();
    assert_eq!(failure.part.unwrap().to_string(), "2");
    assert!(
        failure.message.contains("exit status 3"),
        "{}",
        failure.message
    );
    let log = fixture.said(&build).await;
    assert!(
        log.contains(&"why".to_owned()) && log.contains(&"and how".to_owned()),
        "{log:?}"
    );
    assert_eq!(fixture.ran(), ["a", "b"]);
    let reference: TemplateRef = "made".parse().unwrap();
    assert!(
        fixture
            .engine
            .resolve_template(&fixture.me, &reference)
            .is_err()
    );
    assert!(fixture.driver.sandboxes().is_empty());
    // The layers of the successful steps are kept.
    fixture.guest.answers.lock().clear();
    fixture.build("made", &["a", "b", "c"]).await;
    assert_eq!(fixture.ran(), ["b", "c"]);
}

#[tokio::test]
async fn a_build_that_is_cancelled_or_forgotten_leaves_nothing() {
    let fixture = fixture().await;
    fixture.guest.endless.lock().insert(words("for ever"));
    let build = fixture.announce("made").await;
    fixture.begin(&build, plan(&["for ever"])).await.unwrap();
    let again = fixture.begin(&build, plan(&["a"])).await;
    assert!(
        matches!(again, Err(BuildError::NotWaiting(..))),
        "{again:?}"
    );
    while fixture.guest.commands.lock().is_empty() {
        tokio::task::yield_now().await;
    }
    let cancelled = fixture.engine.cancel_build(&fixture.me, build.id);
    cancelled.await.unwrap();
    let ended = fixture.built(&build).await;
    assert_eq!(
        ended.failure.as_ref().unwrap().message,
        "the build was cancelled"
    );
    while !fixture.driver.sandboxes().is_empty() {
        tokio::task::yield_now().await;
    }
    // A build that was announced but not started, and a build whose server ends.
    let unbegun = fixture.announce("unbegun").await;
    let lost = fixture.announce("lost").await;
    fixture.begin(&lost, plan(&["for ever"])).await.unwrap();
    while fixture.driver.sandboxes().is_empty() {
        tokio::task::yield_now().await;
    }
    let directory = fixture.directory.path();
    let engine = engine_on(directory, &fixture.driver, &fixture.clock, |_| ()).await;
    let found = engine.build(&fixture.me, lost.id).unwrap();
    assert!(
        found
            .failure
            .as_ref()
            .unwrap()
            .message
            .contains("restarted")
    );
    let found = engine.build(&fixture.me, unbegun.id).unwrap();
    assert_eq!(found.status, BuildStatus::Waiting);
    while !fixture.driver.sandboxes().is_empty() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn what_no_tag_means_is_dropped_and_what_one_means_is_kept() {
    let fixture = fixture().await;
    let one = fixture.build("made:v1", &["a"]).await;
    let two = fixture.build("made", &["b"]).await;
    let three = fixture.build("made", &["c"]).await;
    let made = |build: &BuildRecord| fixture.now_of(build).made.is_some();
    assert_eq!((made(&one), made(&two), made(&three)), (true, false, true));
    for (name, build) in [("made:v1", &one), ("made", &three)] {
        let reference: TemplateRef = name.parse().unwrap();
        let found = fixture.engine.resolve_template(&fixture.me, &reference);
        assert_eq!(found.unwrap().build, build.id);
    }
    let reference: TemplateRef = "made".parse().unwrap();
    let tags = ["v1".to_owned()];
    let engine = &fixture.engine;
    engine
        .remove_tags(&fixture.me, &reference, &tags)
        .await
        .unwrap();
    assert!(!made(&one));
    engine
        .delete_template(&fixture.me, &reference)
        .await
        .unwrap();
    assert!(engine.builds_of(&one.template).is_empty());
    // Only layers are left. The next server finds them at its start.
    let before = fixture.driver.kept().len();
    let directory = fixture.directory.path();
    let again = engine_on(directory, &fixture.driver, &fixture.clock, |_| ()).await;
    assert_eq!(fixture.driver.kept().len(), before);
    drop(again);
    let last = fixture.build("made", &["a"]).await;
    assert_eq!((last.status, fixture.ran().len()), (BuildStatus::Ready, 3));
}

#[tokio::test]
async fn builds_of_the_same_at_once_do_not_take_each_others_layers() {
    let fixture = fixture().await;
    let mut builds = Vec::new();
    for name in ["one", "two", "three", "four"] {
        let build = fixture.announce(name).await;
        fixture.begin(&build, plan(&["a", "b", "c"])).await.unwrap();
        builds.push(build);
    }
    for build in &builds {
        let ended = fixture.built(build).await;
        assert_eq!(ended.status, BuildStatus::Ready, "{:?}", ended.failure);
    }
    // The snapshot that each build refers to exists. Snapshots that none refers to are removed.
    let mut needed = HashSet::new();
    for build in &builds {
        let made = fixture.now_of(build).made.clone().unwrap();
        assert!(fixture.driver.kept().contains(&made.snapshot.id));
        needed.insert(made.snapshot.id);
    }
    while fixture.driver.kept().len() > needed.len() + 4 {
        tokio::task::yield_now().await;
    }
    fixture.ran();
    fixture.build("five", &["a", "b", "c"]).await;
    assert!(fixture.ran().is_empty());
}

#[tokio::test]
async fn a_build_of_many_steps_does_not_lose_its_own_layers() {
    let fixture = fixture().await;
    let lines: Vec<String> = (0..140).map(|n| n.to_string()).collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let build = fixture.build("long", &lines[..130]).await;
    assert_eq!(build.status, BuildStatus::Ready, "{:?}", build.failure);
    fixture.ran();
    let build = fixture.build("long", &lines).await;
    assert_eq!(build.status, BuildStatus::Ready, "{:?}", build.failure);
    let most = 128 + 1;
    while fixture.driver.kept().len() > most {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_template_whose_builds_all_failed_can_be_removed() {
    let fixture = fixture().await;
    let exit = CommandOutput::Exit(CommandExit {
        code: 1,
        error: None,
    });
    fixture.guest.answers.lock().insert(words("a"), vec![exit]);
    let build = fixture.build("made", &["a"]).await;
    assert_eq!(build.status, BuildStatus::Error);
    let name: TemplateRef = "made".parse().unwrap();
    fixture
        .engine
        .delete_template(&fixture.me, &name)
        .await
        .unwrap();
    assert!(fixture.engine.builds_of(&build.template).is_empty());
    let again = fixture.engine.delete_template(&fixture.me, &name).await;
    assert!(
        matches!(again, Err(TemplateError::NotFound(_))),
        "{again:?}"
    );
}

#[tokio::test]
async fn what_cannot_go_on_from_its_memory_boots_and_is_started() {
    let fixture = fixture().await;
    let build = fixture.announce("made").await;
    let plan = Plan {
        start: Some("serve".to_owned()),
        ready: Some("asked".to_owned()),
        ..plan(&[])
    };
    fixture.begin(&build, plan).await.unwrap();
    let build = fixture.built(&build).await;
    assert_eq!(build.status, BuildStatus::Ready, "{:?}", build.failure);
    fixture.ran();
    let create = || {
        let new = SandboxRequest::of("made".parse::<TemplateKey>().unwrap());
        fixture.engine.create(&fixture.me, new, None)
    };
    let restored = create().await.unwrap().record;
    assert!(restored.spec.snapshot.as_ref().unwrap().memory);
    assert!(fixture.ran().is_empty());
    // Another release of the runtime cannot read the saved memory, so the sandbox boots and runs the start command.
    fixture.driver.refuse(Refusals {
        memory: true,
        ..Refusals::default()
    });
    let booted = create().await.unwrap().record;
    assert!(!booted.spec.snapshot.as_ref().unwrap().memory);
    assert_eq!(fixture.ran(), ["serve", "asked"]);
    // A resume after a pause without memory runs it again. After a pause with memory, the processes continue.
    for (contents, runs) in [(Contents::Filesystem, 2), (Contents::Memory, 0)] {
        let (permit, _) = fixture.engine.authorize(&fixture.me, &booted.id).unwrap();
        let paused = fixture.engine.pause(&permit, Some(contents), false).await;
        paused.unwrap();
        let resumed = fixture
            .engine
            .connect(&permit, Duration::from_secs(60), true);
        assert!(resumed.await.unwrap().resumed);
        assert_eq!(fixture.ran().len(), runs);
    }
    // A snapshot that a user took consists of its memory, so it does not boot without it.
    fixture.driver.refuse(Refusals::default());
    let (permit, _) = fixture.engine.authorize(&fixture.me, &booted.id).unwrap();
    let new = NewSnapshot::default();
    let taken = fixture.engine.snapshot(&fixture.me, &permit, new).await;
    let template = taken.unwrap().template;
    fixture.driver.refuse(Refusals {
        memory: true,
        ..Refusals::default()
    });
    let new = SandboxRequest::of(template.as_str().parse::<TemplateKey>().unwrap());
    let refused = fixture.engine.create(&fixture.me, new, None).await;
    assert!(matches!(
        refused,
        Err(CreateError::Driver(DriverError::Unusable(_)))
    ));
}
