//! The fake driver keeps the contract of a real one, so that tests with it prove something.
#![expect(clippy::expect_used, reason = "tests")]

use shoal_core::BoxFuture;
use shoal_core::auth::TokenSeed;
use shoal_core::driver::contract::{Subject, check};
use shoal_core::driver::{Driver, Owner, Start, StartSpec};
use shoal_core::id::{ExecutionId, SandboxId, TeamId};
use shoal_core::limits::Bounds;
use shoal_core::state::FailReason;
use shoal_engine::test_util::{BROKEN_IMAGE, FakeDriver, record};

struct Fake(FakeDriver);

impl Subject for Fake {
    fn driver(&self) -> &dyn Driver {
        &self.0
    }

    fn spec(&self, id: SandboxId, execution: ExecutionId) -> StartSpec {
        let spec = record(id.as_str()).spec;
        StartSpec {
            guest_token: TokenSeed::new([7; 32]).envd_access_token(&id),
            id,
            execution,
            start: Start::Image(spec.image),
            runtime: None,
            limits: Bounds::none()
                .grant(spec.resources, spec.cpu_ceiling)
                .expect("valid limits"),
            owner: Owner {
                team: TeamId::from_entropy([1; 16]),
                disk: None,
            },
            egress: spec.network.egress,
            env: spec.env,
            privileged: false,
            keep_connections: false,
        }
    }

    fn spec_without_image(&self, id: SandboxId, execution: ExecutionId) -> StartSpec {
        let image = BROKEN_IMAGE.parse().expect("a constant");
        StartSpec {
            start: Start::Image(image),
            ..self.spec(id, execution)
        }
    }

    fn stop<'a>(&'a self, id: &'a SandboxId) -> BoxFuture<'a, ()> {
        Box::pin(self.0.fail(id, FailReason::Exited))
    }

    fn remains(&self, id: &SandboxId) -> Vec<String> {
        let there = self.0.sandboxes();
        there
            .iter()
            .filter(|s| *s == id)
            .map(ToString::to_string)
            .collect()
    }
}

#[tokio::test]
async fn the_fake_driver_keeps_the_contract() {
    let parts = check(&Fake(FakeDriver::new())).await;
    let all = [
        "checkpointer",
        "freezer",
        "resizer",
        "egress_filter",
        "disk_accounts",
    ];
    assert_eq!(parts, all);
}

#[tokio::test]
async fn a_driver_without_capabilities_keeps_what_is_left_of_it() {
    let bare = FakeDriver::without_capabilities("bare", &["bare"]);
    assert_eq!(check(&Fake(bare)).await, [""; 0]);
}
