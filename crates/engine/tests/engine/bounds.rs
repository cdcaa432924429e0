//! Limits of one sandbox, from every source, and of a team in all.

use shoal_core::auth::Principal;
use shoal_core::driver::DiskAccounts;
use shoal_core::id::TeamId;
use shoal_core::limits::{NotGranted, TeamLimits};
use shoal_core::resources::{Mib, MilliCpu, RequestedResources, Resources};
use shoal_engine::{
    AllowedRuntimes, BuildError, BuildRequest, Infeasible, NewSnapshot, Resize, RuntimeForbidden,
    TakeError, TeamError,
};

use super::*;

const SECOND: &str = "second";

fn large(memory: u32) -> Resources {
    Resources {
        memory: Mib(memory),
        ..Resources::default()
    }
}

fn is_too_much(refused: &CreateError) -> bool {
    matches!(
        refused,
        CreateError::Sandbox(SandboxError::Infeasible(Infeasible::Bounds(
            NotGranted::TooMuch { .. }
        )))
    )
}

fn in_runtime(template: &str, runtime: &str) -> SandboxRequest {
    SandboxRequest {
        runtime: Some(runtime.parse().unwrap()),
        ..new(template)
    }
}

impl Fixture {
    fn plain(&self) -> Principal {
        Principal {
            admin: false,
            ..self.me.clone()
        }
    }

    fn admin(&self) -> Principal {
        Principal {
            admin: true,
            ..self.me.clone()
        }
    }
}

#[tokio::test]
async fn a_tenants_template_is_bounded_where_it_is_announced_and_where_it_is_used() {
    let fixture = fixture().await;
    let announced = |resources| BuildRequest {
        name: "large".parse().unwrap(),
        tags: Vec::new(),
        resources,
    };
    let engine = &fixture.engine;
    for resources in [
        large(200_000),
        Resources {
            cpu: MilliCpu(32_000),
            ..Resources::default()
        },
    ] {
        let refused = engine
            .announce_build(&fixture.me, announced(resources))
            .await;
        let refused = refused.unwrap_err();
        assert!(matches!(refused, BuildError::Resources(_)), "{refused}");
        assert!(refused.to_string().contains("at most"), "{refused}");
        // One that was stored before that was looked at.
        let stored = Template {
            team: Some(fixture.me.team),
            resources,
            ..template("stored", "test/image:1")
        };
        engine.put_template(stored).await.unwrap();
        let refused = engine.create(&fixture.me, new("stored"), None).await;
        let refused = refused.unwrap_err();
        assert!(is_too_much(&refused), "{refused}");
    }
    assert!(fixture.driver.sandboxes().is_empty());
}

#[tokio::test]
async fn what_the_operator_wrote_is_given_as_far_as_there_is() {
    let fixture = fixture().await;
    let stock = Template {
        resources: Resources {
            cpu: MilliCpu(128_000),
            ..large(1 << 20)
        },
        ..template("stock", "test/image:1")
    };
    fixture.engine.put_template(stock).await.unwrap();
    let made = fixture.engine.create(&fixture.me, new("stock"), None).await;
    let given = made.unwrap().record.spec.resources;
    let machine = fixture.engine.capabilities();
    assert_eq!(given.cpu, machine.cpu);
    assert!(given.memory < machine.memory && given.memory.0 > machine.memory.0 / 2);
}

#[tokio::test]
async fn one_sandbox_has_no_more_than_the_operator_allows_however_it_is_asked_for() {
    let fixture = fixture_with(|config| {
        config.limits.per_sandbox.cpu = Some(MilliCpu(3000));
        config.limits.per_sandbox.memory = Some(Mib(2048));
        config.limits.per_sandbox.disk = Some(Mib(512));
    })
    .await;
    let engine = &fixture.engine;
    let id = fixture.create().await;
    assert_eq!(fixture.driver.resources(&id).unwrap().disk, Mib(512));
    let asked = SandboxRequest {
        resources: RequestedResources {
            memory: Some(Mib(2049)),
            ..RequestedResources::default()
        },
        ..new("base")
    };
    let refused = engine.create(&fixture.me, asked, None).await.unwrap_err();
    assert!(
        refused.to_string().contains("limits.memory_per_sandbox"),
        "{refused}"
    );
    let (permit, _) = engine.authorize(&fixture.me, &id).unwrap();
    for resize in [
        Resize {
            cpu: Some(MilliCpu(3001)),
            memory: None,
        },
        Resize {
            cpu: None,
            memory: Some(Mib(2049)),
        },
    ] {
        let refused = engine.resize(&permit, resize).await.unwrap_err();
        assert!(refused.to_string().contains("_per_sandbox"), "{refused}");
    }
}

#[tokio::test]
async fn a_team_has_so_much_memory_in_all_and_the_others_go_on() {
    let fixture = fixture_with(|config| {
        config.limits.memory_per_team = Some(Mib(2048));
    })
    .await;
    let engine = &fixture.engine;
    let other = principal(engine, "other").await;
    let ids = [fixture.create().await, fixture.create().await];
    let refused = engine.create(&fixture.me, new("base"), None).await;
    let refused = refused.unwrap_err();
    let left = QuotaExceeded::Memory {
        asked: Mib(1024),
        left: Mib(0),
        limit: Mib(2048),
    };
    assert!(
        matches!(&refused, CreateError::Full(full) if *full == left),
        "{refused}"
    );
    let (permit, _) = engine.authorize(&fixture.me, &ids[0]).unwrap();
    let more = Resize {
        cpu: None,
        memory: Some(Mib(1025)),
    };
    let refused = engine.resize(&permit, more).await.unwrap_err();
    assert!(
        matches!(
            refused,
            SandboxError::Infeasible(Infeasible::Team { what: "memory", .. })
        ),
        "{refused}"
    );
    engine.create(&other, new("base"), None).await.unwrap();
    engine.pause(&permit, None, false).await.unwrap();
    fixture.create().await;
    let resumed = engine.resume(&permit, Duration::from_secs(60), true).await;
    let refused = resumed.unwrap_err();
    assert!(
        matches!(refused, SandboxError::Full(QuotaExceeded::Memory { .. })),
        "{refused}"
    );
}

#[tokio::test]
async fn a_team_keeps_so_many_snapshots_and_the_others_go_on() {
    let fixture = fixture_with(|config| config.limits.snapshots_per_team = 2).await;
    let engine = &fixture.engine;
    let id = fixture.create().await;
    let (permit, _) = engine.authorize(&fixture.me, &id).unwrap();
    let take = || engine.snapshot(&fixture.me, &permit, NewSnapshot::default());
    take().await.unwrap();
    let second = take().await.unwrap();
    let refused = take().await.unwrap_err();
    assert!(
        matches!(
            refused,
            TakeError::Sandbox(SandboxError::Snapshots { used: 2, limit: 2 })
        ),
        "{refused}"
    );
    let other = principal(engine, "other").await;
    let made = engine.create(&other, new("base"), None).await.unwrap();
    let (theirs, _) = engine.authorize(&other, &made.record.id).unwrap();
    let taken = engine.snapshot(&other, &theirs, NewSnapshot::default());
    taken.await.unwrap();
    let reference = second.template.as_str().parse().unwrap();
    engine
        .delete_snapshot(&fixture.me, &reference)
        .await
        .unwrap();
    take().await.unwrap();
}

#[tokio::test]
async fn a_team_has_limits_of_its_own_that_only_an_admin_sets_and_a_restart_keeps() {
    let fixture = fixture().await;
    let (engine, me) = (&fixture.engine, &fixture.me);
    let one = TeamLimits {
        sandboxes: Some(1),
        disk: Some(Mib(300)),
        ..TeamLimits::default()
    };
    let refused = engine
        .set_team_limits(&fixture.plain(), &me.slug, one)
        .await;
    assert!(matches!(refused, Err(TeamError::Forbidden)));
    fixture.create().await;
    engine
        .set_team_limits(&fixture.admin(), &me.slug, one)
        .await
        .unwrap();
    let refused = engine.create(me, new("base"), None).await.unwrap_err();
    assert!(
        matches!(refused, CreateError::Full(QuotaExceeded::Team(1))),
        "{refused}"
    );
    let seen = engine.teams(&fixture.plain()).await.unwrap();
    assert_eq!(seen.len(), 1, "its own");
    assert_eq!((seen[0].sandboxes, seen[0].limits.sandboxes), (1, Some(1)));
    assert_eq!(seen[0].limits.disk, Some(Mib(300)));
    assert!(seen[0].limits.memory.is_some(), "the installation's");
    let other = principal(engine, "other").await;
    engine.create(&other, new("base"), None).await.unwrap();
    assert_eq!(engine.teams(&fixture.admin()).await.unwrap().len(), 2);
    let directory = fixture.directory.path();
    let again = engine_on(directory, &fixture.driver, &fixture.clock, |_| {}).await;
    let refused = again.create(me, new("base"), None).await.unwrap_err();
    assert!(
        matches!(refused, CreateError::Full(QuotaExceeded::Team(1))),
        "{refused}"
    );
}

#[tokio::test]
async fn disk_is_counted_for_the_team_with_the_limit_that_it_has_then() {
    let fixture = fixture().await;
    let id = fixture.create().await;
    let usual = fixture.driver.owner(&id).unwrap();
    let whole = fixture.engine.capabilities().disk.unwrap();
    assert_eq!(usual.team, fixture.me.team);
    assert!(
        usual
            .disk
            .is_some_and(|disk| disk < whole && disk.0 > whole.0 / 2)
    );
    let of_nobody = fixture
        .driver
        .disk_use(TeamId::from_entropy([77; 16]))
        .await;
    assert_eq!(of_nobody.unwrap().unwrap().bytes, 0);
}

#[tokio::test]
async fn more_forks_than_are_made_in_time_are_refused_at_once() {
    let fixture = fixture_with(|config| config.limits.forks = Some(3)).await;
    let id = fixture.create().await;
    let (permit, _) = fixture.engine.authorize(&fixture.me, &id).unwrap();
    let fork = |count| {
        let within = Duration::from_secs(60);
        fixture.engine.fork(&fixture.me, &permit, count, within)
    };
    let refused = fork(4).await.unwrap_err();
    assert!(
        matches!(refused, SandboxError::TooManyForks(3)),
        "{refused}"
    );
    assert_eq!(fixture.driver.sandboxes().len(), 1);
    assert!(fork(3).await.unwrap().iter().all(Result::is_ok));
}

#[tokio::test]
async fn a_key_that_is_no_admins_has_the_default_runtime_alone() {
    let fixture = fixture().await;
    let engine = &fixture.engine;
    let (plain, admin) = (fixture.plain(), fixture.admin());
    let forbidden =
        |refused: &CreateError| matches!(refused, CreateError::Runtime(RuntimeForbidden { .. }));
    let asked = || in_runtime("base", SECOND);
    let refused = engine.create(&plain, asked(), None).await.unwrap_err();
    assert!(forbidden(&refused), "{refused}");
    assert!(refused.to_string().contains("use fake"), "{refused}");
    // An admin's sandbox, and a snapshot of it.
    let made = engine.create(&admin, asked(), None).await.unwrap().record;
    let (permit, _) = engine.authorize(&plain, &made.id).unwrap();
    let forked = engine
        .fork(&plain, &permit, 1, Duration::from_secs(60))
        .await;
    let refused = forked.unwrap_err();
    assert!(matches!(refused, SandboxError::Runtime(_)), "{refused}");
    let taken = engine.snapshot(&plain, &permit, NewSnapshot::default());
    let taken = taken.await.unwrap().template;
    let clone = || SandboxRequest::of(taken.as_str().parse::<TemplateRef>().unwrap());
    let refused = engine.create(&plain, clone(), None).await.unwrap_err();
    assert!(forbidden(&refused), "{refused}");
    engine.create(&admin, clone(), None).await.unwrap();
    // A team's template cannot set what a request of its keys cannot.
    let own = Template {
        team: Some(plain.team),
        runtime: Some(SECOND.parse().unwrap()),
        ..template("own", "test/image:1")
    };
    engine.put_template(own).await.unwrap();
    let refused = engine.create(&plain, new("own"), None).await.unwrap_err();
    assert!(forbidden(&refused), "{refused}");
}

#[tokio::test]
async fn a_runtime_that_the_operator_chose_or_allowed_is_everybodys() {
    let fixture = fixture().await;
    let plain = fixture.plain();
    let stock = Template {
        runtime: Some(SECOND.parse().unwrap()),
        ..template("stock", "test/image:1")
    };
    fixture.engine.put_template(stock).await.unwrap();
    let made = fixture.engine.create(&plain, new("stock"), None).await;
    let made = made.unwrap().record;
    assert_eq!(made.report.as_ref().unwrap().runtime.as_str(), SECOND);
    let (permit, _) = fixture.engine.authorize(&plain, &made.id).unwrap();
    let within = Duration::from_secs(60);
    let forked = fixture.engine.fork(&plain, &permit, 1, within).await;
    assert!(forked.unwrap()[0].is_ok());
    for allowed in [
        AllowedRuntimes::Any,
        AllowedRuntimes::Named(vec![SECOND.parse().unwrap()]),
    ] {
        let fixture = fixture_with(|config| config.runtimes = allowed).await;
        let made = fixture
            .engine
            .create(&fixture.plain(), in_runtime("base", SECOND), None)
            .await;
        made.unwrap();
    }
}
