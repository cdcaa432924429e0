use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;
use shoal_core::image::{Image, ImageError, Images};
use shoal_images::{Digest, ImageStore};
use tar::{EntryType, Header};

use crate::making::{
    INDEX, TestImage, archive, file, gzip, here, image, image_of, noise, saved, small, write_all,
    zstd,
};
use crate::{Place, name, quiet};

async fn import(store: &ImageStore, path: &Path) -> Result<Image, ImageError> {
    store
        .import(path.to_owned(), name("imported:1"), quiet())
        .await
}

fn two_layers() -> TestImage {
    image(&[&[file("a", b"a")], &[file("b", &noise(200_000))]])
}

/// Writes bytes into a file next to the store.
fn written(place: &Place, bytes: &[u8]) -> PathBuf {
    let path = place.directory.path().join("archive");
    fs::write(&path, bytes).unwrap();
    path
}

#[tokio::test]
async fn an_image_is_the_same_in_every_format() {
    let made = two_layers();
    let layout = made.layout(Some("1"));
    let oci = archive(&layout);
    // The current format of docker save: both in one archive.
    let both = archive(&[&layout[..], &saved(&[("imported:1", &made)])[..]].concat());
    let forms = [
        oci.clone(),
        gzip(&oci),
        zstd(&oci),
        both,
        archive(&saved(&[("imported:1", &made)])),
    ];
    for bytes in forms {
        let place = Place::new();
        let store = place.open();
        let imported = import(&store, &written(&place, &bytes)).await.unwrap();
        assert_eq!(imported.digest, made.config.to_string());
        let layers: Vec<String> = made.diff_ids.iter().map(Digest::to_string).collect();
        assert_eq!(imported.layers, layers);
        let top = &store.lower_dirs(&name("imported:1")).unwrap()[0];
        assert_eq!(fs::read(top.join("b")).unwrap(), noise(200_000));
        place.is_tidy().await;
    }
    let place = Place::new();
    let directory = place.directory.path().join("layout");
    write_all(&directory, &layout);
    import(&place.open(), &directory).await.unwrap();
}

#[tokio::test]
async fn archives_of_other_tools_are_read() {
    let place = Place::new();
    let made = two_layers();
    let directory = place.directory.path().join("layout");
    write_all(&directory, &made.layout(Some("1")));
    let from = format!("oci:{}:1", directory.display());
    for form in ["oci-archive", "docker-archive", "dir"] {
        let path = place.directory.path().join(form);
        let to = format!(
            "{form}:{}{}",
            path.display(),
            if form == "dir" { "" } else { ":x:1" }
        );
        let copied = Command::new("skopeo")
            .args(["copy", "--quiet", &from, &to])
            .status();
        let Ok(status) = copied else {
            eprintln!("skipped: skopeo is not installed");
            return;
        };
        assert!(status.success());
        let store = Place::new();
        let outcome = import(&store.open(), &path).await;
        // skopeo's own directory format is not a layout.
        assert_eq!(outcome.is_ok(), form != "dir", "{form}");
    }
}

#[tokio::test]
async fn layers_that_images_share_are_linked_in_old_archives() {
    let made = small(b"shared");
    let mut files = saved(&[("x:1", &made)]);
    let other = "0".repeat(64);
    let manifest = files.pop().unwrap();
    let real = format!("{}/layer.tar", made.diff_ids[0].hex());
    let text = String::from_utf8(manifest.1).unwrap();
    files.push((
        manifest.0,
        text.replace(&real, &format!("{other}/layer.tar"))
            .into_bytes(),
    ));
    let mut builder = tar::Builder::new(archive(&files));
    // Continue at the end of the first archive, before its two empty blocks.
    builder.get_mut().truncate(archive(&files).len() - 1024);
    let mut link = Header::new_gnu();
    link.set_entry_type(EntryType::Symlink);
    link.set_size(0);
    builder
        .append_link(
            &mut link,
            format!("{other}/layer.tar"),
            format!("../{real}"),
        )
        .unwrap();
    let place = Place::new();
    let path = written(&place, &builder.into_inner().unwrap());
    import(&place.open(), &path).await.unwrap();
}

#[tokio::test]
async fn the_named_one_of_several_images_is_imported() {
    let (one, two) = (small(b"one"), small(b"two"));
    let place = Place::new();
    let store = place.open();
    let both = written(
        &place,
        &archive(&saved(&[("other:2", &one), ("imported:1", &two)])),
    );
    assert_eq!(
        import(&store, &both).await.unwrap().digest,
        two.config.to_string()
    );
    let neither = written(
        &place,
        &archive(&saved(&[("other:2", &one), ("third:3", &two)])),
    );
    let error = import(&store, &neither).await.unwrap_err();
    assert!(matches!(error, ImageError::Refused { .. }), "{error}");

    let mut all = one.clone();
    all.blobs.extend(two.blobs.clone());
    all.blobs.insert(two.digest(), two.manifest.clone());
    let entry = |made: &TestImage, key: &str, value: serde_json::Value| {
        let mut entry = made.entry();
        entry[key] = value;
        entry
    };
    let called = |tag: &str| json!({"org.opencontainers.image.ref.name": tag});
    let on = |arch: &str| json!({"os": "linux", "architecture": arch});
    for entries in [
        [
            entry(&one, "annotations", called("2")),
            entry(&two, "annotations", called("1")),
        ],
        [
            entry(&one, "platform", on("s390x")),
            entry(&two, "platform", on(here())),
        ],
    ] {
        let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": entries});
        let path = written(&place, &archive(&all.layout_of(&index)));
        assert_eq!(
            import(&store, &path).await.unwrap().digest,
            two.config.to_string()
        );
        // And a nested index, as builders for several platforms write it.
        let bytes = index.to_string().into_bytes();
        let inner = json!({"mediaType": INDEX, "digest": Digest::of(&bytes), "size": bytes.len()});
        let mut nested = all.clone();
        nested.blobs.insert(Digest::of(&bytes), bytes);
        let outer = json!({"schemaVersion": 2, "manifests": [inner]});
        let path = written(&place, &archive(&nested.layout_of(&outer)));
        let outcome = import(&store, &path).await;
        let by_platform = entries[0].get("platform").is_some();
        assert_eq!(outcome.is_ok(), by_platform);
    }
}

#[tokio::test]
async fn content_that_does_not_match_its_digest_is_corrupt() {
    let made = two_layers();
    let tampered = |path: &str, change: &dyn Fn(&mut Vec<u8>)| {
        let mut files = made.layout(None);
        let found = files
            .iter_mut()
            .find(|(name, _)| name.contains(path))
            .unwrap();
        change(&mut found.1);
        files
    };
    let space = |bytes: &mut Vec<u8>| bytes.push(b' ');
    let shorten = |bytes: &mut Vec<u8>| bytes.truncate(bytes.len() / 2);
    let mut missing = made.layout(None);
    missing.retain(|(path, _)| !path.contains(&made.layers[1].hex()));
    for files in [
        tampered(&made.config.hex(), &space),
        tampered(&made.digest().hex(), &space),
        tampered(&made.layers[0].hex(), &space),
        tampered(&made.layers[1].hex(), &shorten),
        missing,
    ] {
        let place = Place::new();
        let store = place.open();
        let directory = place.directory.path().join("layout");
        write_all(&directory, &files);
        for path in [directory, written(&place, &archive(&files))] {
            let error = import(&store, &path).await.unwrap_err();
            assert!(matches!(error, ImageError::Corrupt { .. }), "{error}");
            place.is_tidy().await;
            assert!(store.list().await.unwrap().is_empty());
        }
    }
    let mut old = saved(&[("imported:1", &made)]);
    let config = old
        .iter_mut()
        .find(|(path, _)| path.contains(&made.config.hex()))
        .unwrap();
    config.1.push(b' ');
    let place = Place::new();
    let error = import(&place.open(), &written(&place, &archive(&old)))
        .await
        .unwrap_err();
    assert!(matches!(error, ImageError::Corrupt { .. }), "{error}");
}

#[tokio::test]
async fn an_archive_that_was_cut_is_corrupt() {
    let bytes = archive(&two_layers().layout(None));
    let zipped = gzip(&bytes);
    let place = Place::new();
    let store = place.open();
    for cut in [
        &bytes[..bytes.len() / 2],
        &bytes[..100],
        &zipped[..zipped.len() / 2],
    ] {
        let error = import(&store, &written(&place, cut)).await.unwrap_err();
        let corrupt = matches!(
            error,
            ImageError::Corrupt { .. } | ImageError::Refused { .. }
        );
        place.is_tidy().await;
        assert!(corrupt, "{error}");
    }
}

#[tokio::test]
async fn a_layout_does_not_lead_to_files_outside() {
    let made = small(b"x");
    let place = Place::new();
    let store = place.open();
    let directory = place.directory.path().join("layout");
    write_all(&directory, &made.layout(None));
    let outside = place.directory.path().join("outside");
    fs::write(&outside, &made.blobs[&made.layers[0]]).unwrap();
    let layer = directory.join("blobs/sha256").join(made.layers[0].hex());
    for target in [
        outside.clone(),
        PathBuf::from("../../../outside"),
        "/etc/shadow".into(),
    ] {
        fs::remove_file(&layer).unwrap();
        symlink(target, &layer).unwrap();
        let error = import(&store, &directory).await.unwrap_err();
        assert!(matches!(error, ImageError::Refused { .. }), "{error}");
    }
    fs::remove_file(&layer).unwrap();
    nix::unistd::mkfifo(&layer, nix::sys::stat::Mode::S_IRUSR).unwrap();
    let error = import(&store, &directory).await.unwrap_err();
    assert!(matches!(error, ImageError::Refused { .. }), "{error}");
    let error = import(&store, &layer).await.unwrap_err();
    assert!(matches!(error, ImageError::Refused { .. }), "{error}");
    let climbing = json!([{"Config": "../../../etc/passwd", "Layers": []}]).to_string();
    let files = [("manifest.json".to_owned(), climbing.into_bytes())];
    let error = import(&store, &written(&place, &archive(&files)))
        .await
        .unwrap_err();
    assert!(matches!(error, ImageError::Refused { .. }), "{error}");
}

#[tokio::test]
async fn what_is_no_image_is_refused() {
    let place = Place::new();
    let store = place.open();
    let nothing = archive(&[("readme".to_owned(), b"hello".to_vec())]);
    let error = import(&store, &written(&place, &nothing))
        .await
        .unwrap_err();
    assert!(matches!(error, ImageError::Refused { .. }), "{error}");
    let bomb = gzip(&vec![0; 30 << 20]);
    let error = import(&store, &written(&place, &bomb)).await.unwrap_err();
    assert!(matches!(error, ImageError::Refused { .. }), "{error}");
    let error = import(&store, Path::new("/nonexistent")).await.unwrap_err();
    assert!(matches!(error, ImageError::Io { .. }), "{error}");
    let foreign = image_of(&[], &json!({"architecture": "s390x"}));
    let path = written(&place, &archive(&foreign.layout(None)));
    let error = import(&store, &path).await.unwrap_err();
    assert!(
        matches!(error, ImageError::WrongArchitecture(..)),
        "{error}"
    );
}
