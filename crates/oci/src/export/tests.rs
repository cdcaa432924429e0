mod hostile;
mod whole;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use shoal_core::driver::{DriverError, ExportKey};
use shoal_core::id::ExecutionId;
use shoal_core::resources::Resources;
use shoal_core::snapshot::{Contents, Saved};
use shoal_node::disk::{Disk, DiskConfig};
use shoal_node::saved::{Digests, Parts, SavedDirectory, SavedManifest};

use super::receive::Received;
use super::*;

/// The daemon of the snapshots in these tests.
const DAEMON: &[u8] = b"a daemon";

fn key(byte: u8) -> ExportKey {
    ExportKey::from_secret(&[byte; 32]).unwrap()
}

/// A snapshot on a disk, and an empty directory for imports.
struct Fixture {
    data: tempfile::TempDir,
    manifest: SavedManifest,
    place: SavedDirectory,
}

impl Fixture {
    /// With these memory files; none for a snapshot without memory.
    fn new(memory: &[(&str, &[u8])]) -> Self {
        let data = tempfile::tempdir().unwrap();
        let disk = Disk::open(data.path(), &DiskConfig::Plain).unwrap();
        let place = SavedDirectory::of_paused(&disk, &"ia".parse().unwrap());
        let new = place.prepare(&disk).unwrap();
        fs::create_dir_all(new.memory()).unwrap();
        for (name, content) in memory {
            fs::write(new.memory().join(name), content).unwrap();
        }
        fs::create_dir_all(new.files().join("upper")).unwrap();
        let parts = Parts {
            source: "ia".parse().unwrap(),
            execution: ExecutionId::from_entropy([1; 16]),
            saved: Saved {
                contents: Contents::with_memory(!memory.is_empty()),
                runtime: "runsc".parse().unwrap(),
                freeze: Duration::from_millis(1),
                memory_bytes: 0,
                file_bytes: 1 << 40,
                copied: "not".to_owned(),
            },
            runtime_build: "b".to_owned(),
            image: "base:1".parse().unwrap(),
            layers: Vec::new(),
            envd: "e".parse().unwrap(),
            resources: Resources::default(),
        };
        let manifest = new.publish(parts, &disk, &place, Digests::Now).unwrap();
        fs::create_dir(data.path().join("into")).unwrap();
        Self {
            data,
            manifest,
            place,
        }
    }

    fn upper(&self) -> PathBuf {
        self.place.files().join("upper")
    }

    /// The directory for imports.
    fn target(&self) -> PathBuf {
        self.data.path().join("into")
    }

    /// The sealed archive of this snapshot; `files` writes the members instead of its files.
    fn archive(&self, key: &ExportKey, files: impl FnOnce(&mut Archive<Vec<u8>>)) -> Vec<u8> {
        let mut archive = Archive::new(Vec::new(), Stop::never());
        let head = Head::new("a note".to_owned(), key);
        write_head(&mut archive, &head, &self.manifest).unwrap();
        archive.small(ENVD, DAEMON).unwrap();
        for file in &self.manifest.memory {
            let content = fs::read(self.place.memory().join(&file.name)).unwrap();
            archive
                .small(&format!("memory/{}", file.name), &content)
                .unwrap();
        }
        files(&mut archive);
        archive.finish(key).unwrap()
    }

    /// The export of this snapshot.
    fn export(&self, key: &ExportKey) -> Vec<u8> {
        self.archive(key, |archive| write_upper(archive, &self.upper()).unwrap())
    }

    /// Imports an export, as the installation with `key`.
    fn receive(
        &self,
        sealed: &[u8],
        key: &ExportKey,
        trust: bool,
        limits: &Limits,
    ) -> Result<Received, DriverError> {
        let terms = Terms {
            key,
            trust,
            limits: *limits,
            accept: &|_| Ok(1 << 16),
            make_files: &|path| fs::create_dir(path),
            stop: &Stop::never(),
        };
        receive(sealed, sealed.len() as u64, &self.target(), &terms)
    }

    /// The reason why an export is refused; the machine must be unchanged.
    fn refused(&self, sealed: &[u8]) -> String {
        let beside = self.data.path().join("beside");
        fs::write(&beside, "as it was").unwrap();
        let refused = self
            .receive(sealed, &key(b'a'), false, &LIMITS)
            .unwrap_err();
        assert_eq!(fs::read_to_string(&beside).unwrap(), "as it was");
        assert!(
            matches!(refused, DriverError::Unusable(_)),
            "what is wrong is the export: {refused:?}"
        );
        refused.to_string()
    }
}

const LIMITS: Limits = Limits {
    bytes: 16 << 20,
    file_bytes: 1 << 40,
    entries: 1000,
    reserve_bytes: 0,
    reserve_inodes: 0,
};

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}
