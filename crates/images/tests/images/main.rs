//! Tests of the image store with real registries, real archives and a scripted adversary.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod adversary;
mod bootstrap;
mod configuration;
mod import;
mod making;
mod pull;
mod registry;
mod store;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use shoal_core::image::{ImageName, NoProgress, Progress, ProgressSink};
use shoal_images::unpack::Limits;
use shoal_images::{
    ImageLimits, ImageStore, LayerUsers, NoLayerUsers, RegistryConfig, StoreConfig,
};

/// Whether the test runs as root; otherwise prints the skipped test.
fn is_root(what: &str) -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        eprintln!("skipped: {what} needs root");
    }
    root
}

fn name(text: &str) -> ImageName {
    text.parse().unwrap()
}

fn quiet() -> Arc<dyn ProgressSink> {
    Arc::new(NoProgress)
}

/// A store in a temporary directory, with small limits and short waits.
struct Place {
    directory: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        Self {
            directory: tempfile::tempdir().unwrap(),
        }
    }

    fn config(&self) -> StoreConfig {
        let layer = Limits {
            bytes: 8 << 20,
            file_bytes: 8 << 20,
            entries: 500,
            reserve_bytes: 0,
            reserve_inodes: 0,
        };
        StoreConfig {
            limits: ImageLimits {
                layer,
                image_bytes: 12 << 20,
            },
            registry: RegistryConfig {
                attempts: 3,
                first_delay: Duration::from_millis(1),
                idle_timeout: Duration::from_secs(10),
                ..RegistryConfig::default()
            },
            ..StoreConfig::at(self.root())
        }
    }

    fn open(&self) -> ImageStore {
        self.open_with(Arc::new(NoLayerUsers))
    }

    fn open_with(&self, users: Arc<dyn LayerUsers>) -> ImageStore {
        ImageStore::open(self.config(), users).unwrap()
    }

    fn root(&self) -> PathBuf {
        self.directory.path().join("store")
    }

    fn layers(&self) -> Vec<PathBuf> {
        listing(&self.root().join("layers"))
    }

    /// Waits until no incomplete file is left: a cancelled thread needs a moment.
    async fn is_tidy(&self) {
        let tidy = async {
            while !listing(&self.root().join("tmp")).is_empty() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let end = tokio::time::timeout(Duration::from_secs(60), tidy).await;
        assert!(end.is_ok(), "{:?}", listing(&self.root().join("tmp")));
    }
}

fn listing(directory: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    paths
}

/// Layers in use by sandboxes.
#[derive(Default)]
struct Sandboxes(Mutex<BTreeMap<String, String>>);

impl LayerUsers for Sandboxes {
    fn user_of(&self, layer: &str) -> Option<String> {
        self.0.lock().get(layer).cloned()
    }
}

/// Records the reported progress.
#[derive(Default)]
struct Heard(Mutex<Vec<Progress>>);

impl ProgressSink for Heard {
    fn report(&self, progress: Progress) {
        self.0.lock().push(progress);
    }
}
