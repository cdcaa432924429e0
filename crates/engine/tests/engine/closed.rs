//! The daemon of a sandbox is closed from its first moment on, secured or not.

use shoal_core::auth::Token;
use shoal_core::driver::Start;
use shoal_core::sandbox::SandboxRecord;
use shoal_engine::NewSnapshot;

use super::*;

impl Fixture {
    async fn made(&self, new: SandboxRequest) -> Arc<SandboxRecord> {
        let made = self.engine.create(&self.me, new, None).await;
        made.unwrap().record
    }

    /// The token that the daemon got before it ran, and the one that the gateway sends.
    fn handed_and_shown(&self, id: &SandboxId) -> (Token, Token, Option<Token>) {
        let Lookup::Running(route) = self.engine.routes().lookup(id) else {
            panic!("it runs")
        };
        let handed = self.driver.guest_token(id).unwrap();
        let route = route.as_ref().clone();
        (handed, route.guest_token, route.envd_access_token)
    }
}

fn new_one(secure: bool) -> SandboxRequest {
    SandboxRequest {
        secure,
        ..new("base")
    }
}

#[tokio::test]
async fn a_daemon_has_its_token_before_it_runs_and_keeps_it() {
    let fixture = fixture().await;
    for secure in [true, false] {
        let record = fixture.made(new_one(secure)).await;
        let (handed, shown, callers) = fixture.handed_and_shown(&record.id);
        assert_eq!(handed, shown);
        assert_eq!(callers, secure.then(|| handed.clone()));
        assert_eq!(fixture.engine.envd_access_token(&record), callers);
        let begun = fixture.guest.begun.lock().last().cloned().unwrap();
        assert_eq!(begun.known_token.as_ref(), Some(&handed));
        assert_eq!(begun.access_token, handed);
        assert_eq!(begun.open_inside, !secure);
    }
    let handed: Vec<_> = fixture.driver.sandboxes();
    let handed = handed.iter().map(|id| fixture.driver.guest_token(id));
    let handed: Vec<_> = handed.map(Option::unwrap).collect();
    assert_ne!(handed[0], handed[1], "each has its own");
}

#[tokio::test]
async fn what_begins_with_the_memory_of_an_open_sandbox_begins_closed() {
    let fixture = fixture().await;
    let source = fixture.made(new_one(false)).await;
    let of_source = fixture.driver.guest_token(&source.id).unwrap();
    let (permit, _) = fixture.engine.authorize(&fixture.me, &source.id).unwrap();
    let taken = fixture
        .engine
        .snapshot(&fixture.me, &permit, NewSnapshot::default());
    let reference = taken.await.unwrap().reference(fixture.me.slug.as_str());
    let clone = fixture
        .made(SandboxRequest {
            secure: true,
            ..new(&reference)
        })
        .await;
    assert!(matches!(
        fixture.driver.start(&clone.id),
        Some(Start::Snapshot { memory: true, .. })
    ));
    let begun = fixture.guest.begun.lock().last().cloned().unwrap();
    assert_eq!(begun.known_token, Some(of_source.clone()));
    assert_ne!(begun.access_token, of_source);
    assert_eq!(
        Some(begun.access_token),
        fixture.engine.envd_access_token(&clone)
    );
}
