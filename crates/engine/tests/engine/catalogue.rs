//! The catalogue: the version in force, and the sandboxes of its entries.

use serde_json::json;
use shoal_core::build::{Base, BuildStatus, Plan, Stage};
use shoal_core::catalogue::merge::Source;
use shoal_core::image::{ImageError, ImageName, RegistryAuth};
use shoal_core::network::{RequestedEgress, RequestedNetwork};
use shoal_core::resources::{Mib, MilliCpu, RequestedResources, Resources};
use shoal_core::sandbox::{SandboxRecord, SnapshotOrigin};
use shoal_core::snapshot::Contents;
use shoal_core::template::TemplateKey;
use shoal_engine::test_util::FakeRegistry;
use shoal_engine::{
    BuildRequest, CatalogueError, CustomImages, Meaning, NewSnapshot, TemplateError,
};

use super::*;

struct Registered {
    directory: tempfile::TempDir,
    driver: FakeDriver,
    clock: Arc<ManualClock>,
    images: FakeRegistry,
    engine: Engine,
    me: Principal,
}

impl Registered {
    async fn new(change: impl FnOnce(&mut EngineConfig)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (driver, clock) = (FakeDriver::new(), ManualClock::new());
        let images = FakeRegistry::default();
        let engine = open(directory.path(), &driver, &clock, &images, change).await;
        engine
            .put_template(template("base", "test/image:1"))
            .await
            .unwrap();
        let me = principal(&engine, "mine").await;
        Self {
            directory,
            driver,
            clock,
            images,
            engine,
            me,
        }
    }

    async fn put(&self, entries: serde_json::Value) {
        let json = entries.to_string();
        self.engine.replace_catalogue(&json, None).await.unwrap();
    }

    async fn create(&self, key: &str) -> Result<Arc<SandboxRecord>, CreateError> {
        let new = SandboxRequest::of(key.parse::<TemplateKey>().unwrap());
        let created = self.engine.create(&self.me, new, None).await?;
        Ok(created.record)
    }
}

async fn open(
    directory: &Path,
    driver: &FakeDriver,
    clock: &Arc<ManualClock>,
    images: &FakeRegistry,
    change: impl FnOnce(&mut EngineConfig),
) -> Engine {
    let (guest, images) = (FakeGuest::default(), Arc::new(images.clone()));
    engine_over(directory, driver, clock, &guest, images, change).await
}

fn entry(name: &str, image: &str) -> serde_json::Value {
    json!({"name": name, "image": image, "description": "d"})
}

fn family() -> serde_json::Value {
    json!({"name": "faas-code", "type": "dynamic", "description": "d",
           "pattern": "faas-code-(?P<name>.+)\\.(?P<version>.+)$",
           "image": "registry.test/agent/<name>:<version>"})
}

fn image(name: &str) -> ImageName {
    name.parse().unwrap()
}

#[tokio::test]
async fn a_catalogue_is_replaced_as_a_whole_if_nobody_has_changed_it() {
    let fixture = Registered::new(|_| {}).await;
    let engine = &fixture.engine;
    assert_eq!(engine.catalogue().version, 0);
    let mut news = engine.watch_catalogue();
    let one = json!([entry("a", "i:1")]).to_string();
    let first = engine.replace_catalogue(&one, Some(0)).await.unwrap();
    assert_eq!(first.version, 1);
    assert!(news.has_changed().unwrap());
    assert_eq!(news.borrow_and_update().version, 1);
    // The same again is no news.
    assert_eq!(
        engine.replace_catalogue(&one, None).await.unwrap().version,
        1
    );
    let two = json!([entry("b", "i:1")]).to_string();
    let stale = engine.replace_catalogue(&two, Some(0)).await.unwrap_err();
    assert!(matches!(
        stale,
        CatalogueError::Conflict {
            expected: 0,
            current: 1
        }
    ));
    let half = json!([entry("b", "i:1"), {"name": "c"}]).to_string();
    let bad = engine.replace_catalogue(&half, Some(1)).await.unwrap_err();
    assert!(matches!(bad, CatalogueError::Invalid(_)));
    assert!(engine.catalogue().catalogue.entry("b").is_none());
    engine.note_refused_edit("a file", &bad.to_string());
    assert_eq!(engine.refused_edit().unwrap().source, "a file");
    assert_eq!(
        engine
            .replace_catalogue(&two, Some(1))
            .await
            .unwrap()
            .version,
        2
    );
    assert!(engine.refused_edit().is_none());

    let Registered {
        directory,
        driver,
        clock,
        images,
        ..
    } = fixture;
    let again = open(directory.path(), &driver, &clock, &images, |_| {}).await;
    assert_eq!(again.catalogue().version, 2);
    assert!(again.catalogue().catalogue.entry("b").is_some());
}

#[tokio::test]
async fn editors_at_the_same_moment_do_not_overwrite_each_other() {
    let fixture = Registered::new(|_| {}).await;
    let edits = (0..16).map(|n| {
        let engine = fixture.engine.clone();
        let json = json!([entry(&format!("e{n}"), "i:1")]).to_string();
        tokio::spawn(async move { engine.replace_catalogue(&json, Some(0)).await.is_ok() })
    });
    let mut taken = 0;
    for edit in edits.collect::<Vec<_>>() {
        taken += usize::from(edit.await.unwrap());
    }
    assert_eq!((taken, fixture.engine.catalogue().version), (1, 1));
}

#[tokio::test]
async fn a_sandbox_of_an_entry_is_what_the_entry_says_over_its_image() {
    let fixture = Registered::new(|_| {}).await;
    fixture
        .put(json!([{
            "name": "code", "image": "registry.test/code:1", "description": "d",
            "resources": {"cpu": "0.2", "memory": "200Mi", "cpuLimit": "1", "memoryLimit": "512Mi"},
            "metadata": {"tier": "gold", "own": "template"}, "env": {"FROM": "template"},
            "workdir": "/srv", "persistentContents": ["filesystem"],
            "network": {"allowInternetAccess": false, "allowPublicTraffic": false}
        }]))
        .await;
    let new = SandboxRequest {
        metadata: BTreeMap::from([("own".to_owned(), "request".to_owned())]),
        resources: RequestedResources {
            cpu: Some(MilliCpu(500)),
            ..RequestedResources::default()
        },
        secure: false,
        network: RequestedNetwork {
            said_open: true,
            egress: RequestedEgress {
                dns_servers: Some(vec![[9, 9, 9, 9].into()]),
                ..RequestedEgress::default()
            },
            ..RequestedNetwork::default()
        },
        ..SandboxRequest::of("Code".parse::<TemplateKey>().unwrap())
    };
    let made = fixture.engine.create(&fixture.me, new, None).await.unwrap();
    let spec = &made.record.spec;
    assert_eq!(spec.image, image("registry.test/code:1"));
    assert_eq!(spec.template_name.as_deref(), Some("code"));
    assert_eq!(
        (spec.resources.cpu, spec.resources.memory),
        (MilliCpu(500), Mib(512))
    );
    assert_eq!(
        (spec.user.as_str(), spec.workdir.as_deref()),
        ("node", Some("/srv"))
    );
    assert_eq!(
        (spec.env["FROM"].as_str(), spec.env["IMAGE"].as_str()),
        ("template", "1")
    );
    let labels = (
        spec.metadata["tier"].as_str(),
        spec.metadata["own"].as_str(),
    );
    assert_eq!(labels, ("gold", "request"));
    assert_eq!(spec.persistent, Contents::Filesystem);
    assert_eq!(spec.network.egress.internet, Some(false));
    // A private one is secured, even if the request does not ask for it.
    assert!(!spec.network.allow_public_traffic && spec.secure);
    assert_eq!(
        spec.cpu_ceiling,
        MilliCpu(4000).min(fixture.engine.capabilities().cpu)
    );
}

#[tokio::test]
async fn what_an_entry_says_of_the_network_counts_for_clones_and_what_a_request_does_not() {
    let fixture = Registered::new(|_| {}).await;
    let of =
        |name: &str| json!({"name": name, "image": "registry.test/code:1", "description": "d"});
    let mut closed = of("closed");
    closed["network"] = json!({"allowInternetAccess": false, "allowPublicTraffic": false});
    fixture.put(json!([closed, of("open")])).await;
    let unasked = RequestedNetwork::default();
    let asked = RequestedNetwork {
        egress: RequestedEgress {
            internet: Some(false),
            ..RequestedEgress::default()
        },
        ..RequestedNetwork::default()
    };
    let sees = async |key: &TemplateKey, network: &RequestedNetwork| {
        let new = SandboxRequest {
            network: network.clone(),
            ..SandboxRequest::of(key.clone())
        };
        let made = fixture.engine.create(&fixture.me, new, None).await.unwrap();
        let network = &made.record.spec.network;
        let seen = (network.egress.is_closed(), network.allow_public_traffic);
        let permit = fixture
            .engine
            .find(&fixture.me, made.record.id.as_str())
            .unwrap()
            .0;
        let snapshot = fixture
            .engine
            .snapshot(&fixture.me, &permit, NewSnapshot::default())
            .await;
        let clone: TemplateKey = snapshot.unwrap().template.as_str().parse().unwrap();
        (seen, clone)
    };
    for (name, network, first, cloned) in [
        ("closed", &unasked, (true, false), (true, false)),
        ("open", &unasked, (false, true), (false, true)),
        ("open", &asked, (true, true), (false, true)),
    ] {
        let (seen, snapshot) = sees(&name.parse().unwrap(), network).await;
        assert_eq!(seen, first, "{name}");
        let (seen, again) = sees(&snapshot, &unasked).await;
        assert_eq!(seen, cloned, "a clone of {name}");
        let (seen, _) = sees(&again, &unasked).await;
        assert_eq!(seen, cloned, "a clone's clone of {name}");
    }
}

#[tokio::test]
async fn a_dynamic_template_means_many_images_and_each_is_fetched_once() {
    let fixture = Registered::new(|_| {}).await;
    fixture.put(json!([family()])).await;
    for name in ["faas-code-python.3.11", "faas-code-python.3.11:default"] {
        let record = fixture.create(name).await.unwrap();
        assert_eq!(record.spec.image, image("registry.test/agent/python:3.11"));
        assert_eq!(record.spec.template_name.as_deref(), Some("faas-code"));
    }
    assert_eq!(
        *fixture.images.pulled.lock(),
        [image("registry.test/agent/python:3.11")]
    );
    let unknown = fixture.create("faas-code").await.unwrap_err();
    assert_eq!(unknown.to_string(), "template 'faas-code' not found");
    let unknown = fixture.create("other.1").await.unwrap_err();
    assert_eq!(unknown.to_string(), "template 'other.1' not found");
    let refused = fixture.create("faas-code-evil/x.1").await.unwrap_err();
    assert!(matches!(
        refused,
        CreateError::Template(TemplateError::Dynamic(_))
    ));
    let invalid = fixture.create("a/b/c").await.unwrap_err();
    assert!(matches!(
        invalid,
        CreateError::Template(TemplateError::Invalid(_))
    ));
}

#[tokio::test]
async fn an_image_that_cannot_be_had_says_which_template_wants_it_and_why() {
    let fixture = Registered::new(|_| {}).await;
    fixture.put(json!([family()])).await;
    for (name, part) in [
        (
            "missing",
            "image registry.test/agent/missing:1 was not found",
        ),
        ("private", "registry registry.test refused the credentials"),
        ("foreign", "has no variant for linux/amd64"),
    ] {
        let error = fixture
            .create(&format!("faas-code-{name}.1"))
            .await
            .unwrap_err();
        assert!(matches!(&error, CreateError::Image { template, .. } if template == "faas-code"));
        assert!(error.to_string().contains(part), "{error}");
    }
    assert!(
        fixture
            .engine
            .list(&fixture.me, &ListFilter::default())
            .sandboxes
            .is_empty()
    );
}

#[tokio::test]
async fn an_own_template_wins_over_an_entry_and_that_over_one_of_the_installation() {
    let fixture = Registered::new(|_| {}).await;
    let image_of = async |key: &str| fixture.create(key).await.unwrap().spec.image.to_string();
    assert_eq!(image_of("base").await, "test/image:1");
    fixture
        .put(json!([
            entry("base", "registry.test/base:2"),
            entry("work", "registry.test/work:1")
        ]))
        .await;
    assert_eq!(image_of("base").await, "registry.test/base:2");
    assert_eq!(image_of("base:default").await, "registry.test/base:2");
    let own = Template {
        team: Some(fixture.me.team),
        ..template("work", "test/own:1")
    };
    fixture.engine.put_template(own).await.unwrap();
    assert_eq!(image_of("work").await, "test/own:1");
    let tagged = fixture.create("base:v9").await.unwrap_err();
    assert!(matches!(
        tagged,
        CreateError::Template(TemplateError::NoTag { .. })
    ));
}

#[tokio::test]
async fn an_image_alone_is_custom_and_nothing_at_all_is_the_default() {
    let fixture = Registered::new(|config| {
        config.defaults.template = Some("base".parse().unwrap());
    })
    .await;
    let made = fixture
        .engine
        .create(&fixture.me, SandboxRequest::unnamed(), None);
    assert_eq!(made.await.unwrap().record.spec.image, image("test/image:1"));
    let named = |template: Option<&str>| SandboxRequest {
        template: template.map(|name| name.parse().unwrap()),
        image: Some(image("registry.test/mine:1")),
        ..SandboxRequest::unnamed()
    };
    // It is this machine that fetches it: not for everyone.
    let refused = fixture.engine.create(&fixture.me, named(None), None).await;
    assert!(matches!(refused, Err(CreateError::ImageForbidden)));
    assert!(fixture.images.pulled.lock().is_empty());
    let admin = Principal {
        admin: true,
        ..fixture.me.clone()
    };
    for (template, name) in [(None, "custom"), (Some("base"), "base")] {
        let made = fixture
            .engine
            .create(&admin, named(template), None)
            .await
            .unwrap();
        let spec = &made.record.spec;
        assert_eq!(spec.image, image("registry.test/mine:1"));
        assert_eq!(spec.template_name.as_deref(), Some(name));
    }
}

#[tokio::test]
async fn another_image_does_not_go_on_from_what_was_saved_of_the_templates_own() {
    let fixture = Registered::new(|config| config.custom_images = CustomImages::Everyone).await;
    let built = Template {
        snapshot: Some(SnapshotOrigin {
            id: "00000000-0000-4000-8000-000000000001".parse().unwrap(),
            memory: true,
            guest_token: None,
        }),
        ..template("built", "test/built:1")
    };
    fixture.engine.put_template(built).await.unwrap();
    let new = SandboxRequest {
        image: Some(image("registry.test/mine:1")),
        ..SandboxRequest::of("built".parse::<TemplateKey>().unwrap())
    };
    let made = fixture.engine.create(&fixture.me, new, None).await.unwrap();
    assert_eq!(made.record.spec.image, image("registry.test/mine:1"));
    assert_eq!(made.record.spec.snapshot, None);
}

#[tokio::test]
async fn the_default_image_stands_in_for_a_default_template_that_is_not_listed() {
    let fixture = Registered::new(|config| {
        config.defaults.template = Some("aio".parse().unwrap());
        config.defaults.image = Some(image("registry.test/aio:1"));
        config.custom_images = CustomImages::Everyone;
    })
    .await;
    let made = fixture
        .engine
        .create(&fixture.me, SandboxRequest::unnamed(), None);
    let spec = made.await.unwrap().record.spec.clone();
    assert_eq!(spec.image, image("registry.test/aio:1"));
    assert_eq!(spec.template_name.as_deref(), Some("aio"));
    let none = Registered::new(|_| {}).await;
    let refused = none
        .engine
        .create(&none.me, SandboxRequest::unnamed(), None)
        .await;
    assert!(matches!(refused, Err(CreateError::NoTemplate)));
}

#[tokio::test]
async fn what_a_name_means_is_explained_without_fetching_anything() {
    let fixture = Registered::new(|_| {}).await;
    let mut of_code = entry("code", "registry.test/code:1");
    of_code["resources"] = json!({"cpuLimit": "1"});
    fixture.put(json!([of_code, family()])).await;
    let explain = async |key: &str| {
        let key: TemplateKey = key.parse().unwrap();
        fixture.engine.explain(&fixture.me, Some(&key), None).await
    };
    let before = explain("code").await.unwrap();
    assert!(!before.image_here);
    assert_eq!(before.merged.cpu.from, Source::Template);
    assert_eq!(before.merged.memory.from, Source::Default);
    assert_eq!(before.merged.user.from, Source::Default);
    assert!(fixture.images.pulled.lock().is_empty());
    fixture.create("code").await.unwrap();
    let after = explain("code").await.unwrap();
    assert_eq!(
        (after.image_here, after.merged.user.from),
        (true, Source::Image)
    );
    let dynamic = explain("faas-code-go.1.21").await.unwrap().resolved;
    let Meaning::Entry { found, .. } = dynamic.meaning else {
        panic!("it is an entry");
    };
    assert_eq!(found.captured.unwrap().version, "1.21");
    assert!(matches!(
        explain("base").await.unwrap().resolved.meaning,
        Meaning::Template(_)
    ));
    let unknown = explain("nothing").await.unwrap_err();
    assert!(!matches!(
        unknown,
        CreateError::Image {
            error: ImageError::NotFound(_),
            ..
        }
    ));
    assert_eq!(unknown.to_string(), "template 'nothing' not found");
}

/// Builds on an image with an account, and waits for the end of the build.
async fn built_with_account(fixture: &Registered, image: &str, password: &str) -> bool {
    let new = BuildRequest {
        name: "made".parse().unwrap(),
        tags: Vec::new(),
        resources: Resources::default(),
    };
    let build = fixture.engine.announce_build(&fixture.me, new);
    let build = build.await.unwrap();
    let account = RegistryAuth {
        username: "me".to_owned(),
        password: password.to_owned(),
        aws_region: None,
    };
    let plan = Plan {
        stages: vec![Stage {
            base: Base::Image(image.parse().unwrap(), Some(account)),
            steps: Vec::new(),
        }],
        keep_env: Vec::new(),
        start: None,
        ready: None,
        force: false,
    };
    let begun = fixture.engine.begin_build(&fixture.me, build.id, plan);
    begun.await.unwrap();
    loop {
        let now = fixture.engine.build(&fixture.me, build.id).unwrap();
        if now.status.is_final() {
            return now.status == BuildStatus::Ready;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn what_an_account_has_brought_is_not_for_all_and_what_it_has_not_stays_so() {
    let fixture = Registered::new(|config| config.custom_images = CustomImages::Everyone).await;
    let image = "registry.test/x:1";
    fixture.put(json!([entry("x", image)])).await;
    let pulls = || fixture.images.pulled.lock().len();
    fixture.create("x").await.unwrap();
    assert_eq!(pulls(), 1);
    // A wrong account gets nothing and closes nothing.
    assert!(!built_with_account(&fixture, image, "wrong").await);
    fixture.create("x").await.unwrap();
    assert_eq!(pulls(), 2);
    // The right account gets its image: the registry is asked again, once.
    assert!(built_with_account(&fixture, image, "right").await);
    assert_eq!(pulls(), 3);
    fixture.create("x").await.unwrap();
    assert_eq!(pulls(), 4);
    fixture.create("x").await.unwrap();
    assert_eq!(pulls(), 4);
    // All of it is known after a start.
    assert!(built_with_account(&fixture, image, "right").await);
    let directory = fixture.directory.path();
    let (driver, clock) = (&fixture.driver, &fixture.clock);
    let again = open(directory, driver, clock, &fixture.images, |_| {}).await;
    let new = SandboxRequest::of("x".parse::<TemplateKey>().unwrap());
    again.create(&fixture.me, new, None).await.unwrap();
    assert_eq!(pulls(), 6);
}
