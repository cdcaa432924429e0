use super::*;

fn ssh() -> MachineParameters {
    MachineParameters {
        ssh_connection: Some("me@example.com:22".to_owned()),
        ssh_private_key: true,
        ..MachineParameters::default()
    }
}

fn refused(asked: MachineParameters) -> String {
    MachineType::try_from(asked).unwrap_err().to_string()
}

/// Each combination of resources, GPU, privileged, image and SSH: R2-084, R2-087, R2-088, R2-090, R2-095, R2-096, R2-097.
#[test]
fn r2_078_to_r2_098_the_whole_table() {
    let mut passed = Vec::new();
    for combination in 0..32_u32 {
        let has = |bit: u32| combination & (1 << bit) != 0;
        let base = if has(4) {
            ssh()
        } else {
            MachineParameters::default()
        };
        let asked = MachineParameters {
            cpu_count: has(0).then_some(4),
            gpu_type: has(1).then(|| "T4".to_owned()),
            privileged: has(2),
            docker_image: has(3).then(|| "python:3.11".to_owned()),
            ..base
        };
        let [resources, gpu, privileged, image, ssh] = [0, 1, 2, 3, 4].map(has);
        let alone = !(resources || gpu || privileged || image);
        let right = if ssh {
            alone
        } else {
            !(privileged && gpu) && (privileged || !image)
        };
        let made = MachineType::try_from(asked);
        assert_eq!(made.is_ok(), right, "{combination:05b}: {made:?}");
        match made {
            Ok(_) => passed.push(combination),
            Err(MachineError::Together(..) | MachineError::Without(..)) => {}
            Err(other) => panic!("{combination:05b}: {other} names no pair"),
        }
    }
    assert_eq!(passed.len(), 9);
}

/// The two parameters that a refusal names, in its text's order.
fn pair(asked: MachineParameters) -> (&'static str, &'static str) {
    match MachineType::try_from(asked) {
        Err(MachineError::Together(one, other) | MachineError::Without(one, other)) => (one, other),
        other => panic!("{other:?}"),
    }
}

#[test]
fn r2_084_r2_087_r2_095_r2_096_r2_097_an_external_machine_has_no_parameters_of_a_sandbox() {
    type Give = fn(&mut MachineParameters);
    let refused_by_ssh: [(&str, Give); 6] = [
        ("cpu_count", |asked| asked.cpu_count = Some(2)),
        ("memory_gb", |asked| asked.memory_gb = Some(2)),
        ("gpu_type", |asked| asked.gpu_type = Some("T4".to_owned())),
        ("gpu_count", |asked| asked.gpu_count = Some(1)),
        ("privileged", |asked| asked.privileged = true),
        ("docker_image", |asked| {
            asked.docker_image = Some("python:3.11".to_owned())
        }),
    ];
    for (name, give) in refused_by_ssh {
        let mut asked = ssh();
        give(&mut asked);
        assert_eq!(pair(asked), (name, "ssh_connection"));
    }
}

#[test]
fn r2_088_r2_090_r2_097_an_image_needs_privileged_which_excludes_gpus() {
    let with = |privileged: bool, image: bool, gpu: bool| MachineParameters {
        privileged,
        docker_image: image.then(|| "python:3.11".to_owned()),
        gpu_type: gpu.then(|| "T4".to_owned()),
        ..MachineParameters::default()
    };
    assert_eq!(pair(with(true, false, true)), ("privileged", "gpu_type"));
    assert_eq!(pair(with(true, true, true)), ("privileged", "gpu_type"));
    assert_eq!(
        pair(with(false, true, false)),
        ("docker_image", "privileged")
    );
    assert_eq!(
        pair(with(false, true, true)),
        ("docker_image", "privileged")
    );
    for bad in ["", "-v", "a b", "a;b"] {
        let asked = MachineParameters {
            docker_image: Some(bad.to_owned()),
            ..with(true, false, false)
        };
        assert_eq!(
            refused(asked),
            MachineError::Image(bad.to_owned()).to_string()
        );
    }
}

#[test]
fn r2_078_r2_079_r2_082_numbers_have_ranges() {
    let with = |cpu_count, memory_gb, gpu_count| MachineParameters {
        cpu_count: Some(cpu_count),
        memory_gb: Some(memory_gb),
        gpu_type: Some("L4".to_owned()),
        gpu_count: Some(gpu_count),
        ..MachineParameters::default()
    };
    for good in [with(1, 1, 1), with(16, 64, 8)] {
        MachineType::try_from(good).unwrap();
    }
    assert_eq!(refused(with(0, 1, 1)), "`cpu_count` is 0: give 1 to 16");
    assert_eq!(refused(with(17, 1, 1)), "`cpu_count` is 17: give 1 to 16");
    assert_eq!(refused(with(1, 0, 1)), "`memory_gb` is 0: give 1 to 64");
    assert_eq!(refused(with(1, 65, 1)), "`memory_gb` is 65: give 1 to 64");
    assert_eq!(refused(with(1, 1, 0)), "`gpu_count` is 0: give 1 to 8");
    assert_eq!(refused(with(1, 1, 9)), "`gpu_count` is 9: give 1 to 8");
}

#[test]
fn r2_081_r2_083_models_of_gpus() {
    let of = |kind: Option<&str>, count| MachineParameters {
        gpu_type: kind.map(str::to_owned),
        gpu_count: count,
        ..MachineParameters::default()
    };
    for kind in ["A10G", "A100", "T4", "L4", "H100"] {
        let MachineType::Sandbox { gpus, .. } = of(Some(kind), None).try_into().unwrap() else {
            panic!("no sandbox");
        };
        let gpus = gpus.unwrap();
        assert_eq!((gpus.kind.to_string().as_str(), gpus.count), (kind, 1));
    }
    for other in ["t4", "V100", "", "T4 "] {
        assert!(refused(of(Some(other), None)).contains("A10G, A100, T4, L4 or H100"));
    }
    assert!(refused(of(None, Some(2))).contains("`gpu_count` needs `gpu_type`"));
}

#[test]
fn r2_092_addresses_of_external_machines() {
    for (text, host) in [
        ("me@h:1", "h"),
        ("a.b-c@10.0.0.1:65535", "10.0.0.1"),
        ("x@[::1]:22", "::1"),
    ] {
        let address: SshAddress = text.parse().unwrap();
        assert_eq!(address.host, host);
    }
    for bad in [
        "",
        "h:22",
        "me@h",
        "@h:22",
        "me@:22",
        "me@h:",
        "me@h:0",
        "me@h:65536",
        "me@h:+22",
        "me@h:2 2",
        "-oProxyCommand=x@h:22",
        "me@-h:22",
        "me@h h:22",
        "me@::1:22",
        "me@[h]:22",
        "a@b@c:22",
    ] {
        assert_eq!(
            bad.parse::<SshAddress>(),
            Err(MachineError::Address(bad.to_owned())),
            "{bad}"
        );
    }
}

#[test]
fn r2_094_address_and_key_need_each_other() {
    let keyless = MachineParameters {
        ssh_private_key: false,
        ..ssh()
    };
    assert_eq!(
        refused(keyless),
        "`ssh_connection` needs `ssh_private_key`: give both, or neither"
    );
    let placeless = MachineParameters {
        ssh_connection: None,
        ..ssh()
    };
    assert_eq!(
        refused(placeless),
        "`ssh_private_key` needs `ssh_connection`: give both, or neither"
    );
}

#[test]
fn r2_098_a_refusal_names_both_parameters() {
    let asked = MachineParameters {
        memory_gb: Some(2),
        ..ssh()
    };
    assert_eq!(
        refused(asked),
        "`memory_gb` cannot be combined with `ssh_connection`: leave one of them out"
    );
}
