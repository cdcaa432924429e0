//! Removing a template by a name with a tag.

use super::*;

fn named(text: &str) -> TemplateRef {
    text.parse().unwrap()
}

impl Fixture {
    async fn remove(&self, name: &str) -> Result<(), TemplateError> {
        let reference = named(name);
        self.engine.delete_template(&self.me, &reference).await
    }
}

#[tokio::test]
async fn a_name_with_a_tag_removes_that_tag_alone() {
    let fixture = fixture().await;
    let engine = &fixture.engine;
    let one = fixture.build("made:v1", &["a"]).await;
    let two = fixture.build("made:v2", &["b"]).await;
    fixture.remove("made:v1").await.unwrap();
    assert!(fixture.now_of(&one).made.is_none());
    let left = engine.resolve_template(&fixture.me, &named("made:v2"));
    assert_eq!(left.unwrap().build, two.id);
    let gone = fixture.remove("made:v1").await.unwrap_err();
    assert_eq!(
        gone.to_string(),
        "tag 'v1' does not exist for template 'made': it has v2"
    );
    // The last tag goes with its template, which the bare name removes.
    let kept = fixture.remove("made:v2").await.unwrap_err();
    assert!(matches!(kept, TemplateError::KeptTag { .. }), "{kept}");
    assert!(kept.to_string().ends_with("by its name, 'made'"), "{kept}");
    assert!(fixture.now_of(&two).made.is_some());
    fixture.remove("made").await.unwrap();
    assert!(engine.find_template(&fixture.me, &named("made")).is_none());
}

#[tokio::test]
async fn the_default_tag_is_not_removed_alone() {
    let fixture = fixture().await;
    fixture.build("made", &["a"]).await;
    fixture.build("made:v1", &["b"]).await;
    let engine = &fixture.engine;
    let kept = engine
        .delete_template(&fixture.me, &named("made:default"))
        .await
        .unwrap_err();
    assert!(matches!(kept, TemplateError::KeptTag { .. }), "{kept}");
    let other = principal(engine, "other").await;
    let hidden = engine.delete_template(&other, &named("made:v1")).await;
    assert!(matches!(hidden, Err(TemplateError::NotFound(_))));
    for name in ["made", "made:v1"] {
        engine.resolve_template(&fixture.me, &named(name)).unwrap();
    }
}

#[tokio::test]
async fn a_template_in_use_names_the_sandboxes_that_use_it() {
    let fixture = fixture().await;
    fixture.build("made", &["a"]).await;
    let new = SandboxRequest::of("made".parse::<TemplateKey>().unwrap());
    let made = fixture.engine.create(&fixture.me, new, None).await.unwrap();
    let id = &made.record.id;
    let used = fixture
        .engine
        .delete_template(&fixture.me, &named("made"))
        .await
        .unwrap_err();
    assert!(
        used.to_string().contains(&format!("1 sandbox ({id})")),
        "{used}"
    );
}
