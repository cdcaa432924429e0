//! Names, events, and the way inside.

use futures_util::StreamExt;
use shoal_core::auth::ApiKey;
use shoal_core::ports::inside::{CommandOutput, InsideError, SandboxCommand};
use shoal_core::routes::{Credential, NotAuthorized};
use shoal_core::sandbox::NAME_KEY;
use shoal_engine::NameError;

use super::*;

fn named(name: &str) -> SandboxRequest {
    let mut asked = new("base");
    asked.metadata.insert(NAME_KEY.to_owned(), name.to_owned());
    asked
}

impl Fixture {
    async fn create_named(&self, name: &str) -> Result<SandboxId, CreateError> {
        let created = self.engine.create(&self.me, named(name), None).await?;
        Ok(created.record.id.clone())
    }
}

#[tokio::test]
async fn a_name_is_one_sandboxs_for_as_long_as_it_lives() {
    let fixture = fixture().await;
    let id = fixture.create_named("box").await.unwrap();
    let taken = fixture.create_named("box").await.unwrap_err();
    assert!(matches!(taken, CreateError::Name(NameError::Taken(_))));
    let bad = fixture.create_named("../box").await.unwrap_err();
    assert!(matches!(bad, CreateError::Name(NameError::Invalid(_))));
    let other = principal(&fixture.engine, "other").await;
    // Names are each team's own.
    let theirs = fixture.engine.create(&other, named("box"), None).await;
    assert_ne!(theirs.unwrap().record.id, id);
    let (permit, record) = fixture.engine.find(&fixture.me, "box").unwrap();
    assert_eq!((permit.sandbox(), record.name().as_str()), (&id, "box"));
    fixture.engine.kill(&permit).await.unwrap();
    assert!(fixture.engine.find(&fixture.me, "box").is_err());
    assert_ne!(fixture.create_named("box").await.unwrap(), id);
}

#[tokio::test]
async fn of_those_that_ask_for_a_name_at_once_one_gets_it() {
    let fixture = fixture().await;
    let asked = (0..8).map(|_| fixture.create_named("box"));
    let made = futures_util::future::join_all(asked).await;
    assert_eq!(made.iter().filter(|made| made.is_ok()).count(), 1);
}

#[tokio::test]
async fn a_sandbox_without_a_name_has_one_and_a_fork_has_its_own() {
    let fixture = fixture().await;
    let id = fixture.create().await;
    let (_, record) = fixture.engine.find(&fixture.me, id.as_str()).unwrap();
    assert_eq!(record.name(), format!("sbx-base-{id}"));
    let (permit, found) = fixture.engine.find(&fixture.me, &record.name()).unwrap();
    assert_eq!(found.id, id);
    assert!(permit.sandbox() == &id);
    let with_client = format!("{id}-6532622b");
    assert_eq!(
        fixture.engine.find(&fixture.me, &with_client).unwrap().1.id,
        id
    );
    let other = principal(&fixture.engine, "other").await;
    for text in [id.as_str(), &record.name(), "", "no such", "\0"] {
        let refused = fixture.engine.find(&other, text).unwrap_err();
        assert!(matches!(refused, SandboxError::NoSuchName(_)), "{text}");
    }
    let source = fixture.create_named("box").await.unwrap();
    let (permit, _) = fixture.engine.authorize(&fixture.me, &source).unwrap();
    let second = Duration::from_secs(60);
    let forks = fixture.engine.fork(&fixture.me, &permit, 2, second).await;
    for fork in forks.unwrap() {
        assert!(fork.unwrap().record.name().starts_with("sbx-base-"));
    }
}

#[tokio::test]
async fn a_door_opens_for_a_key_of_the_team_or_the_traffic_token() {
    let fixture = fixture().await;
    let mut private = named("box");
    private.network.allow_public_traffic = Some(false);
    private.port = std::num::NonZeroU16::new(3000);
    let made = fixture.engine.create(&fixture.me, private, None).await;
    let record = made.unwrap().record;
    let routes = fixture.engine.routes();
    let (key, _) = fixture
        .engine
        .create_key(&fixture.me, &fixture.me.slug, "ci", false)
        .await
        .unwrap();
    for name in ["box", record.id.as_str()] {
        let admitted = routes
            .admit(name, Credential::Key(key.clone()))
            .await
            .unwrap();
        assert_eq!((admitted.sandbox, admitted.port), (record.id.clone(), 3000));
    }
    let token = fixture.engine.traffic_access_token(&record).unwrap();
    let traffic = |text: &str| Credential::Traffic(text.to_owned());
    let good = routes
        .admit(record.id.as_str(), traffic(token.reveal()))
        .await;
    assert_eq!(good.unwrap().sandbox, record.id);
    let stranger = ApiKey::from_entropy([9; 20]);
    let public = fixture.create().await;
    for (name, credential) in [
        ("box", traffic(token.reveal())),
        (record.id.as_str(), traffic("x")),
        (public.as_str(), traffic("")),
        ("iunknown", traffic("x")),
        ("box", Credential::Key(stranger)),
    ] {
        assert_eq!(
            routes.admit(name, credential).await,
            Err(NotAuthorized::Unproven),
            "{name}"
        );
    }
    let other = principal(&fixture.engine, "other").await;
    let (foreign, _) = fixture
        .engine
        .create_key(&other, &other.slug, "ci", false)
        .await
        .unwrap();
    let refused = routes.admit("box", Credential::Key(foreign)).await;
    assert_eq!(refused, Err(NotAuthorized::NotFound));
}

#[tokio::test]
async fn events_are_kept_for_their_tenant_the_newest_first() {
    let fixture = fixture().await;
    let (first, second) = (fixture.create().await, fixture.create().await);
    let (permit, _) = fixture.engine.authorize(&fixture.me, &first).unwrap();
    fixture.engine.kill(&permit).await.unwrap();
    let events = fixture.engine.events(&fixture.me, None, 10);
    let seen: Vec<_> = events.iter().map(|e| (e.kind, e.sandbox.clone())).collect();
    assert_eq!(seen[0], (EventKind::Killed, first.clone()));
    assert_eq!(seen[1], (EventKind::Created, second));
    assert_eq!(
        fixture.engine.events(&fixture.me, Some(&first), 10).len(),
        2
    );
    assert_eq!(fixture.engine.events(&fixture.me, None, 1).len(), 1);
    let other = principal(&fixture.engine, "other").await;
    assert!(fixture.engine.events(&other, Some(&first), 10).is_empty());
}

#[tokio::test]
async fn what_is_done_inside_is_done_by_the_daemon_and_ends_with_the_run() {
    let fixture = fixture().await;
    let id = fixture.create().await;
    let (permit, record) = fixture.engine.authorize(&fixture.me, &id).unwrap();
    let inside = fixture.engine.open_client(&permit, Some("root")).await;
    let inside = inside.unwrap();
    *fixture.guest.output.lock() = vec![CommandOutput::Stdout("hi".into())];
    let process = inside.run(SandboxCommand::new("id", ["-u"])).await.unwrap();
    let output: Vec<_> = process.output.map(Result::unwrap).collect().await;
    assert_eq!(output[0], CommandOutput::Stdout("hi".into()));
    let (target, command) = fixture.guest.commands.lock()[0].clone();
    assert_eq!(
        (target.user.as_deref(), command.program.as_str()),
        (Some("root"), "id")
    );
    assert_eq!(target.token, fixture.engine.envd_access_token(&record));
    let contents = futures_util::stream::iter([Ok("a".into()), Ok("b".into())]).boxed();
    inside.write_file("/x".to_owned(), contents).await.unwrap();
    assert_eq!(inside.stat("/x".to_owned()).await.unwrap().size, 2);

    fixture.engine.pause(&permit, None, false).await.unwrap();
    let refused = fixture.engine.open_client(&permit, None).await;
    let refused = refused.err().unwrap();
    assert!(matches!(refused, SandboxError::Paused(_)), "{refused}");
    fixture.engine.kill(&permit).await.unwrap();
    let gone = fixture.engine.open_client(&permit, None).await;
    let gone = gone.err().unwrap();
    assert!(matches!(gone, SandboxError::NotFound(_)), "{gone}");
    let late = inside.run(SandboxCommand::new("id", [""; 0])).await;
    // The daemon's immediate answer may come first.
    assert!(matches!(late, Ok(_) | Err(InsideError::Unreachable(_))));
}

#[tokio::test]
async fn only_an_admin_sees_what_all_teams_have() {
    let fixture = fixture().await;
    let id = fixture.create().await;
    let admin = Principal {
        admin: true,
        ..principal(&fixture.engine, "admins").await
    };
    let all = ListFilter {
        all_teams: true,
        ..ListFilter::all(10)
    };
    assert_eq!(fixture.engine.list(&admin, &all).sandboxes[0].id, id);
    let other = principal(&fixture.engine, "other").await;
    assert!(fixture.engine.list(&other, &all).sandboxes.is_empty());
    assert_eq!(fixture.engine.usage(&fixture.me).counted, 1);
    assert_eq!(fixture.engine.usage_of_all(&admin).unwrap().counted, 1);
    assert!(fixture.engine.usage_of_all(&other).is_none());
    assert!(fixture.engine.authorize(&admin, &id).is_err());
}
