use super::*;

fn spec(kind: Kind) -> Spec {
    bundle(kind, false).spec().unwrap()
}

fn bundle(kind: Kind, privileged: bool) -> Bundle<'static> {
    Bundle {
        kind,
        hostname: "ia",
        root: Path::new("/r"),
        network_namespace: Path::new("/n"),
        cgroup: "/shoal/x/ia".into(),
        first_user: 1 << 20,
        env: &[],
        privileged,
    }
}

#[test]
fn a_privileged_sandbox_has_what_docker_needs_and_no_device_of_the_machine() {
    let plain = spec(Kind::Runsc);
    let spec = bundle(Kind::Runsc, true).spec().unwrap();
    let set = |spec: &Spec| {
        let process = spec.process().as_ref().unwrap();
        let sets = process.capabilities().as_ref().unwrap();
        assert_eq!(sets.bounding(), sets.effective());
        assert_eq!(sets.bounding(), sets.permitted());
        sets.bounding().clone().unwrap()
    };
    let more: std::collections::HashSet<_> = PRIVILEGED_CAPABILITIES.into();
    assert_eq!(&set(&spec) - &set(&plain), more);
    for never in [
        Capability::SysModule,
        Capability::SysPtrace,
        Capability::SysRawio,
        Capability::SysTime,
        Capability::Bpf,
    ] {
        assert!(!set(&spec).contains(&never), "{never}");
    }
    let linux = |spec: &Spec| spec.linux().clone().unwrap();
    assert_eq!(linux(&spec).resources(), linux(&plain).resources());
    assert_eq!(linux(&spec).devices(), linux(&plain).devices());
    assert_eq!(linux(&spec).masked_paths(), linux(&plain).masked_paths());
    let binds = |mount: &Mount| mount.typ().as_deref() == Some("bind");
    assert!(!spec.mounts().iter().flatten().any(binds));
}

#[test]
fn root_in_a_sandbox_never_has_what_opens_the_machine() {
    for kind in [Kind::Runsc, Kind::Runc] {
        let spec = spec(kind);
        let process = spec.process().as_ref().unwrap();
        let sets = process.capabilities().as_ref().unwrap();
        for set in [sets.bounding(), sets.effective(), sets.permitted()] {
            let set = set.as_ref().unwrap();
            for never in [
                Capability::SysAdmin,
                Capability::SysPtrace,
                Capability::NetRaw,
                Capability::NetAdmin,
                Capability::SysModule,
                Capability::Mknod,
                Capability::SysRawio,
                Capability::Bpf,
                Capability::SysTime,
            ] {
                assert!(!set.contains(&never), "{never}");
            }
        }
        for set in [sets.ambient(), sets.inheritable()] {
            assert!(set.as_ref().unwrap().is_empty());
        }
    }
}

#[test]
fn a_shared_kernel_comes_with_a_user_namespace_and_a_filter() {
    let linux = spec(Kind::Runc).linux().clone().unwrap();
    assert!(linux.seccomp().is_some());
    let mapping = linux.uid_mappings().as_ref().unwrap()[0];
    assert_eq!((mapping.container_id(), mapping.host_id()), (0, 1 << 20));
    assert!(
        spec(Kind::Runsc)
            .linux()
            .as_ref()
            .unwrap()
            .uid_mappings()
            .is_none()
    );
}
