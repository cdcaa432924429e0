use std::os::unix::process::CommandExt;
use std::process::Command;

use super::files::number;
use super::*;

const HYBRID: &str = "\
30 29 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct
31 29 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
32 29 0:28 / /sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer
33 29 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
";

#[test]
fn each_controller_is_used_where_it_is_mounted() {
    let found = places(HYBRID, |_| "pids misc".to_owned()).unwrap();
    assert_eq!(
        found[&Controller::Cpu],
        Mount::V1("/sys/fs/cgroup/cpu".into())
    );
    assert_eq!(
        found[&Controller::Pids],
        Mount::V2("/sys/fs/cgroup/unified".into())
    );

    let v2 = "29 28 0:25 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw\n";
    let found = places(v2, |_| "cpuset cpu io memory pids".to_owned()).unwrap();
    assert!(
        found
            .values()
            .all(|place| *place == Mount::V2("/sys/fs/cgroup".into()))
    );
}

#[test]
fn a_missing_controller_is_named() {
    let error = places(HYBRID, |_| String::new()).unwrap_err();
    assert_eq!(error.to_string(), "no cgroup controller `pids` is mounted");
}

/// A hierarchy of one test: removing a parent that tests share could come between the parent and the
/// group that another test makes below it.
fn hierarchy_of(test: &str) -> Hierarchy {
    Hierarchy::detect(&Path::new("shoal-test").with_extension(test)).unwrap()
}

#[test]
fn swap_does_not_evade_a_memory_limit_that_grows_and_shrinks() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: cgroups need root");
        return;
    }
    let name = format!("swap{}", std::process::id());
    let hierarchy = hierarchy_of(&name);
    let limits = Resources {
        memory: Mib(64),
        ..Resources::default()
    };
    let group = hierarchy.create(&name, &limits).unwrap();
    let swap = match group.place(Controller::Memory) {
        Mount::V1(path) => path.join("memory.memsw.limit_in_bytes"),
        Mount::V2(path) => path.join("memory.swap.max"),
    };
    for memory in [64, 256, 96, 96].map(Mib) {
        group.set_memory(memory).unwrap();
        match group.place(Controller::Memory) {
            // This file exists together with that of the memory limit.
            Mount::V1(_) if swap.exists() => assert_eq!(number(&swap).unwrap(), memory.bytes()),
            Mount::V2(_) if swap.exists() => assert_eq!(number(&swap).unwrap(), 0),
            _ => eprintln!("skipped: this kernel counts no swap"),
        }
    }
    group.remove().unwrap();
    hierarchy.remove_parents();
}

#[test]
fn limits_are_enforced_and_killing_a_group_kills_all_its_processes() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: cgroups need root");
        return;
    }
    let name = format!("test{}", std::process::id());
    let hierarchy = hierarchy_of(&name);
    let limits = Resources {
        cpu: MilliCpu(500),
        memory: Mib(64),
        pids: 32,
        ..Resources::default()
    };
    let group = hierarchy.create(&name, &limits).unwrap();
    let entrances = group.entrances();
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' TERM; sleep 1000 & sleep 1000 & wait"]);
    #[expect(unsafe_code, reason = "joining a group is what is tested")]
    // SAFETY: only writes to files.
    let command = unsafe {
        command.pre_exec(move || entrances.iter().try_for_each(|file| fs::write(file, "0")))
    };
    let mut child = command.spawn().unwrap();
    assert!(
        group
            .processes()
            .unwrap()
            .contains(&child.id().cast_signed())
    );
    assert!(hierarchy.names().unwrap().contains(&name));
    group.set_cpu(MilliCpu(1500)).unwrap();
    assert!(group.usage().unwrap().memory_bytes < limits.memory.bytes());
    assert_eq!(group.oom_kills(), 0);

    group.kill().unwrap();
    child.wait().unwrap();
    assert!(group.processes().unwrap().is_empty());
    group.remove().unwrap();
    group.remove().unwrap();
    group.kill().unwrap();
    assert!(!hierarchy.names().unwrap().contains(&name));
    hierarchy.remove_parents();
}

#[test]
fn the_weight_of_a_group_is_capped_at_the_size_of_the_machine() {
    let machine = MilliCpu(2000);
    assert_eq!(weighed(MilliCpu(32_000), machine), machine);
    assert_eq!(weighed(MilliCpu(500), machine), MilliCpu(500));
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: cgroups need root");
        return;
    }
    let name = format!("weight{}", std::process::id());
    let hierarchy = hierarchy_of(&name);
    let limits = Resources {
        cpu: MilliCpu(128_000),
        memory: Mib(64),
        ..Resources::default()
    };
    let group = hierarchy.create(&name, &limits).unwrap();
    let most = u64::from(machine::cpu().0);
    match group.place(Controller::Cpu) {
        Mount::V1(path) => {
            assert_eq!(
                number(&path.join("cpu.shares")).unwrap(),
                most * 1024 / 1000
            );
        }
        Mount::V2(path) => assert_eq!(number(&path.join("cpu.weight")).unwrap(), most / 10),
    }
    group.remove().unwrap();
    hierarchy.remove_parents();
}
