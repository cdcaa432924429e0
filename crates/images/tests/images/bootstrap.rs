use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Command;
use std::sync::Arc;

use shoal_core::image::{ImageError, Images};
use shoal_images::bootstrap::{BootstrapConfig, Recipe};
use shoal_images::{ImageLimits, ImageStore, NoLayerUsers, StoreConfig};

use crate::{Heard, Place, is_root, name, quiet};

const TINY: &str = r#"
    suite = "SUITE"
    packages = ["less"]
    exclude = ["/usr/share/doc/*", "/usr/share/man/*/*", "/usr/share/locale/*"]
    remove = ["/usr/share/common-licenses"]
    workdir = "/home/user"
    [env]
    LANG = "C.UTF-8"
    [user]
    name = "user"
    uid = 1000
    home = "/home/user"
    shell = "/bin/bash"
    sudo = true
    [files."/etc/greeting"]
    content = "hello\n"
"#;

/// The release of this machine, if its mirrors have it.
fn suite() -> Option<String> {
    let text = fs::read_to_string("/etc/os-release").ok()?;
    let suite = text
        .lines()
        .find_map(|line| line.strip_prefix("VERSION_CODENAME="))?;
    Some(suite.to_owned())
}

/// Whether a real bootstrap can run; prints the missing tools.
fn can_run() -> bool {
    let tool = Command::new("mmdebstrap").arg("--version").output().is_ok();
    if !tool || suite().is_none() {
        eprintln!("skipped: mmdebstrap is not installed, or this is no Debian");
    }
    is_root("making a file system") && tool && suite().is_some()
}

impl Place {
    fn open_roomy(&self) -> ImageStore {
        let config = StoreConfig {
            limits: ImageLimits::default(),
            ..self.config()
        };
        ImageStore::open(config, Arc::new(NoLayerUsers)).unwrap()
    }
}

#[tokio::test]
async fn an_image_is_built_from_packages() {
    if !can_run() {
        return;
    }
    let place = Place::new();
    let store = place.open_roomy();
    let recipe = Recipe::from_toml(&TINY.replace("SUITE", &suite().unwrap())).unwrap();
    let heard = Arc::new(Heard::default());
    let made = store.bootstrap(name("tiny"), &recipe, heard.clone()).await;
    let made = match made {
        Err(ImageError::Tool { detail, .. }) if detail.contains("Could not resolve") => {
            eprintln!("skipped: no mirror is reachable");
            return;
        }
        made => made.unwrap(),
    };
    assert_eq!(
        (made.user.as_deref(), made.workdir.as_deref()),
        (Some("user"), Some("/home/user"))
    );
    assert_eq!(
        (&*made.env, made.layers.len()),
        (&["LANG=C.UTF-8".to_owned()][..], 1)
    );
    assert!(
        (50 << 20..500 << 20).contains(&made.size_bytes),
        "{}",
        made.size_bytes
    );
    let root = &store.lower_dirs(&name("tiny")).unwrap()[0];
    assert!(root.join("usr/bin/less").exists());
    assert_eq!(
        fs::read_to_string(root.join("etc/greeting")).unwrap(),
        "hello\n"
    );
    for gone in [
        "usr/share/common-licenses",
        "etc/resolv.conf",
        "usr/share/doc/less",
        "proc/1",
    ] {
        assert!(!root.join(gone).exists(), "{gone}");
    }
    assert_eq!(fs::metadata(root.join("home/user")).unwrap().uid(), 1000);
    let home = Command::new("chroot")
        .arg(root)
        .args(["/bin/su", "user", "-c", "cd; pwd; id -un"])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&home.stdout), "/home/user\nuser\n");
    let steps: Vec<String> = heard.0.lock().iter().map(|p| p.step.clone()).collect();
    for step in [
        "downloading packages",
        "installing packages",
        "provisioning",
    ] {
        assert!(steps.iter().any(|heard| heard == step), "{step}: {steps:?}");
    }
    place.is_tidy().await;
    store.remove(&name("tiny")).await.unwrap();
    assert!(place.layers().is_empty());
}

#[tokio::test]
async fn a_failed_bootstrap_reports_the_reason_and_leaves_no_files() {
    if !can_run() {
        return;
    }
    let place = Place::new();
    let apt = place.directory.path().join("apt");
    fs::create_dir_all(&apt).unwrap();
    fs::write(
        apt.join("sources.list"),
        "deb [trusted=yes] file:/nonexistent bookworm main\n",
    )
    .unwrap();
    let config = StoreConfig {
        bootstrap: BootstrapConfig {
            apt: apt.clone(),
            ubuntu_mirror: Some("file:/nonexistent".to_owned()),
            ..BootstrapConfig::default()
        },
        ..place.config()
    };
    let store = ImageStore::open(config, Arc::new(NoLayerUsers)).unwrap();
    let pull = |suite: &str| store.pull(name(&format!("mmdebstrap:{suite}")), None, quiet());
    for suite in ["bookworm", "noble"] {
        match pull(suite).await.unwrap_err() {
            ImageError::Tool { tool, detail } => {
                assert_eq!(tool, "mmdebstrap");
                assert!(detail.contains("E: "), "{detail}");
            }
            other => panic!("{other}"),
        }
    }
    for bad in ["--help", "x/y", "X"] {
        let error = pull(bad).await.unwrap_err();
        assert!(
            matches!(error, ImageError::Refused { .. }),
            "{bad}: {error}"
        );
    }
    place.is_tidy().await;
    assert!(place.layers().is_empty() && store.list().await.unwrap().is_empty());
}

#[tokio::test]
async fn a_bootstrap_without_waiting_callers_is_cancelled() {
    if !can_run() {
        return;
    }
    let place = Place::new();
    let store = place.open_roomy();
    let (told, mut begun) = tokio::sync::mpsc::unbounded_channel();
    struct Tell(tokio::sync::mpsc::UnboundedSender<String>);
    impl shoal_core::image::ProgressSink for Tell {
        fn report(&self, progress: shoal_core::image::Progress) {
            let _ = self.0.send(progress.step);
        }
    }
    let image = name(&format!("mmdebstrap:{}", suite().unwrap()));
    tokio::select! {
        made = store.pull(image, None, Arc::new(Tell(told))) => panic!("{made:?}"),
        step = begun.recv() => assert!(step.is_some()),
    }
    // The stage is removed when the program and its children have ended.
    place.is_tidy().await;
}
