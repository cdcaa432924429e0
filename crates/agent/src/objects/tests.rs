use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use object_store::memory::InMemory;
use shoal_checkpoint::Contents;
use tempfile::TempDir;

use super::*;

/// A store with a checkpoint in the namespace `ns`.
fn published() -> (TempDir, Store, CheckpointId) {
    let (directory, store) = empty();
    let staged = store.stage(&key()).unwrap();
    fs::write(staged.path().join("pages.img"), vec![7; PART + 5]).unwrap();
    fs::create_dir(staged.path().join("main")).unwrap();
    fs::write(staged.path().join("main/files.img"), b"files").unwrap();
    fs::write(staged.path().join("empty"), b"").unwrap();
    let [namespace, pod, uid] = ["ns", "pod", "uid"].map(str::to_owned);
    let manifest = Manifest::new(namespace, pod, uid, Contents::Memory);
    let id = staged.publish(manifest).unwrap();
    (directory, store, id)
}

fn empty() -> (TempDir, Store) {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::at(directory.path());
    store.prepare().unwrap();
    (directory, store)
}

fn key() -> Key {
    "1".repeat(32).parse().unwrap()
}

fn objects() -> (Arc<InMemory>, Objects) {
    let memory = Arc::new(InMemory::new());
    let objects = Objects::below(Arc::clone(&memory), &Location::from("prefix/cluster"));
    (memory, objects)
}

/// Fetches a checkpoint into a store.
async fn fetched(objects: &Objects, id: &CheckpointId, store: &Store) -> Result<(), ObjectsError> {
    let (bytes, manifest) = objects.manifest("ns", id).await?;
    let staged = store.stage(id.key())?;
    objects.get("ns", id, &manifest, staged.path()).await?;
    Ok(staged.publish_copy("ns", id, &bytes)?)
}

#[tokio::test]
async fn a_checkpoint_is_the_same_on_another_node() {
    let (_here, source, id) = published();
    let (memory, objects) = objects();
    objects.put(&source, "ns", &id).await.unwrap();
    let all: Vec<_> = memory.list(None).try_collect().await.unwrap();
    assert_eq!(all.len(), 4);
    let below = |found: &object_store::ObjectMeta| {
        let place = format!("prefix/cluster/ns/{}/", id.key());
        found.location.as_ref().starts_with(&place)
    };
    assert!(all.iter().all(below), "{all:?}");

    let (_there, target) = empty();
    fetched(&objects, &id, &target).await.unwrap();
    let manifest = target.manifest("ns", &id).unwrap();
    assert_eq!(manifest, source.manifest("ns", &id).unwrap());
    target.verify(&manifest, id.key(), &[]).unwrap();

    let listed = objects.list().await.unwrap();
    assert_eq!(listed, [("ns".to_owned(), key())].into());
    objects.delete("ns", id.key()).await.unwrap();
    objects.delete("ns", id.key()).await.unwrap();
    assert_eq!(objects.list().await.unwrap(), BTreeSet::new());
    assert!(objects.manifest("ns", &id).await.is_err());
}

#[tokio::test]
async fn what_others_wrote_into_the_bucket_is_refused() {
    let (_here, source, id) = published();
    let place = Location::from(format!("prefix/cluster/ns/{}", id.key()));
    for (file, bytes, why) in [
        ("main/files.img", "filez", "main/files.img"),
        ("main/files.img", "files and more", "longer"),
        ("main/files.img", "", "main/files.img"),
        ("manifest.json", "{}", "another checkpoint"),
    ] {
        let (memory, objects) = objects();
        objects.put(&source, "ns", &id).await.unwrap();
        let location = within(&place, file);
        memory.put(&location, bytes.into()).await.unwrap();
        let (_there, target) = empty();
        let refused = fetched(&objects, &id, &target).await.unwrap_err();
        assert!(refused.to_string().contains(why), "{file}: {refused}");
        assert!(target.list().unwrap().is_empty());
    }
}

#[tokio::test]
async fn a_checkpoint_is_there_when_all_of_it_is() {
    let (_here, source, id) = published();
    let (memory, objects) = objects();
    objects.put(&source, "ns", &id).await.unwrap();
    let place = Location::from(format!("prefix/cluster/ns/{}", id.key()));
    memory.delete(&place.clone().join(MANIFEST)).await.unwrap();
    assert!(objects.manifest("ns", &id).await.is_err());
    // The search for leftovers still finds it.
    assert_eq!(objects.list().await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_directory_serves_as_well() {
    let (_here, source, id) = published();
    let shared = tempfile::tempdir().unwrap();
    let url = Url::from_directory_path(shared.path()).unwrap();
    let objects = Objects::open(&url, "cluster", []).unwrap();
    objects.put(&source, "ns", &id).await.unwrap();
    let (_there, target) = empty();
    fetched(&objects, &id, &target).await.unwrap();
    objects.delete("ns", id.key()).await.unwrap();
    objects.delete("ns", id.key()).await.unwrap();
    assert!(objects.list().await.unwrap().is_empty());
    let missing = Url::from_directory_path(shared.path().join("missing")).unwrap();
    assert!(
        Objects::open(&missing, "cluster", []).is_err(),
        "its volume is not mounted"
    );
    assert!(Objects::open(&"ftp://x/y".parse().unwrap(), "cluster", []).is_err());
}

/// The server of S3 of the conformance suites, on loopback, with a bucket `checkpoints`.
struct Bucket {
    program: Child,
    endpoint: String,
}

impl Bucket {
    fn serve() -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let program = concat!(env!("CARGO_MANIFEST_DIR"), "/../../conformance/s3.py");
        let mut serve = Command::new("python3");
        let serve = serve.args([program, "checkpoints"]).stdout(Stdio::piped());
        let mut program = serve.spawn().expect("the test server of S3 needs python3");
        let mut endpoint = String::new();
        let said = program.stdout.take().unwrap();
        BufReader::new(said).read_line(&mut endpoint).unwrap();
        Self { program, endpoint }
    }

    fn open(&self, url: &str) -> Objects {
        let environment = [
            ("AWS_ENDPOINT_URL", self.endpoint.trim()),
            ("AWS_ALLOW_HTTP", "true"),
            ("AWS_ACCESS_KEY_ID", "key"),
            ("AWS_SECRET_ACCESS_KEY", "secret"),
            // No setting of a store: it would name another bucket.
            ("BUCKET", "wrong"),
        ];
        let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned()));
        Objects::open(&url.parse().unwrap(), "cluster", environment).unwrap()
    }
}

impl Drop for Bucket {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

#[tokio::test]
async fn a_bucket_of_s3_serves_as_well() {
    let (_here, source, id) = published();
    let bucket = Bucket::serve();
    let objects = bucket.open("s3://checkpoints/some/where");
    objects.put(&source, "ns", &id).await.unwrap();
    assert_eq!(objects.list().await.unwrap().len(), 1);
    let (_there, target) = empty();
    fetched(&objects, &id, &target).await.unwrap();
    objects.delete("ns", id.key()).await.unwrap();
    objects.delete("ns", id.key()).await.unwrap();
    assert!(objects.list().await.unwrap().is_empty());
    let missing = bucket.open("s3://no-such-bucket");
    assert!(missing.put(&source, "ns", &id).await.is_err());
}
