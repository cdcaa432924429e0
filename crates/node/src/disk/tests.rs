use std::io::{Read, Write};
use std::process::Command;

use shoal_core::id::SnapshotId;

use super::*;
use crate::saved::SavedDirectory;

fn is_root() -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        eprintln!("skipped: the disk of sandboxes needs root");
    }
    root
}

/// A disk of this many MiB whose kernel has quotas of teams.
fn with_quotas_of_teams(mib: u32) -> Option<(tempfile::TempDir, Disk)> {
    if !is_root() {
        return None;
    }
    let data = tempfile::tempdir().unwrap();
    let config = DiskConfig::Btrfs {
        size: Some(Mib(mib)),
    };
    let disk = Disk::open(data.path(), &config).unwrap();
    if disk.used(owner(0, None).team).unwrap().is_none() {
        eprintln!("skipped: this kernel has no simple quotas");
        disk.close(false).unwrap();
        return None;
    }
    Some((data, disk))
}

fn owner(team: u8, disk: Option<u32>) -> Owner {
    Owner {
        team: TeamId::from_entropy([team; 16]),
        disk: disk.map(Mib),
    }
}

/// Writes until the disk reports no space, at most `mib` MiB. Returns how many were written.
fn fill(directory: &Path, mib: usize) -> usize {
    let mut file = File::create(directory.join("fill")).unwrap();
    let block = vec![1u8; 1 << 20];
    let mut wrote = |_: &usize| file.write_all(&block).and_then(|()| file.sync_data());
    (0..mib).take_while(|n| wrote(n).is_ok()).count()
}

#[test]
fn a_full_team_quota_does_not_affect_other_teams() {
    let Some((_data, disk)) = with_quotas_of_teams(768) else {
        return;
    };
    let (mine, other) = (owner(1, Some(128)), owner(2, Some(512)));
    let share = Mib(1024);
    let first = disk.create("ia", share, mine).unwrap();
    let second = disk.create("ib", share, mine).unwrap();
    let neighbour = disk.create("ic", share, other).unwrap();
    assert_eq!(fill(&first, 64), 64);
    // Files beside a sandbox and the files of its snapshots count for the team too.
    let place = disk.snapshots().join("s");
    disk.make_place(&place, Some(mine)).unwrap();
    disk.keep("ia", &place.join("files")).unwrap();
    fs::write(place.join("memory"), vec![1; 16 << 20]).unwrap();
    disk.remove("ia").unwrap();
    disk.sync().unwrap();
    disk.create_from(&place.join("files"), "id", share, mine)
        .unwrap();
    let held = disk.used(mine.team).unwrap().unwrap();
    assert!((80 << 20..100 << 20).contains(&held), "{held}");
    let more = fill(&second, 128);
    assert!((16..64).contains(&more), "{more}");
    assert!(matches!(disk.room(mine).unwrap(), Room::TeamIsFull { .. }));
    assert_eq!(disk.room(other).unwrap(), Room::Some);
    assert_eq!(fill(&neighbour, 100), 100);
    disk.keep("ic", &disk.snapshots().join("t")).unwrap();
    disk.create("ie", share, other).unwrap();
    // A higher limit and a changed owner take effect immediately.
    assert_eq!(disk.room(owner(1, Some(256))).unwrap(), Room::Some);
    disk.give("ib", Some(mine), other).unwrap();
    assert!(disk.used(mine.team).unwrap().unwrap() < held + (8 << 20));
    for name in ["ib", "ic", "id", "ie"] {
        disk.remove(name).unwrap();
    }
    for kept in [place.join("files"), place, disk.snapshots().join("t")] {
        disk.remove_at(&kept).unwrap();
    }
    disk.close(false).unwrap();
}

#[test]
fn a_team_without_room_can_delete_what_it_saved() {
    let Some((_data, disk)) = with_quotas_of_teams(512) else {
        return;
    };
    let mine = owner(1, Some(64));
    let first = disk.create("ia", Mib(1024), mine).unwrap();
    fs::write(first.join("own"), vec![1; 1 << 20]).unwrap();
    let saved = SavedDirectory::of_snapshot(&disk, SnapshotId::from_entropy([1; 16]));
    let place = saved.directory();
    disk.make_place(place, Some(mine)).unwrap();
    disk.keep("ia", &saved.files()).unwrap();
    fs::write(place.join("memory"), vec![1; 16 << 20]).unwrap();
    disk.sync().unwrap();
    assert!(fill(&first, 128) < 64);
    assert!(matches!(disk.room(mine).unwrap(), Room::TeamIsFull { .. }));
    let refused = fs::write(place.join("more"), b"more").unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::QuotaExceeded);
    let another = owner(2, None);
    disk.create("ib", Mib(1024), another).unwrap();

    saved.remove(&disk).unwrap();
    assert!(!place.exists());
    assert_eq!(disk.room(mine).unwrap(), Room::Some);
    assert!(disk.used(another.team).unwrap().unwrap() < 1 << 20);
    for name in ["ia", "ib"] {
        disk.remove(name).unwrap();
    }
    disk.close(false).unwrap();
}

#[test]
fn a_full_disk_takes_back_what_was_deleted_a_moment_ago() {
    let Some((_data, disk)) = with_quotas_of_teams(768) else {
        return;
    };
    let mine = owner(1, None);
    // The kernel by itself cleans up twice a minute.
    for round in 0..3 {
        assert_eq!(disk.room(mine).unwrap(), Room::Some, "round {round}");
        let directory = disk.create("ia", Mib(1024), mine).unwrap();
        let written = fill(&directory, 1024);
        assert!((256..1024).contains(&written), "round {round}: {written}");
        disk.remove("ia").unwrap();
    }
    disk.close(false).unwrap();
}

#[test]
fn all_teams_together_leave_the_reserve_free() {
    if !is_root() {
        return;
    }
    let data = tempfile::tempdir().unwrap();
    let size = Some(Mib(512));
    let disk = Disk::open(data.path(), &DiskConfig::Btrfs { size }).unwrap();
    let whole = disk.size().unwrap();
    assert!((320..400).contains(&whole.0), "{whole}");
    let all: Vec<_> = (1..=3).map(|team| owner(team, None)).collect();
    if disk.used(all[0].team).unwrap().is_some() {
        for (number, owner) in all.iter().enumerate() {
            let path = disk
                .create(&format!("i{number}"), Mib(4096), *owner)
                .unwrap();
            fill(&path, 240);
            if disk.room(*owner).unwrap() == Room::DiskIsFull {
                break;
            }
        }
        assert_eq!(disk.room(all[0]).unwrap(), Room::DiskIsFull);
        // The server's own files can still be written.
        let own = disk.paused().join("own");
        fs::write(&own, vec![1; 4 << 20]).unwrap();
        File::open(&own).unwrap().sync_all().unwrap();
        fs::remove_file(own).unwrap();
    } else {
        eprintln!("skipped: this kernel has no simple quotas");
    }
    for name in disk.names().unwrap() {
        disk.remove(&name).unwrap();
    }
    disk.close(false).unwrap();
}

#[test]
fn a_sandbox_is_held_to_its_share_and_its_files_are_deleted_with_it() {
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
    let path = disk.create("ia", Mib(32), owner(1, None)).unwrap();
    assert!(
        disk.create("ia", Mib(32), owner(1, None)).is_err(),
        "a name is given once"
    );
    disk.create("ib", Mib(32), owner(1, None)).unwrap();

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
fn too_little_space_is_reported_before_anything_is_written() {
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
fn written_bytes_count_before_they_reach_the_disk() {
    if !is_root() {
        return;
    }
    let data = tempfile::tempdir().unwrap();
    let config = DiskConfig::Btrfs {
        size: Some(Mib(256)),
    };
    let disk = Disk::open(data.path(), &config).unwrap();
    let path = disk.create("ia", Mib(128), owner(1, None)).unwrap();
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
    let path = disk.create("ia", Mib(32), owner(1, None)).unwrap();
    fs::create_dir(path.join("d")).unwrap();
    fs::write(path.join("d/f"), vec![1u8; 100_000]).unwrap();
    assert!(disk.usage("ia").unwrap() >= 100_000);
    assert!(!disk.is_bounded());
    disk.remove("ia").unwrap();
    disk.remove("ia").unwrap();
}

#[test]
fn a_device_left_by_a_killed_server_is_detached() {
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
    // The kernel releases a device with its last user, which may be a system program that probes
    // every new device.
    let end = Instant::now() + Duration::from_secs(60);
    while !devices(&["--associated"]).is_empty() {
        assert!(Instant::now() < end, "it is not let go");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A child process with a mount namespace of its own, which has a copy of every mount.
fn with_copies_of_mounts() -> std::process::Child {
    let mut child = Command::new("unshare")
        .args([
            "--mount",
            "--propagation",
            "private",
            "sh",
            "-c",
            "echo; cat",
        ])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = [0];
    let said = child.stdout.as_mut().unwrap();
    said.read_exact(&mut line).unwrap();
    child
}

#[test]
fn a_disk_that_another_mount_namespace_uses_is_mounted_from_the_same_device() {
    if !is_root() {
        return;
    }
    let data = tempfile::tempdir().unwrap();
    let config = DiskConfig::Btrfs {
        size: Some(Mib(256)),
    };
    let disk = Disk::open(data.path(), &config).unwrap();
    let mut other = with_copies_of_mounts();
    fs::write(data.path().join("disk/unsynced"), "x").unwrap();
    disk.close(false).unwrap();
    let disk = Disk::open(data.path(), &config).unwrap();
    assert!(data.path().join("disk/unsynced").exists());
    let devices = Command::new("losetup")
        .args(["--noheadings", "--associated"])
        .arg(data.path().join("disk.btrfs"))
        .output()
        .unwrap();
    let devices = String::from_utf8(devices.stdout).unwrap();
    assert_eq!(devices.lines().count(), 1, "{devices}");
    other.kill().unwrap();
    other.wait().unwrap();
    disk.close(false).unwrap();
}

#[test]
fn a_disk_below_a_directory_with_a_space_is_unmounted() {
    if !is_root() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("with a space");
    fs::create_dir(&data).unwrap();
    let config = DiskConfig::Btrfs {
        size: Some(Mib(256)),
    };
    Disk::open(&data, &config).unwrap().close(false).unwrap();
    fs::remove_dir(data.join("disk")).unwrap();
}
