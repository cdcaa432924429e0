//! The label of a sandbox, or of its template, decides whether and when it is parked.

use shoal_core::clock::Clock;
use shoal_core::sandbox::PARKING_KEY;

use super::*;

/// Only sandboxes that ask are parked.
fn asked(config: &mut EngineConfig) {
    parks(config);
    if let Some(parking) = &mut config.parking {
        parking.after = None;
    }
}

fn labelled(value: &str) -> SandboxRequest {
    let mut request = long();
    let label = (PARKING_KEY.to_owned(), value.to_owned());
    request.metadata.extend([label]);
    request
}

#[tokio::test]
async fn a_label_asks_for_parking_where_it_is_not_the_default() {
    let fixture = fixture_with(asked).await;
    let silent = fixture.start_one(long()).await;
    let asks = fixture.start_one(labelled("60s")).await;
    fixture.parked(&asks).await;
    fixture.clock.advance(seconds(AFTER * 10));
    // Another one is parked later: there were looks at the silent one, too.
    let later = fixture.start_one(labelled("60s")).await;
    fixture.parked(&later).await;
    assert_eq!(fixture.state_now(&silent), StateKind::Running);
    fixture.engine.routes().wake(&asks).await.unwrap();
    fixture.parked(&asks).await;
}

#[tokio::test]
async fn a_label_wins_over_the_default_time() {
    let fixture = parking().await;
    let stays = fixture.start_one(labelled("off")).await;
    let begun = fixture.clock.now();
    let patient = fixture.start_one(labelled("600s")).await;
    let plain = fixture.start_one(long()).await;
    fixture.parked(&plain).await;
    // On a busy machine the park may take ten minutes of this clock.
    let is_early = fixture.clock.now().since(begun) < seconds(600);
    assert!(!is_early || fixture.state_now(&patient) == StateKind::Running);
    fixture.pass(&patient, 600).await;
    fixture.parked(&patient).await;
    assert_eq!(fixture.state_now(&stays), StateKind::Running);
}

#[tokio::test]
async fn sandboxes_with_a_short_time_are_looked_at_more_often() {
    let fixture = fixture_with(asked).await;
    let id = fixture.start_one(labelled("1s")).await;
    // The first look after the start, and from then on one each half second.
    fixture.look(&id).await;
    for _ in 0..10 {
        if fixture.state_now(&id) == StateKind::Running {
            let before = fixture.driver.reads();
            fixture.clock.advance(Duration::from_millis(500));
            until("looked", || {
                fixture.driver.reads() > before || fixture.state_now(&id) != StateKind::Running
            })
            .await;
        }
    }
    until("parked", || fixture.state_now(&id) == StateKind::Parked).await;
}

#[tokio::test]
async fn the_labels_of_a_template_hold_unless_the_request_has_its_own() {
    let fixture = fixture_with(asked).await;
    let entries = serde_json::json!([{
        "name": "dozes", "template": "base", "description": "parked soon",
        "metadata": {PARKING_KEY: "60s"},
    }]);
    let text = entries.to_string();
    fixture.engine.replace_catalogue(&text, None).await.unwrap();
    let from = |request: SandboxRequest| SandboxRequest {
        template: Some("dozes".parse().unwrap()),
        ..request
    };
    let stays = fixture.start_one(from(labelled("off"))).await;
    let id = fixture.start_one(from(long())).await;
    fixture.parked(&id).await;
    assert_eq!(fixture.state_now(&stays), StateKind::Running);
}
