//! Pools of entries that are based on a built template.

use super::*;
use crate::builtin;

fn standing(warm_up: Option<&str>) -> Value {
    let mut entry = warm(1);
    let fields = entry.as_object_mut().unwrap();
    fields.remove("image");
    fields.insert("template".to_owned(), json!(builtin::NAME));
    let pool = entry["pool"].as_object_mut().unwrap();
    pool.remove("warmupCmd");
    if let Some(command) = warm_up {
        pool.insert("warmupCmd".to_owned(), json!(command));
    }
    entry
}

impl Pooled {
    /// Waits until the pool is full, and makes it try again as often as that needs.
    async fn full_at_last(&self) {
        let full = |fixture: &Self| {
            if fixture.view().fault.is_some() {
                fixture.clock.advance(Duration::from_secs(1));
            }
            fixture.view().ready == 1
        };
        self.until("full", full).await;
    }

    fn built(&self) -> Arc<Template> {
        let reference = builtin::NAME.parse().unwrap();
        self.engine.find_template(&self.me, &reference).unwrap()
    }

    fn begun_with(&self, id: &SandboxId) -> Start {
        self.driver.start(id).unwrap()
    }
}

#[tokio::test]
async fn members_begin_with_the_memory_of_the_template_which_is_built_first() {
    let fixture = Pooled::new().await;
    let base = template("base", "test/image:1");
    fixture.engine.put_template(base).await.unwrap();
    fixture.engine.register_builtin(builtin::offer());
    fixture.put(json!([standing(None)])).await;
    fixture.full_at_last().await;
    let saved = fixture.built().snapshot.clone().unwrap();
    let begins =
        |start: Start| matches!(start, Start::Snapshot { id, memory: true } if id == saved.id);
    let member = fixture.members().remove(0);
    assert!(begins(fixture.begun_with(&member)));
    let claimed = fixture.create().await;
    assert_eq!(
        (origin(&claimed), &claimed.id),
        (StartKind::Pooled, &member)
    );
    // Values that its entry lacks are its template's.
    assert_eq!(claimed.spec.user, fixture.built().user);
    assert_eq!(claimed.spec.image, fixture.built().image);
    // An image of the request's own has nothing of it.
    let admin = Principal {
        admin: true,
        ..fixture.me.clone()
    };
    let other = SandboxRequest {
        image: Some("registry.test/warm:1".parse().unwrap()),
        ..asked()
    };
    let other = fixture.engine.create(&admin, other, None).await.unwrap();
    let begun = fixture.begun_with(&other.record.id);
    assert!(matches!(begun, Start::Image(_)));
}

#[tokio::test]
async fn a_template_that_is_built_anew_replaces_the_members() {
    let fixture = Pooled::new().await;
    let base = template("base", "test/image:1");
    fixture.engine.put_template(base).await.unwrap();
    fixture.engine.register_builtin(builtin::offer());
    fixture.put(json!([standing(Some("warm,up"))])).await;
    fixture.full_at_last().await;
    let (before, member) = (fixture.built(), fixture.members().remove(0));
    // The first was warmed up and saved over what it began with, and the next begins with that.
    let saved = before.snapshot.clone().unwrap();
    assert!(matches!(fixture.begun_with(&member), Start::Snapshot { id, .. } if id == saved.id));
    fixture.create().await;
    fixture.full_at_last().await;
    let next = fixture.members().remove(0);
    assert!(matches!(fixture.begun_with(&next), Start::Snapshot { id, .. } if id != saved.id));

    let admin = Principal {
        admin: true,
        ..fixture.me.clone()
    };
    let name = builtin::NAME.parse().unwrap();
    fixture
        .engine
        .build_builtin(&admin, &name, true)
        .await
        .unwrap();
    let anew = |fixture: &Pooled| fixture.built().build != before.build;
    fixture.until("built anew", anew).await;
    fixture.clock.advance(Duration::from_secs(61));
    let replaced = |fixture: &Pooled| {
        let members = fixture.members();
        fixture.view().ready == 1 && !members.contains(&next)
    };
    fixture.until("replaced", replaced).await;
}

#[tokio::test]
async fn what_a_tenant_has_opened_is_no_base_unless_his_name_is_said() {
    let fixture = Pooled::new().await;
    let opened = Template {
        team: Some(fixture.me.team),
        public: true,
        id: TemplateId::from_entropy([8; 16]),
        ..template(builtin::NAME, "test/poison:1")
    };
    fixture.engine.put_template(opened).await.unwrap();
    let mut entry = standing(None);
    entry["pool"]["size"] = json!(0);
    fixture.put(json!([entry.clone()])).await;
    let guests = principal(&fixture.engine, "guests").await;
    let refused = fixture.engine.create(&guests, asked(), None).await;
    let refused = refused.unwrap_err().to_string();
    assert!(
        refused.contains("template 'warm' is based on 'interpreter', which does not exist"),
        "{refused}"
    );
    entry["template"] = json!(format!("mine/{}", builtin::NAME));
    fixture.put(json!([entry])).await;
    let created = fixture.engine.create(&guests, asked(), None).await.unwrap();
    assert!(
        created
            .record
            .spec
            .image
            .to_string()
            .ends_with("test/poison:1")
    );
}
