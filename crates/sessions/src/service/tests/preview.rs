//! Previews: their names, and how requests start machines.

use shoal_core::ports::sessions::preview::{Previews, Waking};
use shoal_core::session::preview::{PreviewHash, PreviewName};

use super::*;

impl Fixture {
    async fn public(&self, wake_on_request: bool) -> (String, PreviewHash) {
        let new = NewSession {
            wake_on_request,
            ..NewSession::default()
        };
        let made = self.service.create(&self.principal, new).await.unwrap();
        (made.record.id.to_string(), hash_of(&made))
    }

    fn machine(&self, hash: &PreviewHash) -> Option<shoal_core::id::SandboxId> {
        self.service.find(hash).unwrap().machine
    }

    fn is_waking(&self, session: &str) -> bool {
        let live = self.service.0.find(&self.principal, session).unwrap();
        live.published.is_waking()
    }

    /// Wakes the machine, and waits until it is awake.
    async fn wakes(&self, session: &str, hash: &PreviewHash) {
        let begun = Waking::Begun(session.parse().unwrap());
        assert_eq!(self.service.wake(hash), begun);
        // Further requests join the pending start.
        assert_eq!(self.service.wake(hash), Waking::Going);
        let opened = async {
            while self.view(session).await.windows.is_empty() || self.is_waking(session) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(20 * SECOND, opened).await.unwrap();
        assert!(self.machine(hash).is_some());
    }
}

pub(super) fn hash_of(view: &SessionView) -> PreviewHash {
    let domain = PreviewDomain::of(Some("test.example"));
    match domain.find(&view.public_hostname) {
        Some(PreviewName::Hash(hash)) => hash,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn r2_065_a_preview_stays_the_same_on_every_machine_and_after_a_restart() {
    let fixture = Fixture::new().await;
    let (session, hash) = fixture.public(false).await;
    let (_, other) = fixture.public(false).await;
    assert_ne!(hash, other);
    assert_eq!(fixture.machine(&hash), None);
    let mut machines = Vec::new();
    for _ in 0..2 {
        fixture.run(&session, "true").await;
        let machine = fixture.machine(&hash).unwrap();
        assert!(fixture.service.is_machine(&machine));
        machines.push(machine.clone());
        fixture.ends(&session, IDLE).await;
        assert!(!fixture.service.is_machine(&machine));
        assert_eq!(fixture.machine(&hash), None);
        assert_eq!(hash_of(&fixture.view(&session).await), hash);
    }
    assert_ne!(machines[0], machines[1]);
    fixture.run(&session, "true").await;
    let parts = fixture.service.0.parts.clone();
    let again = SessionService::open(parts).await.unwrap();
    let machine = fixture.machine(&hash);
    assert_eq!(again.find(&hash).unwrap().machine, machine);
    assert!(again.is_machine(&machine.unwrap()));
    again.delete(&fixture.principal, &session).await.unwrap();
    assert!(again.find(&hash).is_none());
    assert_eq!(again.wake(&hash), Waking::Never);
}

#[tokio::test]
async fn a_session_of_a_former_version_gets_a_preview_when_it_is_opened() {
    let fixture = Fixture::new().await;
    let (session, hash) = fixture.public(true).await;
    let mut stored = serde_json::to_value(fixture.view(&session).await.record).unwrap();
    let fields = stored.as_object_mut().unwrap();
    assert!(fields.remove("preview").is_some() && fields.remove("wakes").is_some());
    let former: SessionRecord = serde_json::from_value(stored).unwrap();
    fixture.machines.put_session(&former).await.unwrap();
    let open = async || {
        let again = SessionService::open(fixture.service.0.parts.clone()).await;
        again
            .unwrap()
            .get(&fixture.principal, &session)
            .await
            .unwrap()
    };
    let first = open().await;
    assert_ne!(hash_of(&first), hash);
    assert!(!first.record.wakes.allowed);
    assert_eq!(open().await.public_hostname, first.public_hostname);
}

#[tokio::test]
async fn r2_062_a_machine_is_made_without_public_traffic() {
    let fixture = Fixture::new().await;
    let session = fixture.session(false).await;
    fixture.run(&session, "true").await;
    assert_eq!(fixture.machines.public(), [false]);
}

#[tokio::test]
async fn r2_064_and_r2_101_every_window_and_its_background_know_the_host_name() {
    let fixture = Fixture::new().await;
    let session = fixture.session(false).await;
    let host = fixture.view(&session).await.public_hostname;
    assert!(host.ends_with(".preview.test.example"), "{host}");
    for name in ["main", "other"] {
        let window = name.parse::<WindowName>().unwrap();
        let command = "echo $PUBLIC_HOSTNAME; bash -c 'echo $PUBLIC_HOSTNAME' & wait $!";
        let events = fixture
            .service
            .exec(&fixture.principal, &session, &window, command);
        let (printed, _) = all(events.await.unwrap()).await;
        let seen = printed.matches(host.as_str()).count();
        assert_eq!(seen, 2, "{name}: {printed}");
    }
}

#[tokio::test]
async fn requests_start_a_machine_only_when_the_session_allows_it() {
    let fixture = Fixture::new().await;
    let (session, hash) = fixture.public(false).await;
    assert_eq!(fixture.service.wake(&hash), Waking::Never);
    let stranger = PreviewHash::from_entropy([9; 16]);
    assert_eq!(fixture.service.wake(&stranger), Waking::Never);
    let allow = SessionChange {
        wake_on_request: Some(true),
        ..SessionChange::default()
    };
    let changed = fixture.service.change(&fixture.principal, &session, allow);
    changed.await.unwrap();
    fixture.wakes(&session, &hash).await;
    assert_eq!(fixture.machines.made(), 1);
}

#[tokio::test]
async fn requests_are_no_activity_and_start_a_bounded_number_of_machines() {
    let fixture = Fixture::new().await;
    let (session, hash) = fixture.public(true).await;
    for number in 1..=5 {
        fixture.wakes(&session, &hash).await;
        assert_eq!(fixture.machines.made(), number);
        fixture.lives(&session, IDLE - SECOND).await;
        // Requests to the preview do not keep the machine.
        assert!(fixture.service.find(&hash).unwrap().machine.is_some());
        fixture.ends(&session, SECOND).await;
    }
    // The fifth came four hours after the first, and so does the sixth after the fifth.
    assert_eq!(fixture.service.wake(&hash), Waking::NotFor(3 * IDLE));
    fixture.clock.advance(3 * IDLE - SECOND);
    assert_eq!(fixture.service.wake(&hash), Waking::NotFor(SECOND));
    // Commands are not bounded, and a restart forgets nothing.
    fixture.run(&session, "true").await;
    let again = SessionService::open(fixture.service.0.parts.clone()).await;
    assert_eq!(again.unwrap().wake(&hash), Waking::NotFor(SECOND));
    fixture.ends(&session, IDLE).await;
    fixture.wakes(&session, &hash).await;
}
