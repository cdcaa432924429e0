use proptest::prelude::*;

use super::*;

fn machine(cpu: u32, memory: u32, disk: Option<u32>) -> Machine {
    Machine {
        cpu: MilliCpu(cpu),
        memory: Mib(memory),
        disk: disk.map(Mib),
    }
}

fn wanted(cpu: u32, memory: u32, disk: u32) -> Resources {
    Resources {
        cpu: MilliCpu(cpu),
        memory: Mib(memory),
        disk: Mib(disk),
        pids: 4096,
    }
}

#[test]
fn a_template_larger_than_the_machine_is_refused_with_the_available_amount() {
    let bounds = Bounds::new(&machine(2000, 24105, Some(8192)), &PerSandbox::default());
    let refused = |wanted| bounds.grant(wanted, MilliCpu(0)).unwrap_err().to_string();
    let memory = refused(wanted(2000, 200_000, 1024));
    assert!(memory.contains("200000 MiB of memory"), "{memory}");
    assert!(memory.contains("at most 22599 MiB"), "{memory}");
    let cpu = refused(wanted(32_000, 1024, 1024));
    assert!(
        cpu.contains("32000m of cpu") && cpu.contains("at most 2000m"),
        "{cpu}"
    );
    let disk = refused(wanted(2000, 1024, 20_000));
    assert!(disk.contains("20000 MiB of disk"), "{disk}");
}

#[test]
fn a_bound_of_the_operator_is_reported_with_its_setting() {
    let allowed = PerSandbox {
        memory: Some(Mib(2048)),
        disk: Some(Mib(512)),
        ..PerSandbox::default()
    };
    let bounds = Bounds::new(&machine(8000, 24105, Some(8192)), &allowed);
    let refused = bounds
        .grant(wanted(1000, 4096, 256), MilliCpu(0))
        .unwrap_err();
    assert!(
        refused.to_string().contains("limits.memory_per_sandbox"),
        "{refused}"
    );
    let given = bounds
        .grant(wanted(1000, 1024, 10_240), MilliCpu(0))
        .unwrap();
    assert_eq!(given.resources().disk, Mib(512));
}

#[test]
fn the_defaults_fit_every_machine_and_a_ceiling_cannot_exceed_the_bounds() {
    let small = Bounds::new(&machine(1000, 700, Some(600)), &PerSandbox::default());
    let given = small
        .grant(Resources::default(), MilliCpu(128_000))
        .unwrap();
    assert_eq!(given.resources().cpu, MilliCpu(1000));
    assert_eq!(given.cpu_ceiling(), MilliCpu(1000));
    assert_eq!(given.resources().memory, Mib(700 - 128));
    assert_eq!(given.resources().disk, Mib(300));
    assert_eq!(usual_disk(None), Resources::default().disk);
    assert_eq!(usual_disk(Some(Mib(28_000))), Mib(7000));
    assert_eq!(usual_disk(Some(Mib(8000))), Mib(4000));
    assert_eq!(usual_disk(Some(Mib(1 << 20))), Resources::default().disk);
}

#[test]
fn an_execution_keeps_its_limits_and_gets_no_more_than_is_available() {
    let bounds = Bounds::new(&machine(2000, 4096, None), &PerSandbox::default());
    let now = wanted(4000, 8192, 1024);
    let least = bounds
        .regrant(&now, wanted(4000, 512, 16), MilliCpu(4000))
        .unwrap();
    assert_eq!(
        least.resources().disk,
        now.disk,
        "a resize leaves the disk alone"
    );
    for more in [wanted(4001, 8192, 16), wanted(4000, 8193, 16)] {
        assert!(bounds.regrant(&now, more, MilliCpu(16_000)).is_err());
    }
    let capped = bounds.regrant(&wanted(500, 512, 16), wanted(1500, 512, 16), MilliCpu(1000));
    assert!(
        capped
            .unwrap_err()
            .to_string()
            .contains("the template allows")
    );
}

proptest! {
    #[test]
    fn grants_never_exceed_the_machine_or_the_installation(
        (cpu, memory, disk) in (50..200_000u32, 512..2_000_000u32, proptest::option::of(64..2_000_000u32)),
        allowed in (
            proptest::option::of(50..200_000u32),
            proptest::option::of(64..2_000_000u32),
            proptest::option::of(16..2_000_000u32),
        ),
        (asked_cpu, asked_memory, asked_disk) in (0..=u32::MAX, 0..=u32::MAX, 0..=u32::MAX),
        ceiling in 0..=u32::MAX,
    ) {
        let machine = machine(cpu, memory, disk);
        let allowed = PerSandbox {
            cpu: allowed.0.map(MilliCpu),
            memory: allowed.1.map(Mib),
            disk: allowed.2.map(Mib),
        };
        let bounds = Bounds::new(&machine, &allowed);
        let granted = bounds.grant(wanted(asked_cpu, asked_memory, asked_disk), MilliCpu(ceiling));
        if let Ok(granted) = granted {
            let given = granted.resources();
            prop_assert!(given.cpu <= machine.cpu && granted.cpu_ceiling() <= machine.cpu);
            prop_assert!(given.memory.0 + reserve(machine.memory).0 <= machine.memory.0);
            prop_assert!(machine.disk.is_none_or(|disk| given.disk <= disk));
            prop_assert!(allowed.cpu.is_none_or(|most| given.cpu <= most));
            prop_assert!(allowed.memory.is_none_or(|most| given.memory <= most));
            prop_assert!(allowed.disk.is_none_or(|most| given.disk <= most));
            prop_assert!(given.cpu.0 <= asked_cpu && given.memory.0 <= asked_memory && given.disk.0 <= asked_disk);
        }
    }
}
