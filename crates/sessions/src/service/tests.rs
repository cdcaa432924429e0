//! The life of machines, with a clock that stands until it is set.

mod builds;
mod events;
mod external;
mod machines;
mod nesting;
mod parts;
mod preview;
mod secrets;
mod storage;
mod template;

use shoal_core::auth::TeamSlug;
use shoal_core::id::{KeyId, TeamId};
use shoal_core::ports::sessions::{ExecEnd, Reset, Sessions};
use shoal_core::session::WindowName;
use shoal_core::session::life::{IDLE, PERSISTENT, WINDOW_IDLE};
use shoal_core::session::machine::MachineParameters;

use self::builds::BuiltOnDemand;
use self::external::Accounts;
use self::machines::Machines;
use shoal_core::store::StoreError;

use super::*;
use crate::local::{Manual, all};
use crate::memory_store::MemoryFiles;

const SECOND: Duration = Duration::from_secs(1);

struct Fixture {
    clock: Arc<Manual>,
    machines: Arc<Machines>,
    builds: Arc<BuiltOnDemand>,
    accounts: Arc<Accounts>,
    files: MemoryFiles,
    service: SessionService,
    principal: Principal,
}

impl Fixture {
    async fn new() -> Self {
        Self::with_fallback(Some("base")).await
    }

    async fn with_fallback(fallback: Option<&str>) -> Self {
        let support = MachineSupport {
            runtime: "runsc".parse().unwrap(),
            nested_containers: true,
            privileged: true,
        };
        Self::with(fallback, support).await
    }

    async fn with(fallback: Option<&str>, support: MachineSupport) -> Self {
        let (clock, machines) = (Arc::<Manual>::default(), Arc::<Machines>::default());
        let files = MemoryFiles::default();
        let builds = Arc::<BuiltOnDemand>::default();
        let accounts = Arc::<Accounts>::default();
        let service = SessionService::open(SessionParts {
            sandboxes: machines.clone(),
            access: machines.clone(),
            events: machines.clone(),
            external: accounts.clone(),
            builds: builds.clone(),
            templates: SessionTemplates {
                template: "session-v1".parse().unwrap(),
                fallback: fallback.map(|name| name.parse().unwrap()),
                docker: "session-docker-v1".parse().unwrap(),
            },
            support,
            store: machines.clone(),
            secrets: machines.parts.clone(),
            sealing_key: SealingKey::new(&[7; 32]).unwrap(),
            memories: machines.parts.clone(),
            rows: Arc::new(files.clone()),
            contents: Contents::new(Arc::new(files.clone()), Arc::new(files.clone())),
            clock: clock.clone(),
            previews: PreviewDomain::of(Some("test.example")),
        });
        let service = service.await.unwrap();
        tokio::spawn(service.clone().end_unused());
        Self {
            clock,
            machines,
            builds,
            accounts,
            files,
            service,
            principal: Principal {
                team: TeamId::from_entropy([1; 16]),
                slug: "team".parse::<TeamSlug>().unwrap(),
                key: KeyId::from_entropy([2; 16]),
                admin: false,
            },
        }
    }

    async fn session(&self, persist: bool) -> String {
        let new = NewSession {
            persist,
            ..NewSession::default()
        };
        let made = self.service.create(&self.principal, new).await;
        made.unwrap().record.id.to_string()
    }

    async fn run(&self, session: &str, command: &str) -> (String, ExecEnd) {
        let window = WindowName::default();
        let events = self
            .service
            .exec(&self.principal, session, &window, command);
        all(events.await.unwrap()).await
    }

    async fn view(&self, session: &str) -> SessionView {
        self.service.get(&self.principal, session).await.unwrap()
    }

    /// Advances the clock, and waits until the machine has ended.
    async fn ends(&self, session: &str, after: Duration) {
        self.clock.advance(after);
        let ended = async {
            while self.view(session).await.record.sandbox.is_some() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(20 * SECOND, ended).await.unwrap();
        assert!(self.machines.alive().is_empty());
    }

    /// Advances the clock. The machine lives on.
    async fn lives(&self, session: &str, after: Duration) {
        self.clock.advance(after);
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert!(self.view(session).await.record.sandbox.is_some());
        assert_eq!(self.machines.alive().len(), 1);
    }
}

#[tokio::test]
async fn r2_011_a_machine_starts_with_the_first_command() {
    let fixture = Fixture::new().await;
    let session = fixture.session(false).await;
    assert!(fixture.machines.alive().is_empty());
    let (output, end) = fixture.run(&session, "echo here").await;
    assert_eq!((output.as_str(), end), ("here\n", ExecEnd::Exited(0)));
    assert_eq!(fixture.machines.alive().len(), 1);
    fixture.run(&session, "true").await;
    assert_eq!(fixture.machines.made(), 1);
}

#[tokio::test]
async fn r2_013_and_r2_020_a_machine_ends_an_hour_after_its_last_command() {
    let fixture = Fixture::new().await;
    let session = fixture.session(false).await;
    fixture.run(&session, "true").await;
    fixture.lives(&session, IDLE - SECOND).await;
    // The clock starts anew with the end of a command.
    fixture.run(&session, "true").await;
    fixture.lives(&session, IDLE - SECOND).await;
    fixture.ends(&session, SECOND).await;
    fixture.run(&session, "true").await;
    assert_eq!(fixture.machines.made(), 2);
}

#[tokio::test]
async fn r2_014_and_r2_016_persist_keeps_it_for_a_day() {
    let fixture = Fixture::new().await;
    let session = fixture.session(true).await;
    fixture.run(&session, "true").await;
    fixture.lives(&session, PERSISTENT - SECOND).await;
    let change = SessionChange {
        persist: Some(false),
        ..SessionChange::default()
    };
    let changed = fixture.service.change(&fixture.principal, &session, change);
    changed.await.unwrap();
    // Its hour has passed long ago.
    fixture.ends(&session, Duration::ZERO).await;
}

#[tokio::test]
async fn r2_015_a_running_command_keeps_the_machine() {
    let fixture = Fixture::new().await;
    let session = fixture.session(false).await;
    let window = WindowName::default();
    let events = fixture
        .service
        .exec(&fixture.principal, &session, &window, "sleep 1000");
    let events = events.await.unwrap();
    assert_eq!(fixture.view(&session).await.ends_at, None);
    fixture.lives(&session, IDLE * 10).await;
    // It continues without its reader, and its end is the last use.
    drop(events);
    fixture.lives(&session, IDLE * 10).await;
    let cancelled = fixture
        .service
        .cancel(&fixture.principal, &session, &window);
    cancelled.await.unwrap();
    let ended = async {
        while fixture.view(&session).await.ends_at.is_none() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(20 * SECOND, ended).await.unwrap();
    fixture.lives(&session, IDLE - SECOND).await;
    fixture.ends(&session, SECOND).await;
}

#[tokio::test]
async fn r2_027_a_machine_that_ends_from_inside_is_replaced_by_the_next_command() {
    let fixture = Fixture::new().await;
    let session = fixture.session(false).await;
    fixture.run(&session, "true").await;
    fixture.machines.fall_silent();
    let asked = async {
        while fixture.machines.asked_in_vain() == 0 {
            tokio::task::yield_now().await;
        }
        fixture.machines.have_ended();
        fixture.clock.advance(SECOND);
    };
    let next = fixture.run(&session, "echo here");
    let (next, ()) = tokio::join!(next, asked);
    assert_eq!(next, ("here\n".to_owned(), ExecEnd::Exited(0)));
    assert_eq!(fixture.machines.made(), 2);
    // An unresponsive machine is reported.
    fixture.machines.fall_silent();
    let advance = async {
        for seconds in 1..=6 {
            while fixture.machines.asked_in_vain() < seconds {
                tokio::task::yield_now().await;
            }
            fixture.clock.advance(SECOND);
        }
    };
    let window = WindowName::default();
    let refused = fixture
        .service
        .exec(&fixture.principal, &session, &window, "true");
    tokio::select! {
        refused = refused => assert!(matches!(refused, Err(SessionError::Sandbox(_)))),
        () = async { advance.await; std::future::pending().await } => {}
    }
    assert_eq!(fixture.machines.made(), 2);
}

#[tokio::test]
async fn r2_025_and_r2_026_a_reset_needs_its_confirmation() {
    let fixture = Fixture::new().await;
    let session = fixture.session(false).await;
    fixture.run(&session, "true").await;
    let reset = async |token: Option<&str>| {
        let reset = fixture.service.reset(&fixture.principal, &session, token);
        reset.await
    };
    let Reset::Asked(question) = reset(None).await.unwrap() else {
        panic!("it asks first");
    };
    assert!(matches!(
        reset(Some("no")).await,
        Err(SessionError::NotConfirmed)
    ));
    assert_eq!(fixture.machines.alive().len(), 1);
    assert_eq!(
        reset(Some(&question.token)).await.unwrap(),
        Reset::Done(true)
    );
    assert!(fixture.machines.alive().is_empty());
    assert!(reset(Some(&question.token)).await.is_err());
    // A question is open for five minutes.
    let Reset::Asked(question) = reset(None).await.unwrap() else {
        panic!("it asks first");
    };
    fixture.clock.advance(300 * SECOND);
    assert!(reset(Some(&question.token)).await.is_err());
}

#[tokio::test]
async fn a_machine_that_cannot_be_ended_is_tried_again() {
    let fixture = Fixture::new().await;
    let session = fixture.session(false).await;
    fixture.run(&session, "true").await;
    fixture.machines.refuse_to_end(1);
    fixture.lives(&session, IDLE).await;
    let refused = async {
        while fixture.machines.refusals() > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(20 * SECOND, refused).await.unwrap();
    fixture.ends(&session, AGAIN).await;
}

#[tokio::test]
async fn sessions_are_the_teams_own_and_survive_a_restart() {
    let fixture = Fixture::new().await;
    let session = fixture.session(true).await;
    fixture.run(&session, "true").await;
    let stranger = Principal {
        team: TeamId::from_entropy([9; 16]),
        admin: true,
        ..fixture.principal.clone()
    };
    let seen = fixture.service.get(&stranger, &session).await;
    assert!(matches!(seen, Err(SessionError::NotFound(_))));
    assert!(fixture.service.list(&stranger).await.unwrap().is_empty());
    let again = SessionService::open(fixture.service.0.parts.clone())
        .await
        .unwrap();
    let seen = again.get(&fixture.principal, &session).await.unwrap();
    assert_eq!(seen.record, fixture.view(&session).await.record);
    again.delete(&fixture.principal, &session).await.unwrap();
    assert!(fixture.machines.alive().is_empty());
    let again = SessionService::open(fixture.service.0.parts.clone())
        .await
        .unwrap();
    assert!(again.list(&fixture.principal).await.unwrap().is_empty());
}

#[tokio::test]
async fn what_no_backend_makes_is_refused_by_name() {
    let fixture = Fixture::new().await;
    let create = async |machine: MachineParameters| {
        let new = NewSession {
            machine,
            ..NewSession::default()
        };
        let made = fixture.service.create(&fixture.principal, new).await;
        made.err()
            .map(|error| error.to_string())
            .unwrap_or_default()
    };
    let gpu = MachineParameters {
        gpu_type: Some("T4".to_owned()),
        ..MachineParameters::default()
    };
    assert!(
        create(gpu)
            .await
            .starts_with("`gpu_type` is not available here")
    );
    let labels = BTreeMap::from([("a".to_owned(), "x".repeat(METADATA_MAX))]);
    let new = NewSession {
        metadata: labels,
        ..NewSession::default()
    };
    let made = fixture.service.create(&fixture.principal, new).await;
    assert!(matches!(made, Err(SessionError::Metadata(_))));
    assert!(
        fixture
            .service
            .list(&fixture.principal)
            .await
            .unwrap()
            .is_empty()
    );
}

#[tokio::test]
async fn r2_073_r2_074_and_r2_077_a_window_closes_before_the_machine_and_the_next_use_opens_a_new_one()
 {
    let fixture = Fixture::new().await;
    let session = fixture.session(false).await;
    fixture.run(&session, "export COLOUR=blue; cd /").await;
    let kept = fixture.run(&session, "echo -$COLOUR-; pwd").await.0;
    assert_eq!(kept, "-blue-\n/\n");
    fixture.clock.advance(WINDOW_IDLE);
    let closed = async {
        while !fixture.view(&session).await.windows.is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(20 * SECOND, closed).await.unwrap();
    assert_eq!(fixture.machines.alive().len(), 1);
    let (output, end) = fixture.run(&session, "echo -$COLOUR-; pwd").await;
    assert_eq!(end, ExecEnd::Exited(0));
    assert!(
        output.starts_with("--\n") && output != "--\n/\n",
        "{output}"
    );
    assert_eq!(fixture.machines.made(), 1);
}
