use std::process::Command;

use super::*;

/// An unused name, unless a test of another checkout runs at the same moment.
fn made_up() -> String {
    format!("t{:04x}", std::process::id() & 0xffff)
}

fn is_root() -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        eprintln!("skipped: it needs root");
    }
    root
}

fn run(program: &str, arguments: &[&str]) {
    let done = Command::new(program).args(arguments).output().unwrap();
    assert!(done.status.success(), "{program} {arguments:?}: {done:?}");
}

fn found(name: &str, data: &Path, machine: &Path) -> Option<Instance> {
    let all = instances_of(data, machine).unwrap();
    all.into_iter().find(|instance| instance.name == name)
}

#[test]
fn an_abandoned_installation_is_found_and_removed() {
    if !is_root() {
        return;
    }
    let name = made_up();
    let place = tempfile::tempdir().unwrap();
    let (machine, data) = (place.path().join("machine"), place.path().join("data"));
    let state = machine.join(&name);
    fs::create_dir_all(state.join("netns")).unwrap();
    fs::write(state.join("data"), data.to_str().unwrap()).unwrap();
    let namespace = state.join("netns/3-slot");
    fs::write(&namespace, "").unwrap();
    let own = "/proc/self/ns/net";
    run("mount", &["--bind", own, namespace.to_str().unwrap()]);
    run("nft", &["add", "table", "inet", &format!("shoal_{name}")]);
    let group = groups(&name).unwrap().group("ia");
    for entrance in group.entrances() {
        fs::create_dir_all(entrance.parent().unwrap()).unwrap();
    }
    let before = found(&name, place.path(), &machine).unwrap();
    assert_eq!(
        (before.owner.clone(), before.data.clone()),
        (Owner::Nobody, Some(data))
    );
    for part in ["table", "1 network slots", "mount", "group of processes ia"] {
        assert!(
            before.things.iter().any(|t| t.contains(part)),
            "{part}: {before:?}"
        );
    }
    clear_of(&before, &machine).unwrap();
    assert_eq!(found(&name, place.path(), &machine), None);
    assert!(!state.exists());
}

#[test]
fn an_installation_in_use_is_left_alone() {
    let place = tempfile::tempdir().unwrap();
    let data = place.path().join("data");
    fs::create_dir_all(data.join("sandboxes")).unwrap();
    let state = place.path().join("machine/t");
    fs::create_dir_all(&state).unwrap();
    assert_eq!(owner(Some(&data), &state).unwrap(), Owner::Nobody);
    assert_eq!(owner(None, &state).unwrap(), Owner::Unknown);
    let held = lock::take(&data).unwrap();
    assert_eq!(owner(Some(&data), &state).unwrap(), Owner::Running);
    drop(held);
    let held = lock::take(&state).unwrap();
    let gone = place.path().join("gone");
    assert_eq!(owner(Some(&gone), &state).unwrap(), Owner::Running);
    for owner in [Owner::Running, Owner::Waiting(1), Owner::Unknown] {
        let instance = Instance {
            name: "t".to_owned(),
            data: None,
            owner,
            things: Vec::new(),
        };
        let refused = clear_of(&instance, &place.path().join("machine")).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ResourceBusy);
    }
    assert!(state.exists());
    drop(held);
}
