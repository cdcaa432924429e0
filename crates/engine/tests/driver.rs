//! The driver for tests keeps the promises of a real one, so that what passes with it does so with
//! reason.
#![expect(clippy::expect_used, reason = "tests")]

use shoal_core::BoxFuture;
use shoal_core::auth::TokenSeed;
use shoal_core::driver::contract::{Subject, check};
use shoal_core::driver::{CreateOrder, Driver, Owner, Start};
use shoal_core::id::{ExecutionId, SandboxId, TeamId};
use shoal_core::limits::Bounds;
use shoal_core::state::FailReason;
use shoal_engine::test_util::{BROKEN_IMAGE, FakeDriver, record};

struct Fake(FakeDriver);

impl Subject for Fake {
    fn driver(&self) -> &dyn Driver {
        &self.0
    }

    fn order(&self, id: SandboxId, execution: ExecutionId) -> CreateOrder {
        let spec = record(id.as_str()).spec;
        CreateOrder {
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
        }
    }

    fn order_without_image(&self, id: SandboxId, execution: ExecutionId) -> CreateOrder {
        let image = BROKEN_IMAGE.parse().expect("a constant");
        CreateOrder {
            start: Start::Image(image),
            ..self.order(id, execution)
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
async fn the_driver_for_tests_keeps_the_contract() {
    check(&Fake(FakeDriver::new())).await;
}
