//! The template of a machine.

use futures_util::StreamExt;
use shoal_core::driver::Isolation;
use shoal_core::ports::builds::BuiltinError;
use shoal_core::ports::create::CreateError;
use shoal_core::ports::sessions::ExecEvent;

use shoal_core::template::TemplateName;

use super::*;

fn being_built() -> CreateError {
    CreateError::BeingBuilt {
        template: "session-v1".parse().unwrap(),
        build: "a/b".to_owned(),
    }
}

impl Fixture {
    /// The template of the latest machine, its system, and the notice before a command's output.
    async fn first_command(&self, session: &str) -> (String, String, Option<String>) {
        let window = WindowName::default();
        let events = self
            .service
            .exec(&self.principal, session, &window, "echo here");
        let events: Vec<ExecEvent> = events.await.unwrap().collect().await;
        let notice = match &events[0] {
            ExecEvent::Notice(notice) => Some(notice.clone()),
            _ => None,
        };
        assert_eq!(events.last(), Some(&ExecEvent::Ended(ExecEnd::Exited(0))));
        let template = self.machines.wanted().template.unwrap().to_string();
        let system = self.view(session).await.record.system.unwrap();
        (template, system, notice)
    }
}

#[tokio::test]
async fn r2_002_and_r2_008_a_session_says_what_its_machine_is() {
    let fixture = Fixture::new().await;
    let session = fixture.session(false).await;
    let seen = fixture.first_command(&session).await;
    assert_eq!(seen, ("session-v1".into(), "Ubuntu 24.04".into(), None));
    assert!(fixture.builds.begun().is_empty());
    let isolation = fixture.view(&session).await.record.isolation;
    assert_eq!(isolation, Some(Isolation::UserspaceKernel));
    // Without a machine there is nothing to say.
    fixture.ends(&session, IDLE).await;
    let record = fixture.view(&session).await.record;
    assert_eq!((record.system, record.isolation), (None, None));
}

#[tokio::test]
async fn a_template_that_is_being_built_is_replaced_and_that_is_said_once() {
    let fixture = Fixture::new().await;
    let session = fixture.session(false).await;
    fixture.machines.refuse_to_begin(vec![being_built()]);
    let (template, system, notice) = fixture.first_command(&session).await;
    let notice = notice.unwrap();
    assert_eq!(template, "base");
    assert!(
        notice.contains("'base'") && notice.contains("being built"),
        "{notice}"
    );
    assert!(
        system.starts_with("Ubuntu 24.04 (it is of the template 'base'"),
        "{system}"
    );
    assert_eq!(fixture.first_command(&session).await.2, None);
    // The next machine is the expected one.
    fixture.ends(&session, IDLE).await;
    assert_eq!(fixture.first_command(&session).await.0, "session-v1");
}

#[tokio::test]
async fn a_session_of_any_key_begins_the_build_for_the_installation() {
    let fixture = Fixture::new().await;
    let session = fixture.session(false).await;
    let name: TemplateName = "session-v1".parse().unwrap();
    let admins_only = BuiltinError::AdminsOnly(name.clone()).into();
    fixture.machines.refuse_to_begin(vec![admins_only]);
    let (template, _, notice) = fixture.first_command(&session).await;
    assert_eq!(template, "base");
    assert!(notice.unwrap().contains("being built"));
    let installation = Principal::installation().team;
    assert_eq!(fixture.builds.begun(), [(installation, name)]);
}

#[tokio::test]
async fn without_a_fallback_a_command_waits_for_nothing_and_is_refused() {
    let fixture = Fixture::with_fallback(None).await;
    let session = fixture.session(false).await;
    fixture.machines.refuse_to_begin(vec![being_built()]);
    let window = WindowName::default();
    let refused = fixture
        .service
        .exec(&fixture.principal, &session, &window, "true");
    let refused = refused.await.err().unwrap();
    let is_building = matches!(
        &refused,
        SessionError::Create(CreateError::BeingBuilt { .. })
    );
    assert!(is_building, "{refused}");
    assert!(fixture.machines.alive().is_empty());
}

#[tokio::test]
async fn another_failure_makes_no_machine_of_the_fallback() {
    let fixture = Fixture::new().await;
    let session = fixture.session(false).await;
    fixture
        .machines
        .refuse_to_begin(vec![CreateError::NoTemplate]);
    let window = WindowName::default();
    let refused = fixture
        .service
        .exec(&fixture.principal, &session, &window, "true");
    assert!(matches!(
        refused.await,
        Err(SessionError::Create(CreateError::NoTemplate))
    ));
    assert!(fixture.machines.alive().is_empty());
}
