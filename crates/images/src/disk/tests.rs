use super::*;
use shoal_core::clock::Timestamp;

fn layer() -> LayerRecord {
    LayerRecord {
        digest: Digest::of(b"gzip"),
        diff_id: Digest::of(b"tar"),
        size: 1,
        entries: 1,
    }
}

fn image() -> Image {
    Image {
        name: "python:3.11".parse().unwrap(),
        digest: Digest::of(b"config").to_string(),
        layers: vec![layer().diff_id.to_string()],
        size_bytes: 1,
        user: Some("1000".into()),
        workdir: None,
        env: vec!["A=b".into()],
        entrypoint: vec!["/init".into()],
        cmd: Vec::new(),
        created_at: Timestamp::from_unix_millis(5),
    }
}

#[test]
fn stored_images_are_read_after_a_restart() {
    let root = tempfile::tempdir().unwrap();
    let home = Home::open(root.path()).unwrap();
    let stage = home.stage().unwrap();
    fs::write(stage.directory("fs").unwrap().join("file"), "x").unwrap();
    home.keep_layer(stage, &layer()).unwrap();
    home.keep_image(&image()).unwrap();
    drop(home);
    let home = Home::open(root.path()).unwrap();
    assert_eq!(home.read_layers().unwrap(), [layer()]);
    assert_eq!(home.read_images().unwrap(), [image()]);
    let file = home.layer_root(&layer().diff_id).join("file");
    assert_eq!(fs::read_to_string(file).unwrap(), "x");
    drop(home.drop_layer(&layer().diff_id).unwrap());
    home.drop_image(&image().name).unwrap();
    home.drop_image(&image().name).unwrap();
    assert!(home.read_layers().unwrap().is_empty());
    assert!(home.read_images().unwrap().is_empty());
    assert_eq!(fs::read_dir(home.tmp()).unwrap().count(), 0);
}

#[test]
fn leftovers_of_a_crash_are_removed_and_a_second_owner_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let home = Home::open(root.path()).unwrap();
    assert!(matches!(
        Home::open(root.path()),
        Err(Fault::Io { action: "lock", .. })
    ));
    drop(home);
    fs::create_dir_all(root.path().join("tmp/7/fs/half")).unwrap();
    let half = root.path().join("layers").join(Digest::of(b"half").hex());
    fs::create_dir_all(half.join("fs")).unwrap();
    let cut = root.path().join("images/cut.json");
    fs::write(&cut, r#"{"magic":"shoal-image","version":1,"cont"#).unwrap();
    let home = Home::open(root.path()).unwrap();
    assert!(home.read_layers().unwrap().is_empty());
    assert!(home.read_images().unwrap().is_empty());
    assert!(!half.exists() && !cut.exists());
    assert_eq!(fs::read_dir(home.tmp()).unwrap().count(), 0);
}

#[test]
fn a_store_of_a_later_version_is_not_deleted() {
    let root = tempfile::tempdir().unwrap();
    drop(Home::open(root.path()).unwrap());
    let later = root.path().join("images/later.json");
    fs::write(&later, r#"{"magic":"shoal-image","version":2,"pages":[]}"#).unwrap();
    let home = Home::open(root.path()).unwrap();
    assert!(matches!(
        home.read_images(),
        Err(Fault::Io { action: "read", .. })
    ));
    assert!(later.exists());
}
