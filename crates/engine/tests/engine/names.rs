//! Whose template a name means: a stranger's only in the stranger's namespace.

use serde_json::json;
use shoal_core::build::{Base, BuildStatus, Plan, Stage};
use shoal_core::resources::Resources;
use shoal_core::template::TemplateKey;
use shoal_engine::BuildRequest;

use super::*;

const POISON: &str = "test/poison:1";

/// A template that a stranger has published under this name.
async fn published(fixture: &Fixture, stranger: &Principal, name: &str) -> Template {
    let opened = Template {
        team: Some(stranger.team),
        ..template(name, POISON)
    };
    fixture.engine.put_template(opened.clone()).await.unwrap();
    opened
}

async fn image(fixture: &Fixture, who: &Principal, key: &str) -> Result<String, CreateError> {
    let new = SandboxRequest::of(key.parse::<TemplateKey>().unwrap());
    let created = fixture.engine.create(who, new, None).await?;
    Ok(created.record.spec.image.to_string())
}

async fn built_on(fixture: &Fixture, base: &str) -> BuildStatus {
    let new = BuildRequest {
        name: "upper".parse().unwrap(),
        tags: Vec::new(),
        resources: Resources::default(),
    };
    let build = fixture.engine.announce_build(&fixture.me, new).await;
    let build = build.unwrap();
    let plan = Plan {
        stages: vec![Stage {
            base: Base::Template(base.parse().unwrap()),
            steps: Vec::new(),
        }],
        start: None,
        ready: None,
        force: false,
        keep_env: Vec::new(),
    };
    let begun = fixture
        .engine
        .begin_build(&fixture.me, build.id, plan)
        .await;
    begun.unwrap();
    loop {
        let now = fixture.engine.build(&fixture.me, build.id).unwrap();
        if now.status.is_final() {
            return now.status;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_name_that_only_a_stranger_has_published_is_not_found() {
    let fixture = fixture_with(|_| {}).await;
    let stranger = principal(&fixture.engine, "stranger").await;
    let bystander = principal(&fixture.engine, "bystander").await;
    for name in ["pytools", "bas", "base-1", "code-interpreter-v2", "node"] {
        published(&fixture, &stranger, name).await;
        // The namespace of another team, even one without templates, does not lead there either.
        for key in [
            name.to_owned(),
            format!("{name}:default"),
            format!("mine/{name}"),
            format!("bystander/{name}"),
            format!("nobody/{name}"),
        ] {
            for who in [&fixture.me, &bystander] {
                let refused = image(&fixture, who, &key).await;
                let missing = matches!(refused, Err(CreateError::Template(_)));
                assert!(missing, "{key}: {refused:?}");
            }
        }
        assert_eq!(built_on(&fixture, name).await, BuildStatus::Error, "{name}");
    }
    let qualified = image(&fixture, &fixture.me, "stranger/pytools").await;
    assert!(qualified.unwrap().ends_with(POISON));
    assert_eq!(
        built_on(&fixture, "stranger/pytools").await,
        BuildStatus::Ready
    );
    let own = image(&fixture, &stranger, "pytools").await.unwrap();
    assert!(own.ends_with(POISON));
}

#[tokio::test]
async fn a_name_that_a_team_has_deleted_is_no_strangers() {
    let fixture = fixture_with(|_| {}).await;
    let stranger = principal(&fixture.engine, "stranger").await;
    let own = Template {
        id: TemplateId::from_entropy([9; 16]),
        team: Some(fixture.me.team),
        ..template("tools", "test/image:1")
    };
    fixture.engine.put_template(own).await.unwrap();
    published(&fixture, &stranger, "tools").await;
    let mine = image(&fixture, &fixture.me, "tools").await.unwrap();
    assert!(mine.ends_with("test/image:1"), "{mine}");
    let all = fixture.engine.list(&fixture.me, &ListFilter::all(10));
    for record in all.sandboxes {
        let (permit, _) = fixture.engine.authorize(&fixture.me, &record.id).unwrap();
        fixture.engine.kill(&permit).await.unwrap();
    }
    let reference = "tools".parse().unwrap();
    let deleted = fixture.engine.delete_template(&fixture.me, &reference);
    deleted.await.unwrap();
    let refused = image(&fixture, &fixture.me, "tools").await;
    assert!(
        matches!(refused, Err(CreateError::Template(_))),
        "{refused:?}"
    );
    // Deleting again does not reach the stranger's.
    let again = fixture.engine.delete_template(&fixture.me, &reference);
    assert!(again.await.is_err());
}

#[tokio::test]
async fn an_id_means_its_template_and_a_name_that_looks_like_one_does_not() {
    let fixture = fixture_with(|_| {}).await;
    let stranger = principal(&fixture.engine, "stranger").await;
    let opened = published(&fixture, &stranger, "tools").await;
    let by_id = image(&fixture, &fixture.me, opened.id.as_str()).await;
    assert!(by_id.unwrap().ends_with(POISON));
    // A stranger's template is called like the id of the installation's.
    let stock = template("base", "test/image:1").id;
    let alike = Template {
        names: vec![stock.as_str().parse().unwrap()],
        ..template("alike", POISON)
    };
    let alike = Template {
        team: Some(stranger.team),
        ..alike
    };
    fixture.engine.put_template(alike).await.unwrap();
    let found = image(&fixture, &fixture.me, stock.as_str()).await.unwrap();
    assert!(found.ends_with("test/image:1"), "{found}");
}

#[tokio::test]
async fn an_entry_of_the_catalogue_stands_on_a_team_s_template_by_its_namespace_alone() {
    let fixture = fixture_with(|_| {}).await;
    let stranger = principal(&fixture.engine, "stranger").await;
    published(&fixture, &stranger, "tools").await;
    for (base, found) in [
        ("tools", false),
        ("mine/tools", false),
        ("stranger/tools", true),
    ] {
        let entries = json!([{"name": "entry", "template": base, "description": "d"}]);
        let entries = entries.to_string();
        let put = fixture.engine.replace_catalogue(&entries, None);
        put.await.unwrap();
        let answer = image(&fixture, &fixture.me, "entry").await;
        assert_eq!(answer.is_ok(), found, "{base}: {answer:?}");
    }
}
