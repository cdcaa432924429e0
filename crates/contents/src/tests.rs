//! One contract for each place of contents, and the behaviour of buckets alone.

use object_store::memory::InMemory;

use super::*;

mod refusing;
mod s3;

fn digest(contents: &[u8]) -> Digest {
    Digest(Sha256::digest(contents).into())
}

/// Chooses the implementation of TLS, as the program does at its start.
fn choose_tls() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}

fn bucket() -> Bucket {
    "s3://files/some/where".parse().unwrap()
}

/// Contents in a bucket in memory, and the bucket.
fn in_memory(installation: &str, objects: &Arc<InMemory>) -> ObjectContents {
    let bucket = bucket();
    let below = bucket.below(objects.clone());
    ObjectContents::owned(below, &bucket, installation)
}

/// The contract of all places. `spoil` writes into the place directly.
async fn keeps_its_contract(contents: &ObjectContents, spoil: &dyn ObjectStore) {
    let text = Bytes::from_static(b"text");
    let (at, empty) = (digest(&text), digest(b""));
    assert_eq!(contents.get(at).await.unwrap(), None);
    contents.delete(at).await.unwrap();

    contents.put(at, text.clone()).await.unwrap();
    contents.put(at, text.clone()).await.unwrap();
    contents.put(empty, Bytes::new()).await.unwrap();
    assert_eq!(contents.get(at).await.unwrap(), Some(text.clone()));
    assert_eq!(contents.get(empty).await.unwrap(), Some(Bytes::new()));
    let several = vec![empty, digest(b"missing"), at, empty];
    let expected = [
        Some(Bytes::new()),
        None,
        Some(text.clone()),
        Some(Bytes::new()),
    ];
    assert_eq!(contents.get_all(several).await.unwrap(), expected);
    // Other objects are not listed, even if their name is a digest.
    for other in ["note", "ab/cd", "deeper/ab", at.to_string().as_str()] {
        spoil.put(&Key::from(other), "other".into()).await.unwrap();
    }
    let mut all: Vec<_> = contents.all().try_collect().await.unwrap();
    all.sort_unstable();
    let mut expected = [at, empty];
    expected.sort_unstable();
    assert_eq!(all, expected);

    contents.delete(empty).await.unwrap();
    contents.delete(empty).await.unwrap();
    assert_eq!(contents.get(empty).await.unwrap(), None);
    assert_eq!(contents.get(at).await.unwrap(), Some(text.clone()));

    spoil.put(&key(at), "tent".into()).await.unwrap();
    let read = contents.get(at).await.unwrap_err();
    assert!(matches!(read, StoreError::Corrupt { .. }), "{read}");
    assert_eq!(contents.get_all(vec![at]).await.unwrap(), [None]);
    contents.put(at, text.clone()).await.unwrap();
    assert_eq!(contents.get(at).await.unwrap(), Some(text));

    contents.delete(at).await.unwrap();
    let all: Vec<_> = contents.all().try_collect().await.unwrap();
    assert_eq!(all, []);
}

#[tokio::test]
async fn a_directory_keeps_the_contract() {
    let directory = tempfile::tempdir().unwrap();
    let contents = ObjectContents::in_directory(&directory.path().join("new")).unwrap();
    let spoil = contents.objects.clone();
    keeps_its_contract(&contents, &*spoil).await;
}

#[tokio::test]
async fn a_bucket_keeps_the_contract_below_its_prefix() {
    let objects = Arc::<InMemory>::default();
    let contents = in_memory("one", &objects);
    let spoil = contents.objects.clone();
    keeps_its_contract(&contents, &*spoil).await;
    let all: Vec<_> = objects.list(None).try_collect().await.unwrap();
    assert!(!all.is_empty());
    for object in all {
        let location = object.location.to_string();
        assert!(location.starts_with("some/where/"), "{location}");
    }
}

#[tokio::test]
async fn a_bucket_belongs_to_the_first_installation() {
    let objects = Arc::<InMemory>::default();
    let (first, second) = (in_memory("one", &objects), in_memory("two", &objects));
    let text = Bytes::from_static(b"text");
    let at = digest(&text);
    first.put(at, text.clone()).await.unwrap();

    // Nothing is done for the other one.
    let refused = second.claim().await.unwrap_err();
    let said = Chain(&refused).to_string();
    for part in ["s3://files/some/where", "one", "two", "sessions.contents"] {
        assert!(said.contains(part), "{said}");
    }
    let refused = [
        second.put(digest(b""), Bytes::new()).await.err(),
        second.get(at).await.err(),
        second.delete(at).await.err(),
        second.all().try_collect::<Vec<_>>().await.err(),
    ];
    for error in refused {
        assert!(matches!(error, Some(StoreError::Failed(_))), "{error:?}");
    }
    assert_eq!(first.get(at).await.unwrap(), Some(text));

    // The first one is known after a restart, and another place is free.
    in_memory("one", &objects).claim().await.unwrap();
    let elsewhere: Bucket = "s3://files/some".parse().unwrap();
    let below = elsewhere.below(objects.clone());
    let elsewhere = ObjectContents::owned(below, &elsewhere, "two");
    elsewhere.claim().await.unwrap();
    // It does not list directories below.
    let all: Vec<_> = elsewhere.all().try_collect().await.unwrap();
    assert_eq!(all, []);
}

#[tokio::test]
async fn of_many_that_come_at_once_one_owns_the_bucket() {
    let objects = Arc::<InMemory>::default();
    let claims = (0..16).map(|number| {
        let contents = in_memory(&number.to_string(), &objects);
        tokio::spawn(async move { contents.claim().await.is_ok() })
    });
    let owned = futures_util::future::join_all(claims.collect::<Vec<_>>()).await;
    let owned = owned.into_iter().filter(|owned| *owned.as_ref().unwrap());
    assert_eq!(owned.count(), 1);
}

#[test]
fn a_bucket_is_told_by_its_url() {
    for (text, shown) in [
        ("s3://files", "s3://files"),
        ("s3://files/", "s3://files"),
        ("s3://files.of/one/two", "s3://files.of/one/two"),
        ("s3://files/one/", "s3://files/one"),
    ] {
        assert_eq!(text.parse::<Bucket>().unwrap().to_string(), shown);
    }
    for text in [
        "",
        "files",
        "s3:/files",
        "s3://",
        "s3:///one",
        "gs://files",
        "https://files",
        "s3://files/one//two",
        "s3://files/../two",
        "s3://files/one?two",
        "s3://key:secret@files",
        "S3://files",
    ] {
        assert!(text.parse::<Bucket>().is_err(), "{text}");
    }
}
