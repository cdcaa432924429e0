//! Copies from another stage that has no shell: a fake has none.

use shoal_core::build::{Base, Plan, Source, Stage};
use shoal_engine::CustomImages;
use shoal_engine::test_util::FakeRegistry;

use super::*;

/// Where the archive of a copy comes to lie.
const ARCHIVE: &str = "/tmp/.shoal-copy.tar";

/// A stage over a template that copies this of the first stage.
fn copier(path: &str) -> Stage {
    let copy = Step {
        action: Action::Copy {
            source: Source::Stage(0),
            path: path.to_owned(),
            target: "/to".to_owned(),
            owner: None,
            mode: None,
        },
        line: None,
        force: false,
    };
    Stage {
        base: Base::Template("base".parse().unwrap()),
        steps: vec![copy],
    }
}

/// Two stages, of which the second copies this of the first.
fn copying(path: &str) -> Plan {
    let first = Stage {
        base: Base::Template("base".parse().unwrap()),
        steps: Vec::new(),
    };
    Plan {
        stages: vec![first, copier(path)],
        ..plan(&[])
    }
}

impl Fixture {
    fn has(&self, path: &str, bytes: usize) {
        let mut files = self.guest.files.lock();
        files.insert(path.to_owned(), vec![b'x'; bytes].into());
    }

    async fn copy(&self, name: &str, path: &str) -> Arc<BuildRecord> {
        let build = self.announce(name).await;
        self.begin(&build, copying(path)).await.unwrap();
        self.built(&build).await
    }

    /// The paths of the last copy, in order.
    fn copied(&self) -> Vec<String> {
        let archive = self.guest.files.lock().remove(ARCHIVE).unwrap();
        let mut archive = tar::Archive::new(&archive[..]);
        let entries = archive.entries().unwrap();
        let paths = entries.map(|entry| entry.unwrap().path().unwrap().display().to_string());
        let mut paths: Vec<String> = paths.collect();
        paths.sort();
        paths
    }
}

#[tokio::test]
async fn what_is_copied_is_bounded_in_all_and_not_file_by_file() {
    let fixture = fixture_with(|config| config.upload_max = 1000).await;
    fixture.has("/app/one", 400);
    fixture.has("/app/below/two", 400);
    let build = fixture.copy("small", "/app").await;
    assert_eq!(build.status, BuildStatus::Ready, "{:?}", build.failure);
    let copied = ["app", "app/below", "app/below/two", "app/one"];
    assert_eq!(fixture.copied(), copied);
    fixture.has("/large/one", 600);
    fixture.has("/large/two", 600);
    let build = fixture.copy("large", "/large").await;
    let failure = build.failure.clone().unwrap().message;
    assert!(failure.contains("at most 1000 bytes"), "{failure}");
    assert!(!fixture.guest.files.lock().contains_key(ARCHIVE));
}

#[tokio::test]
async fn what_is_of_the_sandbox_is_not_copied() {
    let fixture = fixture().await;
    for file in [
        "/etc/hosts",
        "/etc/machine-id",
        "/etc/passwd",
        "/.shoal/envd",
    ] {
        fixture.has(file, 1);
    }
    for (name, path, copied) in [
        ("all", "/etc", ["etc", "etc/passwd"].as_slice()),
        ("one", "//etc/./hosts/", &["etc/hosts"]),
    ] {
        let build = fixture.copy(name, path).await;
        assert_eq!(build.status, BuildStatus::Ready, "{:?}", build.failure);
        assert_eq!(fixture.copied(), copied);
    }
    for path in ["/.shoal", "/.shoal/envd"] {
        let build = fixture.copy("none", path).await;
        let failure = build.failure.clone().unwrap().message;
        assert!(failure.contains("no such file"), "{failure}");
    }
}

#[tokio::test]
async fn what_is_copied_from_an_image_as_it_is_is_not_taken_for_what_was_made_fit_for_use() {
    let fixture = fixture().await;
    let (directory, guest) = (fixture.directory.path(), &fixture.guest);
    let images = Arc::new(FakeRegistry::default());
    let named = |config: &mut EngineConfig| config.custom_images = CustomImages::Everyone;
    let (driver, clock) = (&fixture.driver, &fixture.clock);
    let engine = engine_over(directory, driver, clock, guest, images, named).await;
    let fixture = Fixture { engine, ..fixture };
    fixture.has("/etc/passwd", 1);
    let image = Stage {
        base: Base::Image("registry.test/tool:1".parse().unwrap(), None),
        steps: Vec::new(),
    };
    let on = Stage {
        base: Base::Stage(0),
        steps: vec![run("a")],
    };
    for between in [Vec::new(), vec![on]] {
        let stages = [vec![image.clone()], between, vec![copier("/etc")]].concat();
        let plan = Plan {
            stages,
            ..plan(&[])
        };
        let build = fixture.announce("made").await;
        fixture.begin(&build, plan).await.unwrap();
        let build = fixture.built(&build).await;
        assert_eq!(build.status, BuildStatus::Ready, "{:?}", build.failure);
        // It is not there when the copy is taken over.
        assert_eq!(fixture.copied(), ["etc", "etc/passwd"]);
    }
}

#[tokio::test]
async fn what_is_not_copied_as_it_is_is_told_of() {
    let fixture = fixture().await;
    fixture.has("/app/file", 1);
    fixture.has("/app/link", 1);
    {
        let mut links = fixture.guest.links.lock();
        links.insert("/app/link".to_owned());
        links.extend((0..20).map(|number| format!("/app/nowhere{number}")));
    }
    let build = fixture.copy("made", "/app").await;
    assert_eq!(build.status, BuildStatus::Ready, "{:?}", build.failure);
    assert_eq!(fixture.copied(), ["app", "app/file", "app/link"]);
    let log = fixture.engine.build_log(build.id, LogLevel::Warn).await;
    let log = log.unwrap();
    let said = |words: &str| log.iter().filter(|e| e.message.contains(words)).count();
    assert_eq!((said("leads nowhere"), said("and 11 more")), (10, 1));
    fixture
        .guest
        .links
        .lock()
        .retain(|link| link == "/app/link");
    let build = fixture.copy("again", "/./app").await;
    let said = fixture.said(&build).await;
    let link = "/app/link is a link: what it leads to is copied".to_owned();
    assert!(said.contains(&link), "{said:?}");
}
