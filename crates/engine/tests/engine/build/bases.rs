//! The base of a build that names a template: the files, user and settings that a create of that name starts from.

use serde_json::{Value, json};
use shoal_core::build::{Base, BuildOutput, Plan, Stage};
use shoal_engine::test_util::FakeRegistry;

use super::*;

/// A fixture whose images come from a registry.
async fn registered() -> Fixture {
    let fixture = fixture().await;
    let (directory, guest) = (fixture.directory.path(), &fixture.guest);
    let images = Arc::new(FakeRegistry::default());
    let (driver, clock) = (&fixture.driver, &fixture.clock);
    let engine = engine_over(directory, driver, clock, guest, images, |_| {}).await;
    Fixture { engine, ..fixture }
}

impl Fixture {
    async fn catalogue(&self, entries: Value) {
        let json = entries.to_string();
        self.engine.replace_catalogue(&json, None).await.unwrap();
    }

    /// Builds one step on the template with this name.
    async fn built_on(&self, base: &str) -> BuildOutput {
        let built = self.outcome_on(Base::Template(base.parse().unwrap()));
        let build = built.await;
        assert_eq!(build.status, BuildStatus::Ready, "{:?}", build.failure);
        build.made.clone().unwrap()
    }

    /// Builds one step on a base.
    async fn outcome_on(&self, base: Base) -> Arc<BuildRecord> {
        let stage = Stage {
            base,
            steps: vec![run("step")],
        };
        let plan = Plan {
            stages: vec![stage],
            ..plan(&[])
        };
        let build = self.announce("made").await;
        self.begin(&build, plan).await.unwrap();
        self.built(&build).await
    }

    /// Builds one step on a system that this machine makes, or on `base`.
    async fn on_release(&self, image: &str) -> Arc<BuildRecord> {
        let (image, otherwise) = (image.parse().unwrap(), "base".parse().unwrap());
        self.outcome_on(Base::Release { image, otherwise }).await
    }

    /// The last command that installed an image's missing programs, as the fake daemon spells it.
    fn made_fit(&self) -> Option<String> {
        let commands = self.guest.commands.lock();
        let mut all = commands.iter().rev().map(|(_, command)| command);
        let fit = all.find(|c| c.args.iter().any(|arg| arg.contains("not installed:")))?;
        Some(format!("{} {}", fit.program, fit.args.join(" ")))
    }

    /// The user and the working directory of the step; `None` if it came from a layer and did not run.
    fn done(&self) -> Option<(String, String)> {
        let commands = std::mem::take(&mut *self.guest.commands.lock());
        let steps = commands
            .into_iter()
            .filter(|(_, c)| c.args.ends_with(&["step".to_owned()]));
        let mut steps: Vec<_> = steps.collect();
        assert!(steps.len() <= 1);
        let (target, command) = steps.pop()?;
        Some((target.user.unwrap(), command.cwd.unwrap()))
    }
}

fn done(user: &str, workdir: &str) -> Option<(String, String)> {
    Some((user.to_owned(), workdir.to_owned()))
}

#[tokio::test]
async fn files_user_and_layers_are_of_the_entry_that_a_create_of_the_name_gets() {
    let fixture = registered().await;
    let stock = fixture.built_on("base").await;
    assert_eq!(stock.image.as_str(), "test/image:1");
    assert_eq!(fixture.done(), done("user", "/home/user"));
    fixture
        .catalogue(
            json!([{"name": "base", "image": "registry.test/other:1", "description": "d",
            "env": {"OWN": "1"}, "startCmd": "serve"}]),
        )
        .await;
    let other = fixture.built_on("base").await;
    assert_eq!(other.image.as_str(), "registry.test/other:1");
    assert_eq!(
        (other.user.as_str(), other.workdir.as_deref()),
        ("node", Some("/app"))
    );
    assert_eq!(other.env["OWN"], "1");
    assert_eq!(other.start.unwrap().command, "serve");
    // No layer exists on this image, although its name is the same.
    assert_eq!(fixture.done(), done("node", "/app"));
    fixture.built_on("base").await;
    assert_eq!(fixture.done(), None);
    // The entry's variables and user have changed, so the layer of the step is not reused.
    fixture
        .catalogue(
            json!([{"name": "base", "image": "registry.test/other:1", "description": "d",
            "env": {"OWN": "2"}, "user": "root"}]),
        )
        .await;
    fixture.built_on("base").await;
    assert_eq!(fixture.done(), done("root", "/app"));
    fixture.catalogue(json!([])).await;
    assert_eq!(
        fixture.built_on("base").await.image.as_str(),
        "test/image:1"
    );
    assert_eq!(fixture.done(), None, "it was done at first");
}

#[tokio::test]
async fn a_dynamic_entry_and_a_snapshot_are_stood_on_as_a_create_does() {
    let fixture = registered().await;
    fixture
        .catalogue(json!([{"name": "family", "type": "dynamic", "description": "d",
            "pattern": "family-(?P<name>.+)\\.(?P<version>.+)", "image": "registry.test/<name>:<version>"}]))
        .await;
    for name in ["family-go.1.21", "family-go.1.21:default"] {
        let made = fixture.built_on(name).await;
        assert_eq!(made.image.as_str(), "registry.test/go:1.21", "{name}");
    }
    fixture.done();
    let id = fixture.create().await;
    let (permit, _) = fixture.engine.authorize(&fixture.me, &id).unwrap();
    let new = NewSnapshot {
        name: Some("saved".parse().unwrap()),
        ..NewSnapshot::default()
    };
    fixture
        .engine
        .snapshot(&fixture.me, &permit, new)
        .await
        .unwrap();
    let made = fixture.built_on("saved").await;
    assert_eq!(made.image.as_str(), "test/image:1");
    assert_eq!(fixture.done(), done("user", "/home/user"));
}

#[tokio::test]
async fn steps_on_a_template_of_root_start_in_its_home() {
    let fixture = registered().await;
    let template = Template {
        team: Some(fixture.me.team),
        user: "root".to_owned(),
        ..template("roots", "test/image:1")
    };
    fixture.engine.put_template(template).await.unwrap();
    let made = fixture.built_on("roots").await;
    assert_eq!(made.workdir.as_deref(), Some("/root"));
    let commands = fixture.guest.commands.lock().clone();
    // The image may have no such directory. The build creates it before the step runs.
    let made_fit = commands
        .iter()
        .position(|(_, c)| c.args.ends_with(&["/root".to_owned(), "root".to_owned()]));
    let step = commands
        .iter()
        .position(|(_, c)| c.args.ends_with(&["step".to_owned()]));
    assert!(made_fit.unwrap() < step.unwrap());
    assert_eq!(fixture.done(), done("root", "/root"));
}

#[tokio::test]
async fn what_the_installation_builds_stands_on_its_own_whatever_the_catalogue_calls_so() {
    let fixture = registered().await;
    fixture.engine.register_builtin(builtin::offer());
    fixture
        .catalogue(json!([{"name": "base", "image": "registry.test/other:1", "description": "d"}]))
        .await;
    let name = builtin::NAME.parse().unwrap();
    let admin = Principal {
        admin: true,
        ..fixture.me.clone()
    };
    let build = fixture
        .engine
        .build_builtin(&admin, &name, false)
        .await
        .unwrap();
    let build = fixture.built(&build).await;
    assert_eq!(build.made.as_ref().unwrap().image.as_str(), "test/image:1");
}

#[tokio::test]
async fn what_lacks_programs_is_tried_again_by_each_build_and_not_taken_for_what_has_them() {
    let fixture = registered().await;
    fixture
        .catalogue(json!([
            {"name": "one", "image": "registry.test/one:1", "description": "d", "user": "root"},
            {"name": "two", "image": "registry.test/one:1", "description": "d"}
        ]))
        .await;
    fixture.built_on("two").await;
    let fit = fixture.made_fit().unwrap();
    let without = CommandOutput::Exit(CommandExit {
        code: 75,
        error: None,
    });
    let warned = async || {
        let build = fixture
            .engine
            .find_template(&fixture.me, &"made".parse().unwrap());
        let build = build.unwrap().build;
        let log = fixture
            .engine
            .build_log(build, LogLevel::Warn)
            .await
            .unwrap();
        log.iter()
            .any(|entry| entry.message.contains("cannot be installed"))
    };
    fixture.done();
    fixture
        .guest
        .answers
        .lock()
        .insert(fit.clone(), vec![without]);
    // Each build tries to install the programs. While that fails, the layer of the step made without them is reused.
    for expected in [done("root", "/app"), None] {
        fixture.built_on("one").await;
        assert_eq!(fixture.made_fit().as_ref(), Some(&fit));
        assert_eq!(fixture.done(), expected);
        assert!(warned().await);
    }
    fixture.guest.answers.lock().clear();
    for (tried, expected) in [(true, done("root", "/app")), (false, None)] {
        fixture.built_on("one").await;
        assert_eq!(fixture.made_fit().is_some(), tried);
        assert_eq!(fixture.done(), expected);
        assert!(!warned().await);
    }
    assert!(
        fixture.driver.sandboxes().is_empty(),
        "nothing is left running"
    );
}

#[tokio::test]
async fn a_snapshot_of_a_bare_image_is_made_fit_for_use() {
    let fixture = registered().await;
    fixture
        .catalogue(json!([{"name": "bare", "image": "registry.test/bare:1", "description": "d"}]))
        .await;
    let made = fixture.engine.create(&fixture.me, new("bare"), None).await;
    let id = made.unwrap().record.id.clone();
    let (permit, _) = fixture.engine.authorize(&fixture.me, &id).unwrap();
    let asked = NewSnapshot {
        name: Some("saved".parse().unwrap()),
        ..NewSnapshot::default()
    };
    let taken = fixture.engine.snapshot(&fixture.me, &permit, asked).await;
    taken.unwrap();
    for tried in [true, false] {
        fixture.guest.commands.lock().clear();
        fixture.built_on("saved").await;
        assert_eq!(fixture.made_fit().is_some(), tried);
    }
}

#[tokio::test]
async fn layers_are_of_what_their_steps_could_reach() {
    let fixture = registered().await;
    let entry = |name: &str, open: bool| {
        json!({"name": name, "image": "registry.test/one:1", "description": "d",
            "network": {"allowInternetAccess": open}})
    };
    fixture
        .catalogue(json!([entry("open", true), entry("closed", false)]))
        .await;
    for name in ["open", "closed"] {
        fixture.built_on(name).await;
        assert_eq!(fixture.done(), done("node", "/app"), "{name}");
    }
    for name in ["open", "closed"] {
        fixture.built_on(name).await;
        assert_eq!(fixture.done(), None, "{name}");
    }
}

#[tokio::test]
async fn steps_start_where_the_image_has_the_home_of_its_user() {
    let fixture = registered().await;
    let accounts = "root:x:0:0::/root:/bin/sh\nnginx:x:101:101::/var/cache/nginx:/sbin/nologin\n";
    fixture
        .guest
        .files
        .lock()
        .insert("/etc/passwd".to_owned(), accounts.into());
    let template = Template {
        team: Some(fixture.me.team),
        user: "nginx".to_owned(),
        ..template("web", "test/image:1")
    };
    fixture.engine.put_template(template).await.unwrap();
    let made = fixture.built_on("web").await;
    assert_eq!(made.workdir.as_deref(), Some("/var/cache/nginx"));
    assert_eq!(fixture.done(), done("nginx", "/var/cache/nginx"));
    // A reused layer has this working directory, too. The build does not read the image's accounts again.
    fixture.guest.files.lock().clear();
    let made = fixture.built_on("web").await;
    assert_eq!(made.workdir.as_deref(), Some("/var/cache/nginx"));
    assert_eq!(fixture.done(), None);
}

#[tokio::test]
async fn r2_002_a_system_that_no_mirror_has_is_replaced_and_the_log_says_so() {
    let fixture = registered().await;
    let image_of = |build: Arc<BuildRecord>| build.made.clone().unwrap().image.to_string();
    let made = fixture.on_release("shoal/base-noble:1").await;
    assert_eq!(image_of(made), "shoal/base-noble:1");
    // It has what `base` has, so nothing is installed.
    assert_eq!(fixture.made_fit(), None);
    assert!(fixture.done().is_some());
    let made = fixture.on_release("shoal/missing:1").await;
    let log = fixture.engine.build_log(made.id, LogLevel::Warn).await;
    let log: Vec<_> = log.unwrap().into_iter().map(|l| l.message).collect();
    let told = "shoal/missing:1 is not available from the package mirrors of this machine";
    assert!(log.iter().any(|line| line.contains(told)), "{log:?}");
    assert_eq!(image_of(made), "test/image:1");
    assert_eq!(fixture.done(), done("user", "/home/user"));
    // Nothing else is a reason to take another system.
    let failed = fixture.on_release("shoal/foreign:1").await;
    assert_eq!(failed.status, BuildStatus::Error);
}
