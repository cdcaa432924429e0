use std::io::Write;
use std::time::{Duration, Instant};

use super::*;

fn is_root() -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        eprintln!("skipped: the disk of sandboxes needs root");
    }
    root
}

#[test]
fn a_sandbox_meets_its_own_bound_and_what_it_wrote_goes_with_it() {
    if !is_root() {
        return;
    }
    let data = tempfile::tempdir().unwrap();
    let config = DiskConfig::Btrfs {
        size: Some(Mib(512)),
    };
    let disk = Disk::open(data.path(), &config).unwrap();
    let mode = fs::metadata(data.path().join("disk")).unwrap();
    assert_eq!(mode.permissions().mode() & 0o777, 0o700);
    let path = disk.create("ia", Mib(32)).unwrap();
    assert!(disk.create("ia", Mib(32)).is_err(), "a name is given once");
    disk.create("ib", Mib(32)).unwrap();

    let mut file = File::create(path.join("big")).unwrap();
    let block = vec![1u8; 1 << 20];
    let wrote = (0..64).try_for_each(|_| file.write_all(&block).and_then(|()| file.sync_data()));
    assert!(image::is_full(&wrote.unwrap_err()));
    assert!(disk.usage("ia").unwrap() > 16 << 20);
    fs::write(disk.path("ib").join("small"), b"the other has room").unwrap();
    drop(file);

    let again = Disk::open(data.path(), &config).unwrap();
    let mut names = again.names().unwrap();
    names.sort_unstable();
    assert_eq!(names, ["ia", "ib"]);
    disk.close(true).unwrap();
    assert!(
        image::is_mounted(&data.path().join("disk")).unwrap(),
        "what is in use stays"
    );
    for name in ["ia", "ib", "ib"] {
        again.remove(name).unwrap();
    }
    again.close(false).unwrap();
    assert!(!image::is_mounted(&data.path().join("disk")).unwrap());
}

#[test]
fn too_little_space_is_said_before_anything_is_written() {
    if !is_root() {
        return;
    }
    let data = tempfile::tempdir().unwrap();
    let config = DiskConfig::Btrfs {
        size: Some(Mib(u32::MAX)),
    };
    let error = Disk::open(data.path(), &config).unwrap_err();
    assert!(image::is_full(&error));
    assert!(
        error.to_string().contains("set a smaller disk.size"),
        "{error}"
    );
    assert_eq!(fs::read_dir(data.path()).unwrap().count(), 1);
}

#[test]
fn what_is_written_counts_before_it_reaches_the_disk() {
    if !is_root() {
        return;
    }
    let data = tempfile::tempdir().unwrap();
    let config = DiskConfig::Btrfs {
        size: Some(Mib(256)),
    };
    let disk = Disk::open(data.path(), &config).unwrap();
    let path = disk.create("ia", Mib(128)).unwrap();
    let empty = disk.usage("ia").unwrap();
    assert!((1..1 << 20).contains(&empty), "{empty}");
    let bytes = 20_usize << 20;
    fs::write(path.join("file"), vec![7u8; bytes]).unwrap();
    let near = |used: u64| (bytes as u64..(bytes as u64) + (2 << 20)).contains(&used);
    let written = disk.usage("ia").unwrap();
    assert!(near(written), "{written}");
    disk.sync().unwrap();
    let synced = disk.usage("ia").unwrap();
    assert!(near(synced), "{synced}: it is counted once");
    disk.remove("ia").unwrap();
    disk.close(false).unwrap();
}

#[test]
fn plain_directories_are_counted() {
    let data = tempfile::tempdir().unwrap();
    let disk = Disk::open(data.path(), &DiskConfig::Plain).unwrap();
    let path = disk.create("ia", Mib(32)).unwrap();
    fs::create_dir(path.join("d")).unwrap();
    fs::write(path.join("d/f"), vec![1u8; 100_000]).unwrap();
    assert!(disk.usage("ia").unwrap() >= 100_000);
    assert!(!disk.is_bounded());
    disk.remove("ia").unwrap();
    disk.remove("ia").unwrap();
}

#[test]
fn a_device_that_a_killed_server_has_left_is_let_go() {
    if !is_root() {
        return;
    }
    let data = tempfile::tempdir().unwrap();
    let config = DiskConfig::Btrfs {
        size: Some(Mib(256)),
    };
    Disk::open(data.path(), &config)
        .unwrap()
        .close(false)
        .unwrap();
    let file = data.path().join("disk.btrfs");
    let devices = |arguments: &[&str]| {
        let said = Command::new("losetup")
            .args(arguments)
            .arg(&file)
            .output()
            .unwrap();
        String::from_utf8(said.stdout).unwrap()
    };
    devices(&["--find"]);
    assert!(!devices(&["--associated"]).is_empty());
    Disk::open(data.path(), &config)
        .unwrap()
        .close(false)
        .unwrap();
    // The kernel lets a device go with its last user, which may be a program of the machine that
    // looks at every new one.
    let end = Instant::now() + Duration::from_secs(20);
    while !devices(&["--associated"]).is_empty() {
        assert!(Instant::now() < end, "it is not let go");
        std::thread::sleep(Duration::from_millis(10));
    }
}
