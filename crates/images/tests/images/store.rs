use std::fs;
use std::path::Path;
use std::sync::Arc;

use serde_json::json;
use shoal_core::image::{ImageError, Images};
use shoal_images::{ImageLimits, ImageStore, NoLayerUsers, StoreConfig};
use tar::EntryType;

use crate::making::{Packing, TestImage, archive, file, image, image_of, link, noise, small, tar};
use crate::{Place, Sandboxes, is_root, name, quiet};

async fn put(place: &Place, store: &ImageStore, tag: &str, made: &TestImage) {
    let path = place.directory.path().join("archive");
    fs::write(&path, archive(&made.layout(None))).unwrap();
    store.import(path, name(tag), quiet()).await.unwrap();
}

#[tokio::test]
async fn removing_an_image_leaves_the_layers_of_others() {
    let place = Place::new();
    let store = place.open();
    let shared = [file("shared", b"s")];
    put(
        &place,
        &store,
        "one",
        &image(&[&shared, &[file("one", b"1")]]),
    )
    .await;
    put(
        &place,
        &store,
        "two",
        &image(&[&shared, &[file("two", b"2")]]),
    )
    .await;
    assert_eq!(place.layers().len(), 3);
    store.remove(&name("one")).await.unwrap();
    assert_eq!(place.layers().len(), 2);
    assert!(store.find(&name("one")).await.unwrap().is_none());
    assert!(store.lower_dirs(&name("one")).is_none());
    let dirs = store.lower_dirs(&name("two")).unwrap();
    assert!(dirs[0].join("two").exists() && dirs[1].join("shared").exists());
    store.remove(&name("one")).await.unwrap();
    store.remove(&name("two")).await.unwrap();
    place.is_tidy().await;
    assert!(place.layers().is_empty());
}

#[tokio::test]
async fn an_image_in_use_by_a_sandbox_is_not_removed() {
    let place = Place::new();
    let sandboxes = Arc::new(Sandboxes::default());
    let store = place.open_with(sandboxes.clone());
    let shared = [file("shared", b"s")];
    let (base, derived) = (image(&[&shared]), image(&[&shared, &[file("more", b"m")]]));
    put(&place, &store, "base", &base).await;
    put(&place, &store, "derived", &derived).await;
    for layer in &derived.diff_ids {
        sandboxes.0.lock().insert(layer.to_string(), "sbx-1".into());
    }
    match store.remove(&name("derived")).await.unwrap_err() {
        ImageError::InUse(image, sandbox) => {
            assert_eq!((image.as_str(), &*sandbox), ("derived", "sbx-1"));
        }
        other => panic!("{other}"),
    }
    // Its only layer stays for the other image, so the sandbox loses nothing.
    store.remove(&name("base")).await.unwrap();
    assert_eq!(place.layers().len(), 2);
    sandboxes.0.lock().clear();
    store.remove(&name("derived")).await.unwrap();
    assert!(place.layers().is_empty());
}

#[tokio::test]
async fn layers_of_a_replaced_image_stay_until_their_sandbox_is_gone() {
    let place = Place::new();
    let sandboxes = Arc::new(Sandboxes::default());
    let store = place.open_with(sandboxes.clone());
    let old = small(b"old");
    put(&place, &store, "app", &old).await;
    sandboxes
        .0
        .lock()
        .insert(old.diff_ids[0].to_string(), "sbx-1".into());
    put(&place, &store, "app", &small(b"new")).await;
    assert_eq!(place.layers().len(), 2);
    store.sweep().await.unwrap();
    assert_eq!(place.layers().len(), 2);
    sandboxes.0.lock().clear();
    store.sweep().await.unwrap();
    assert_eq!(place.layers().len(), 1);
    put(&place, &store, "app", &small(b"newest")).await;
    assert_eq!(place.layers().len(), 1);
}

#[tokio::test]
async fn a_held_image_keeps_its_layers() {
    let place = Place::new();
    let store = place.open();
    put(&place, &store, "app", &small(b"x")).await;
    let held = store.hold(&name("app")).unwrap();
    store.remove(&name("app")).await.unwrap();
    assert!(held.lower_dirs()[0].join("content").exists());
    assert_eq!(held.image().name, name("app"));
    drop(held);
    store.sweep().await.unwrap();
    assert!(place.layers().is_empty());
}

#[tokio::test]
async fn leftovers_of_a_crash_are_cleared_and_whole_images_kept() {
    let place = Place::new();
    let store = place.open();
    let (kept, broken) = (small(b"kept"), small(b"broken"));
    put(&place, &store, "kept", &kept).await;
    put(&place, &store, "broken", &broken).await;
    drop(store);
    write(&place.root().join("tmp/17/fs/half"));
    write(
        &place
            .root()
            .join("layers")
            .join("f".repeat(64))
            .join("fs/half"),
    );
    write(&place.root().join("images/half.json"));
    let lost = place.root().join("layers").join(broken.diff_ids[0].hex());
    fs::remove_file(lost.join("layer.json")).unwrap();
    let store = place.open();
    let names: Vec<_> = store
        .list()
        .await
        .unwrap()
        .into_iter()
        .map(|i| i.name)
        .collect();
    assert_eq!(names, [name("kept")]);
    place.is_tidy().await;
    assert_eq!(place.layers().len(), 1);
    put(&place, &store, "broken", &broken).await;
    assert_eq!(store.list().await.unwrap().len(), 2);
}

fn write(path: &Path) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, "half").unwrap();
}

#[tokio::test]
async fn a_store_belongs_to_one_process() {
    let place = Place::new();
    let store = place.open();
    let second = ImageStore::open(place.config(), Arc::new(NoLayerUsers));
    assert!(matches!(second, Err(ImageError::Io { action: "lock", .. })));
    drop(store);
    place.open();
}

#[tokio::test]
async fn a_repeated_layer_is_mounted_once() {
    let place = Place::new();
    let store = place.open();
    let (twice, between) = (tar(&[file("a", b"a")]), tar(&[file(".wh.a", b"")]));
    let layers = [twice.clone(), between, twice].map(|layer| (layer, Packing::Gzip));
    let made = image_of(&layers, &json!({}));
    put(&place, &store, "app", &made).await;
    let dirs = store.lower_dirs(&name("app")).unwrap();
    assert_eq!(dirs.len(), 2);
    assert!(dirs[0].join("a").exists());
}

/// A mount for the duration of a test.
struct Mounted(std::path::PathBuf);

impl Mounted {
    fn new(kind: &str, target: &Path, options: &str) -> Self {
        fs::create_dir_all(target).unwrap();
        let flags = nix::mount::MsFlags::empty();
        nix::mount::mount(Some(kind), target, Some(kind), flags, Some(options)).unwrap();
        Self(target.to_owned())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        nix::mount::umount2(&self.0, nix::mount::MntFlags::MNT_DETACH).unwrap();
    }
}

#[tokio::test]
async fn overlayfs_merges_layers_as_the_image_specifies() {
    if !is_root("mounting an overlay") {
        return;
    }
    let place = Place::new();
    let store = place.open();
    let made = image(&[
        &[
            file("etc/gone", b"1"),
            file("etc/kept", b"1"),
            file("cache/old", b"1"),
            file("dir/inner", b"1"),
            file("name", b"1"),
        ],
        &[
            file("etc/.wh.gone", b""),
            file("cache/.wh..wh..opq", b""),
            file("cache/new", b"2"),
            file(".wh.dir", b""),
            link(EntryType::Symlink, "name", "etc/kept"),
        ],
    ]);
    put(&place, &store, "app", &made).await;
    let dirs = store.lower_dirs(&name("app")).unwrap();
    let lower: Vec<_> = dirs.iter().map(|dir| dir.to_str().unwrap()).collect();
    let target = place.directory.path().join("merged");
    let mounted = Mounted::new("overlay", &target, &format!("lowerdir={}", lower.join(":")));
    let exists = |path: &str| target.join(path).symlink_metadata().is_ok();
    for (path, expected) in [
        ("etc/gone", false),
        ("etc/kept", true),
        ("cache/old", false),
        ("cache/new", true),
        ("dir", false),
    ] {
        assert_eq!(exists(path), expected, "{path}");
    }
    assert_eq!(fs::read_to_string(target.join("name")).unwrap(), "1");
    assert!(target.join("name").is_symlink());
    drop(mounted);
}

#[tokio::test]
async fn a_disk_that_fills_up_keeps_its_reserve_and_reports_it() {
    if !is_root("mounting a small disk") {
        return;
    }
    let place = Place::new();
    let _disk = Mounted::new("tmpfs", &place.root(), "size=6m,nr_inodes=400");
    let base = place.config();
    let with = |reserve_bytes, reserve_inodes| {
        let limits = ImageLimits {
            layer: shoal_images::unpack::Limits {
                reserve_bytes,
                reserve_inodes,
                ..base.limits.layer
            },
            ..base.limits
        };
        let config = StoreConfig {
            limits,
            ..base.clone()
        };
        ImageStore::open(config, Arc::new(NoLayerUsers)).unwrap()
    };
    let big = image(&[&[file("big", &noise(7 << 20))]]);
    let fair = image(&[&[file("fair", &noise(3 << 20))]]);
    let path = place.directory.path().join("archive");
    // Without a reserve the disk reports that it is full; with one, unpacking does not start.
    for (made, bytes, inodes) in [
        (&big, 0, 0),
        (&big, 1 << 20, 0),
        (&fair, 5 << 20, 0),
        (&fair, 0, 399),
    ] {
        let store = with(bytes, inodes);
        fs::write(&path, archive(&made.layout(None))).unwrap();
        let error = store
            .import(path.clone(), name("app"), quiet())
            .await
            .unwrap_err();
        assert!(matches!(error, ImageError::NoSpace(_)), "{error}");
        place.is_tidy().await;
        assert!(place.layers().is_empty());
    }
    put(&place, &with(1 << 20, 10), "app", &fair).await;
}
