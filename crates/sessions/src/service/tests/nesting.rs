//! Machines with Docker, and those that are refused.

use shoal_core::ports::create::CreateError;
use shoal_core::ports::inside::SandboxCommand;

use super::*;

fn support(runtime: &str, nested_containers: bool, privileged: bool) -> MachineSupport {
    MachineSupport {
        runtime: runtime.parse().unwrap(),
        nested_containers,
        privileged,
    }
}

fn privileged(image: Option<&str>) -> MachineParameters {
    MachineParameters {
        privileged: true,
        docker_image: image.map(str::to_owned),
        ..MachineParameters::default()
    }
}

impl Fixture {
    async fn session_of(&self, machine: MachineParameters) -> Result<String, SessionError> {
        let new = NewSession {
            machine,
            ..NewSession::default()
        };
        let made = self.service.create(&self.principal, new).await?;
        Ok(made.record.id.to_string())
    }

    async fn first_error(&self, session: &str) -> SessionError {
        let window = WindowName::default();
        let ran = self.service.exec(&self.principal, session, &window, "true");
        match ran.await {
            Err(error) => error,
            Ok(_) => panic!("the command runs"),
        }
    }
}

#[tokio::test]
async fn r2_085_r2_089_a_runtime_that_cannot_or_an_operator_who_forbids_is_named() {
    for (support, image, parts) in [
        (support("runc", false, true), None, ["`privileged`", "runc"]),
        (
            support("runc", false, true),
            Some("python:3.11"),
            ["`docker_image`", "runc"],
        ),
        (
            support("runsc", true, false),
            None,
            ["`privileged`", "`sessions.privileged`"],
        ),
    ] {
        let fixture = Fixture::with(None, support).await;
        let refused = fixture.session_of(privileged(image)).await.unwrap_err();
        assert!(matches!(refused, SessionError::NoSuchMachine { .. }));
        let told = refused.to_string();
        assert!(parts.iter().all(|part| told.contains(part)), "{told}");
        assert_eq!(fixture.machines.made(), 0);
        assert!(fixture.service.0.all().is_empty());
    }
}

#[tokio::test]
async fn r2_081_gpus_are_refused_with_the_runtime_that_has_none() {
    let fixture = Fixture::new().await;
    let gpu = MachineParameters {
        gpu_type: Some("A100".to_owned()),
        gpu_count: Some(2),
        ..MachineParameters::default()
    };
    let told = fixture.session_of(gpu).await.unwrap_err().to_string();
    assert!(
        ["`gpu_type`", "runsc", "A100"]
            .iter()
            .all(|part| told.contains(part)),
        "{told}"
    );
    assert_eq!(fixture.machines.made(), 0);
}

#[tokio::test]
async fn r2_085_a_privileged_machine_is_of_the_template_with_docker_and_nothing_is_in_its_place() {
    let fixture = Fixture::new().await;
    let session = fixture.session_of(privileged(None)).await.unwrap();
    let template = "session-docker-v1";
    let missing = CreateError::BeingBuilt {
        template: template.parse().unwrap(),
        build: "a/b".to_owned(),
    };
    fixture.machines.refuse_to_begin(vec![missing]);
    let error = fixture.first_error(&session).await;
    assert!(
        matches!(error, SessionError::Create(CreateError::BeingBuilt { .. })),
        "{error}"
    );
    // The fake machine is this one, on which `start-docker` is not installed.
    let error = fixture.first_error(&session).await;
    assert!(
        matches!(&error, SessionError::Docker(said) if said.contains("has no Docker")),
        "{error}"
    );
    let wanted = fixture.machines.wanted();
    assert!(wanted.privileged);
    assert_eq!(wanted.template.unwrap().to_string(), template);
    let ordinary = fixture.session(false).await;
    fixture.run(&ordinary, "true").await;
    assert!(!fixture.machines.wanted().privileged);
}

#[tokio::test]
async fn r2_089_r2_091_windows_and_files_are_those_of_the_container() {
    let image = MachineType::try_from(privileged(Some("python:3.11"))).unwrap();
    assert_eq!(crate::service::nesting::user(&image), Some("root"));
    assert_eq!(
        crate::service::nesting::user(&MachineType::ordinary()),
        None
    );
    let clock = Arc::new(Manual::default());
    let place = crate::window::Place {
        client: Arc::new(crate::local::Local::default()),
        events: crate::events::WindowEvents {
            events: Events::new(clock.clone()),
            window: WindowName::default(),
        },
        clock,
        env: BTreeMap::from([("PUBLIC_HOSTNAME".to_owned(), "h".to_owned())]),
        secrets: tokio::sync::watch::Sender::default().subscribe(),
        in_container: true,
    };
    let SandboxCommand { program, args, .. } = place.shell();
    assert_eq!((program.as_str(), args[0].as_str()), ("docker", "exec"));
    assert_eq!(args[args.len() - 3..], ["session", "/bin/bash", "-i"]);
    let pairs: Vec<_> = args.iter().filter(|word| word.contains('=')).collect();
    assert!(pairs.iter().any(|pair| *pair == "PUBLIC_HOSTNAME=h"));
}
