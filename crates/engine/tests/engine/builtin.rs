//! Builtin templates, which are built on demand.

use shoal_core::build::{Action, Base, BuildRecord, BuildStatus, Plan, Stage, Step};
use shoal_core::ports::inside::{CommandExit, CommandOutput};
use shoal_core::resources::Resources;
use shoal_engine::{
    BuildError, BuildOnDemand, BuildRequest, BuiltinDefinition, BuiltinError, BuiltinTemplate,
    PreparedBuiltin, TagError, TemplateError,
};

use super::*;

pub(super) const NAME: &str = "interpreter";
const LINE: &str = "install";

struct Definition;

impl BuiltinDefinition for Definition {
    fn prepare(&self) -> std::io::Result<PreparedBuiltin> {
        let action = Action::Run {
            command: LINE.to_owned(),
            user: None,
        };
        let step = Step {
            action,
            line: None,
            force: false,
        };
        let stage = Stage {
            base: Base::Template("base".parse().unwrap()),
            steps: vec![step],
        };
        let plan = Plan {
            stages: vec![stage],
            keep_env: Vec::new(),
            start: None,
            ready: None,
            force: false,
        };
        let hash = "0a".repeat(32).parse().unwrap();
        Ok(PreparedBuiltin {
            plan,
            files: vec![(hash, b"tar".to_vec())],
        })
    }
}

/// A builtin template with one step, whose outcome the fake guest decides.
pub(super) fn offer() -> BuiltinTemplate {
    BuiltinTemplate {
        id: TemplateId::from_entropy([9; 16]),
        name: NAME.parse().unwrap(),
        description: "of all".to_owned(),
        resources: Resources::default(),
        definition: Arc::new(Definition),
    }
}

/// A guest in which the step fails.
fn failing() -> FakeGuest {
    let guest = FakeGuest::default();
    let exit = CommandOutput::Exit(CommandExit {
        code: 3,
        error: None,
    });
    let words = format!("/bin/bash -l -c {LINE}");
    guest.answers.lock().insert(words, vec![exit]);
    guest
}

async fn offering(guest: FakeGuest) -> Fixture {
    let anyone = |config: &mut EngineConfig| config.build_on_demand = BuildOnDemand::Everyone;
    let fixture = fixture_of(guest, anyone).await;
    fixture.engine.register_builtin(offer());
    fixture
}

impl Fixture {
    fn reference(&self) -> TemplateRef {
        NAME.parse().unwrap()
    }

    async fn ask(&self) -> Result<(), CreateError> {
        let new = SandboxRequest::of(self.reference());
        self.engine.create(&self.me, new, None).await.map(|_| ())
    }

    /// The newest build, after it has ended.
    async fn builtin_build(&self) -> Arc<BuildRecord> {
        let id = TemplateId::from_entropy([9; 16]);
        loop {
            let newest = self.engine.builds_of(&id).into_iter().next();
            match newest {
                Some(build) if build.status.is_final() => return build,
                _ => tokio::task::yield_now().await,
            }
        }
    }

    async fn until_there(&self) -> Arc<Template> {
        loop {
            match self.engine.find_template(&self.me, &self.reference()) {
                Some(template) => return template,
                None => tokio::task::yield_now().await,
            }
        }
    }
}

#[tokio::test]
async fn the_first_create_begins_a_build_that_all_share_and_may_use() {
    let fixture = offering(FakeGuest::default()).await;
    let guests = principal(&fixture.engine, "guests").await;
    let Err(CreateError::BeingBuilt { template, build }) = fixture.ask().await else {
        panic!("the create does not say that the template is being built");
    };
    assert_eq!(template.as_str(), NAME);
    let (_, number) = build.split_once('/').unwrap();
    let number = number.parse().unwrap();
    // All callers see the same build. It belongs to a team without keys, and they cannot cancel it.
    for who in [&fixture.me, &guests] {
        let seen = fixture.engine.build(who, number).unwrap();
        assert!(seen.builtin && seen.team != who.team);
        let ended = fixture.engine.cancel_build(who, number).await;
        assert!(matches!(ended, Err(BuildError::NotFound(_))), "{ended:?}");
    }
    assert_eq!(fixture.builtin_build().await.status, BuildStatus::Ready);
    let template = fixture.until_there().await;
    assert_eq!(
        (
            template.team,
            template.public,
            template.description.as_str()
        ),
        (None, true, "of all")
    );
    fixture.ask().await.unwrap();
    let new = SandboxRequest::of(fixture.reference());
    fixture.engine.create(&guests, new, None).await.unwrap();
    // It belongs to the installation: a team cannot change a template that other teams use.
    let name = NAME.parse().unwrap();
    let again = fixture.engine.build_builtin(&guests, &name, false).await;
    assert!(
        matches!(again, Err(BuiltinError::Forbidden(_))),
        "{again:?}"
    );
    let tags = ["mine".to_owned()];
    let tagged = fixture
        .engine
        .add_tags(&guests, &fixture.reference(), &tags)
        .await;
    assert!(matches!(tagged, Err(TagError::Template(_))), "{tagged:?}");
}

#[tokio::test]
async fn a_teams_template_of_the_same_name_never_replaces_a_builtin_one() {
    let fixture = offering(FakeGuest::default()).await;
    // The name is reserved even before the template is built.
    let new = BuildRequest {
        name: fixture.reference(),
        tags: Vec::new(),
        resources: Resources::default(),
    };
    let announced = fixture.engine.announce_build(&fixture.me, new).await;
    assert!(
        matches!(announced, Err(BuildError::Taken(_))),
        "{announced:?}"
    );
    // A builtin template is not based on a team's own `base`.
    let own = Template {
        team: Some(fixture.me.team),
        public: true,
        ..template("base", "test/poison:1")
    };
    let id = TemplateId::from_entropy([8; 16]);
    let own = Template { id, ..own };
    fixture.engine.put_template(own).await.unwrap();
    let renewed = template("base", "test/image:1");
    fixture.engine.put_template(renewed).await.unwrap();
    assert!(fixture.ask().await.is_err());
    fixture.builtin_build().await;
    let image = fixture.until_there().await.image.to_string();
    assert!(image.ends_with("test/image:1"), "{image}");
}

#[tokio::test]
async fn a_failed_build_is_reported_for_a_while_and_then_retried() {
    let fixture = offering(failing()).await;
    let asked = fixture.ask().await;
    assert!(matches!(asked, Err(CreateError::BeingBuilt { .. })));
    let failed = fixture.builtin_build().await;
    let asked = fixture.ask().await.unwrap_err();
    assert!(asked.to_string().contains("exit status 3"), "{asked}");
    fixture.guest.answers.lock().clear();
    fixture.clock.advance(Duration::from_secs(61));
    let asked = fixture.ask().await;
    assert!(matches!(asked, Err(CreateError::BeingBuilt { .. })));
    let again = fixture.builtin_build().await;
    assert_eq!(again.status, BuildStatus::Ready);
    assert_ne!(again.id, failed.id);
}

#[tokio::test]
async fn an_unknown_name_is_not_found_and_the_error_lists_the_builtin_templates() {
    let fixture = offering(FakeGuest::default()).await;
    let other = SandboxRequest::of("other".parse::<TemplateRef>().unwrap());
    let created = fixture.engine.create(&fixture.me, other, None).await;
    let error = created.map(|_| ()).unwrap_err();
    assert!(matches!(
        error,
        CreateError::Template(TemplateError::NotFound(_))
    ));
    let name = "other".parse().unwrap();
    let built = fixture
        .engine
        .build_builtin(&fixture.me, &name, false)
        .await;
    let error = built.unwrap_err().to_string();
    assert!(error.contains(NAME), "{error}");
}

#[tokio::test]
async fn the_newest_failed_builds_of_the_installation_are_kept() {
    let fixture = offering(failing()).await;
    for _ in 0..201 {
        fixture.ask().await.unwrap_err();
        fixture.builtin_build().await;
        fixture.clock.advance(Duration::from_secs(61));
    }
    let id = TemplateId::from_entropy([9; 16]);
    let remembered = || fixture.engine.builds_of(&id).len();
    until("forgotten", || remembered() == 200).await;
}

#[tokio::test]
async fn a_build_that_finished_before_a_crash_becomes_its_template() {
    let fixture = offering(FakeGuest::default()).await;
    fixture.ask().await.unwrap_err();
    let built = fixture.builtin_build().await;
    let made = fixture.until_there().await;
    // The store as a crash between the two writes leaves it.
    let parts = test_util::parts(fixture.directory.path());
    let between = BuildRecord {
        status: BuildStatus::Building,
        finished_at: None,
        ..built.as_ref().clone()
    };
    parts.store.put_build(between, None).await.unwrap();
    parts.store.delete_template(&made.id).await.unwrap();
    let parts = EngineParts {
        drivers: vec![Arc::new(fixture.driver.clone())],
        clock: fixture.clock.clone(),
        ..parts
    };
    let engine = Engine::open(parts).await.unwrap();
    engine.register_builtin(offer());
    assert!(
        engine
            .find_template(&fixture.me, &fixture.reference())
            .is_none()
    );
    engine.recover().await.unwrap();
    let found = engine.find_template(&fixture.me, &fixture.reference());
    let found = found.unwrap();
    assert_eq!((found.team, found.description.as_str()), (None, "of all"));
    assert_eq!(found.snapshot, made.snapshot);
    let build = engine.build(&fixture.me, built.id).unwrap();
    assert_eq!(build.status, BuildStatus::Ready);
    let new = SandboxRequest::of(fixture.reference());
    engine.create(&fixture.me, new, None).await.unwrap();
}

#[tokio::test]
async fn only_admins_retry_at_once_or_force_a_build() {
    let fixture = offering(failing()).await;
    let (engine, name) = (&fixture.engine, NAME.parse().unwrap());
    let admin = Principal {
        admin: true,
        ..fixture.me.clone()
    };
    let again = || engine.build_builtin(&fixture.me, &name, true);
    again().await.unwrap();
    let failed = fixture.builtin_build().await;
    let refused = again().await.unwrap_err();
    assert!(matches!(refused, BuiltinError::NotBuilt(..)), "{refused}");
    assert!(refused.to_string().contains("exit status 3"), "{refused}");
    fixture.guest.answers.lock().clear();
    fixture.clock.advance(Duration::from_secs(1));
    let begun = engine.build_builtin(&admin, &name, false).await.unwrap();
    assert_ne!(begun.id, failed.id);
    assert_eq!(fixture.builtin_build().await.status, BuildStatus::Ready);
    // Cached steps run again for admins only.
    for (who, runs) in [(&fixture.me, 0), (&admin, 1)] {
        let reference = fixture.reference();
        fixture.until_there().await;
        engine.delete_template(&admin, &reference).await.unwrap();
        fixture.guest.commands.lock().clear();
        engine.build_builtin(who, &name, true).await.unwrap();
        let built = fixture.builtin_build().await;
        assert_eq!(built.status, BuildStatus::Ready, "{:?}", built.failure);
        assert_eq!(fixture.guest.commands.lock().len(), runs);
    }
}

#[tokio::test]
async fn admins_begin_builtin_builds_and_all_teams_may_wait_for_them() {
    let fixture = fixture_of(FakeGuest::default(), |_| {}).await;
    let engine = &fixture.engine;
    engine.register_builtin(offer());
    let name = NAME.parse().unwrap();
    let admin = Principal {
        admin: true,
        ..fixture.me.clone()
    };
    for _ in 0..2 {
        let asked = fixture.ask().await.unwrap_err();
        assert!(asked.to_string().contains("an admin key"), "{asked}");
        let built = engine.build_builtin(&fixture.me, &name, false).await;
        let refused = built.map(|_| ()).unwrap_err();
        assert!(matches!(refused, BuiltinError::AdminsOnly(_)), "{refused}");
    }
    // A tenant's build that is based on it does not begin one either.
    let new = BuildRequest {
        name: "upper".parse().unwrap(),
        tags: Vec::new(),
        resources: Resources::default(),
    };
    let upper = engine.announce_build(&fixture.me, new).await.unwrap();
    let stage = Stage {
        base: Base::Template(NAME.parse().unwrap()),
        steps: Vec::new(),
    };
    let plan = Plan {
        stages: vec![stage],
        start: None,
        ready: None,
        force: false,
        keep_env: Vec::new(),
    };
    let begun = engine.begin_build(&fixture.me, upper.id, plan).await;
    begun.unwrap();
    let ended = || engine.build(&fixture.me, upper.id).unwrap();
    until("ended", || ended().status.is_final()).await;
    let failure = ended().failure.clone().unwrap();
    assert!(failure.message.contains("an admin key"), "{failure:?}");
    let id = TemplateId::from_entropy([9; 16]);
    assert!(engine.builds_of(&id).is_empty());

    let new = SandboxRequest::of(fixture.reference());
    let asked = engine.create(&admin, new, None).await;
    assert!(matches!(asked, Err(CreateError::BeingBuilt { .. })));
    let joined = engine.build_builtin(&fixture.me, &name, false).await;
    assert_eq!(joined.unwrap().template, id);
    assert_eq!(fixture.builtin_build().await.status, BuildStatus::Ready);
    fixture.until_there().await;
    fixture.ask().await.unwrap();
}
