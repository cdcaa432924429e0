//! Secrets and memories over the life of machines.

use shoal_core::ports::sessions::memories::{MemoryError, SessionMemories};
use shoal_core::ports::sessions::secrets::{SecretError, SessionSecrets};
use shoal_core::session::memory::{MEMORIES_MAX, TEXT_MAX};
use shoal_core::session::secret::{SecretValue, VALUE_MAX};

use super::*;

const VALUE: &str = "correct-horse";
const LENGTH: &str = "echo ${#TOKEN}";

impl Fixture {
    fn secrets(&self) -> &dyn SessionSecrets {
        &self.service
    }

    fn memories(&self) -> &dyn SessionMemories {
        &self.service
    }

    pub(super) async fn set(
        &self,
        session: &str,
        name: &str,
        value: &str,
    ) -> Result<(), SessionError> {
        let value = SecretValue::new(value.to_owned()).unwrap();
        let set = self.secrets().set(&self.principal, session, name, value);
        set.await.map(drop)
    }

    pub(super) async fn activate(&self, session: &str, name: &str) -> Result<(), SessionError> {
        let activated = self.secrets().activate(&self.principal, session, name);
        activated.await.map(|view| assert!(view.active))
    }

    /// The names of the secrets, and whether they are active.
    async fn listed(&self, session: &str) -> Vec<(String, bool)> {
        let listed = self.secrets().list(&self.principal, session).await.unwrap();
        let shown = listed.iter().map(|one| (one.name.to_string(), one.active));
        assert!(!format!("{listed:?}").contains(VALUE));
        shown.collect()
    }

    pub(super) async fn reset(&self, session: &str) {
        let reset = self.service.reset(&self.principal, session, None);
        let Reset::Asked(question) = reset.await.unwrap() else {
            panic!("it asks first");
        };
        let token = Some(question.token.as_str());
        let reset = self.service.reset(&self.principal, session, token);
        assert!(matches!(reset.await.unwrap(), Reset::Done(_)));
    }
}

fn named(active: bool) -> Vec<(String, bool)> {
    vec![("TOKEN".to_owned(), active)]
}

fn done(output: &str) -> (String, ExecEnd) {
    (output.to_owned(), ExecEnd::Exited(0))
}

#[tokio::test]
async fn r2_102_and_r2_106_an_activation_is_for_one_machine() {
    let fixture = Fixture::new().await;
    let session = fixture.session(false).await;
    fixture.set(&session, "TOKEN", VALUE).await.unwrap();
    assert_eq!(fixture.listed(&session).await, named(false));
    assert!(
        fixture.machines.alive().is_empty(),
        "a secret needs no machine"
    );
    assert_eq!(fixture.run(&session, LENGTH).await, done("0\n"));
    fixture.activate(&session, "TOKEN").await.unwrap();
    assert_eq!(fixture.run(&session, LENGTH).await, done("13\n"));
    assert_eq!(fixture.run(&session, "echo $TOKEN").await, done("***\n"));
    assert_eq!(fixture.listed(&session).await, named(true));
    // R2-023: a new machine needs an activation of its own.
    fixture.ends(&session, IDLE).await;
    assert_eq!(fixture.listed(&session).await, named(false));
    assert_eq!(fixture.run(&session, LENGTH).await, done("0\n"));
    fixture.reset(&session).await;
    // Without a machine, it is for the next; and for that alone.
    fixture.activate(&session, "TOKEN").await.unwrap();
    assert_eq!(fixture.listed(&session).await, named(true));
    assert_eq!(fixture.run(&session, LENGTH).await, done("13\n"));
    fixture.reset(&session).await;
    assert_eq!(fixture.listed(&session).await, named(false));
    assert_eq!(fixture.run(&session, LENGTH).await, done("0\n"));
}

#[tokio::test]
async fn r2_106_a_machine_that_was_lost_takes_its_activations_along() {
    let fixture = Fixture::new().await;
    let session = fixture.session(false).await;
    fixture.set(&session, "TOKEN", VALUE).await.unwrap();
    fixture.run(&session, "true").await;
    fixture.activate(&session, "TOKEN").await.unwrap();
    fixture.machines.lose_all();
    assert_eq!(fixture.run(&session, LENGTH).await, done("0\n"));
    // It ends by itself, and the session does not know yet.
    fixture.machines.lose_all();
    fixture.activate(&session, "TOKEN").await.unwrap();
    assert_eq!(fixture.run(&session, LENGTH).await, done("13\n"));
}

#[tokio::test]
async fn r2_103_another_session_has_no_secret() {
    let fixture = Fixture::new().await;
    let (one, other) = (fixture.session(false).await, fixture.session(false).await);
    fixture.set(&one, "TOKEN", VALUE).await.unwrap();
    fixture.activate(&one, "TOKEN").await.unwrap();
    assert_eq!(fixture.run(&one, LENGTH).await, done("13\n"));
    assert_eq!(fixture.run(&other, LENGTH).await, done("0\n"));
    assert!(fixture.listed(&other).await.is_empty());
    let missing = fixture.activate(&other, "TOKEN").await;
    assert!(matches!(
        missing,
        Err(SessionError::Secret(SecretError::NotFound(_)))
    ));
    let stranger = Principal {
        team: TeamId::from_entropy([9; 16]),
        ..fixture.principal.clone()
    };
    let seen = fixture.secrets().list(&stranger, &one).await;
    assert!(matches!(seen, Err(SessionError::NotFound(_))));
}

#[tokio::test]
async fn r2_104_what_is_stored_is_sealed_and_cannot_be_moved() {
    let fixture = Fixture::new().await;
    let (one, other) = (fixture.session(false).await, fixture.session(false).await);
    fixture.set(&one, "TOKEN", VALUE).await.unwrap();
    fixture.set(&other, "TOKEN", "another value").await.unwrap();
    let parts = &fixture.machines.parts;
    assert!(!parts.all().contains("correct"));
    let (from, to) = (one.parse().unwrap(), other.parse().unwrap());
    parts.forge((&from, "TOKEN"), (&to, "TOKEN"));
    let refused = fixture.activate(&other, "TOKEN").await;
    let Err(SessionError::Secret(error @ SecretError::Sealed(_))) = refused else {
        panic!("it opened");
    };
    assert!(error.to_string().contains("set it again"));
    fixture.set(&other, "TOKEN", "another value").await.unwrap();
    fixture.activate(&other, "TOKEN").await.unwrap();
}

#[tokio::test]
async fn r2_105_secrets_and_memories_go_with_their_session() {
    let fixture = Fixture::new().await;
    let session = fixture.session(false).await;
    fixture.set(&session, "TOKEN", VALUE).await.unwrap();
    let put = fixture
        .memories()
        .put(&fixture.principal, &session, "plan", "x".to_owned());
    put.await.unwrap();
    assert!(!fixture.machines.parts.is_empty());
    let deleted = Sessions::delete(&fixture.service, &fixture.principal, &session);
    deleted.await.unwrap();
    assert!(fixture.machines.parts.is_empty());
    let late = fixture.set(&session, "TOKEN", VALUE).await;
    assert!(matches!(late, Err(SessionError::NotFound(_))));
}

#[tokio::test]
async fn a_secret_changes_and_goes_while_it_is_active() {
    let fixture = Fixture::new().await;
    let session = fixture.session(false).await;
    fixture.set(&session, "TOKEN", VALUE).await.unwrap();
    fixture.activate(&session, "TOKEN").await.unwrap();
    assert_eq!(fixture.run(&session, LENGTH).await, done("13\n"));
    fixture.set(&session, "TOKEN", "battery").await.unwrap();
    assert_eq!(fixture.listed(&session).await, named(true));
    let both = "echo ${#TOKEN} $TOKEN correct-horse";
    assert_eq!(fixture.run(&session, both).await, done("7 *** ***\n"));
    let gone = fixture
        .secrets()
        .deactivate(&fixture.principal, &session, "TOKEN");
    assert!(!gone.await.unwrap().active);
    assert_eq!(fixture.run(&session, LENGTH).await, done("0\n"));
    fixture.activate(&session, "TOKEN").await.unwrap();
    let gone = fixture
        .secrets()
        .delete(&fixture.principal, &session, "TOKEN");
    gone.await.unwrap();
    assert_eq!(fixture.run(&session, LENGTH).await, done("0\n"));
    assert!(fixture.listed(&session).await.is_empty());
    let again = fixture
        .secrets()
        .delete(&fixture.principal, &session, "TOKEN");
    assert!(again.await.is_err());
}

#[tokio::test]
async fn r2_104_a_server_that_starts_again_knows_what_is_active() {
    let fixture = Fixture::new().await;
    let session = fixture.session(false).await;
    fixture.set(&session, "TOKEN", VALUE).await.unwrap();
    fixture.run(&session, "true").await;
    fixture.activate(&session, "TOKEN").await.unwrap();
    let parts = fixture.service.0.parts.clone();
    let again = SessionService::open(parts).await.unwrap();
    let (window, line) = (WindowName::default(), "echo ${#TOKEN} $TOKEN");
    let events = again.exec(&fixture.principal, &session, &window, line);
    assert_eq!(all(events.await.unwrap()).await, done("13 ***\n"));
}

#[tokio::test]
async fn too_many_secrets_are_refused() {
    let fixture = Fixture::new().await;
    let session = fixture.session(false).await;
    let reserved = fixture.set(&session, "PATH", VALUE).await;
    assert!(
        reserved
            .unwrap_err()
            .to_string()
            .contains("PATH is reserved")
    );
    let long = "x".repeat(VALUE_MAX);
    for number in 0..16 {
        fixture
            .set(&session, &format!("A{number}"), &long)
            .await
            .unwrap();
    }
    let more = fixture.set(&session, "B", "x").await;
    assert!(matches!(
        more,
        Err(SessionError::Secret(SecretError::TooLong(_)))
    ));
    for number in 0..64 {
        fixture
            .set(&session, &format!("A{number}"), "x")
            .await
            .unwrap();
    }
    let more = fixture.set(&session, "B", "x").await;
    assert!(matches!(
        more,
        Err(SessionError::Secret(SecretError::TooMany(64)))
    ));
    fixture.set(&session, "A1", "y").await.unwrap();
}

#[tokio::test]
async fn r2_018_memories_outlive_machines_and_servers() {
    let fixture = Fixture::new().await;
    let session = fixture.session(false).await;
    let put = async |name: &str, text: &str| {
        let memories = fixture.memories();
        memories
            .put(&fixture.principal, &session, name, text.to_owned())
            .await
    };
    put("plan", "1. ä").await.unwrap();
    assert!(
        fixture.machines.alive().is_empty(),
        "a memory needs no machine"
    );
    fixture.run(&session, "true").await;
    fixture.reset(&session).await;
    let again = SessionService::open(fixture.service.0.parts.clone())
        .await
        .unwrap();
    let again: &dyn SessionMemories = &again;
    let read = again
        .get(&fixture.principal, &session, "plan")
        .await
        .unwrap();
    assert_eq!(
        (read.text.as_str(), read.updated_at),
        ("1. ä", fixture.clock.now())
    );
    let long = "x".repeat(TEXT_MAX + 1);
    let refused = |put: Result<_, SessionError>| match put {
        Err(SessionError::Memory(error)) => error,
        other => panic!("{other:?}"),
    };
    assert!(matches!(
        refused(put("long", &long).await),
        MemoryError::Long
    ));
    assert!(matches!(
        refused(put("../a", "x").await),
        MemoryError::Name(_)
    ));
    for number in 1..MEMORIES_MAX {
        put(&format!("m{number}"), "").await.unwrap();
    }
    assert!(matches!(
        refused(put("more", "").await),
        MemoryError::TooMany(_)
    ));
    again
        .delete(&fixture.principal, &session, "plan")
        .await
        .unwrap();
    put("more", "").await.unwrap();
    let read = again.get(&fixture.principal, &session, "plan").await;
    assert!(matches!(refused(read), MemoryError::NotFound(_)));
    let listed = again.list(&fixture.principal, &session).await.unwrap();
    assert_eq!(listed.len(), MEMORIES_MAX);
}
