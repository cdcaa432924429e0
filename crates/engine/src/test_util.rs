//! A driver, a guest and a clock that tests own.

mod driver;
mod gate;
mod guest;
mod opened;
mod registry;

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use shoal_core::clock::{Clock, Timestamp};
use shoal_core::id::{BuildId, ExecutionId, TeamId, TemplateId};
use shoal_core::network::{NetworkPolicy, RequestedNetwork};
use shoal_core::resources::{MilliCpu, Resources};
use shoal_core::sandbox::{Lifecycle, OnTimeout, Purpose, SandboxRecord, SandboxSpec, TokenSalts};
use shoal_core::snapshot::Contents;
use shoal_core::state::State;
use shoal_core::template::Template;
use tokio::sync::watch;

pub use self::driver::{BROKEN_IMAGE, FakeDriver, Refusals};
pub use self::gate::Gate;
pub use self::guest::FakeGuest;
pub use self::opened::{admin_and_other, open, parts};
pub use self::registry::{FakeRegistry, NoImages, image};

/// A running sandbox called `id`, of a team made of ones.
///
/// # Panics
/// When `id` is not an id.
#[must_use]
#[expect(clippy::expect_used, reason = "constants of a test")]
pub fn record(id: &str) -> SandboxRecord {
    SandboxRecord {
        id: id.parse().expect("an id"),
        team: TeamId::from_entropy([1; 16]),
        execution: ExecutionId::from_entropy([2; 16]),
        spec: SandboxSpec {
            template: TemplateId::from_entropy([3; 16]),
            template_name: Some("base".to_owned()),
            template_key: None,
            image: "test/image:1".parse().expect("an image"),
            runtime: None,
            runtime_from_operator: false,
            resources: Resources::default(),
            user: "user".to_owned(),
            workdir: None,
            env: BTreeMap::new(),
            metadata: BTreeMap::new(),
            lifecycle: Lifecycle {
                timeout: Duration::from_secs(300),
                on_timeout: OnTimeout::Kill,
                auto_resume: false,
                keep_memory: true,
                endless: false,
            },
            network: NetworkPolicy::default(),
            template_network: RequestedNetwork::default(),
            secure: true,
            persistent: Contents::Memory,
            cpu_ceiling: MilliCpu(8000),
            snapshot: None,
            start: None,
            start_env: BTreeMap::new(),
            purpose: Purpose::Use,
            port: None,
            privileged: false,
        },
        state: State::Running,
        created_at: Timestamp::from_unix_millis(0),
        started_at: Timestamp::from_unix_millis(0),
        deadline: Timestamp::from_unix_seconds(300),
        since: Timestamp::from_unix_millis(0),
        report: None,
        resizing: false,
        tokens: TokenSalts::default(),
        aim: None,
        idempotency: None,
    }
}

/// The template `base` of the installation, over the image of [`record`].
///
/// # Panics
/// Never: its constants are valid.
#[must_use]
#[expect(clippy::expect_used, reason = "constants of a test")]
pub fn base_template() -> Template {
    let known = record("ia");
    let (id, build) = (
        TemplateId::from_entropy([7; 16]),
        BuildId::from_entropy([1; 16]),
    );
    Template {
        names: vec!["base".parse().expect("a name")],
        resources: known.spec.resources,
        user: "user".to_owned(),
        public: true,
        ..Template::over(id, build, known.spec.image, known.created_at)
    }
}

/// A clock that tests advance.
#[derive(Debug)]
pub struct ManualClock(watch::Sender<Timestamp>);

impl ManualClock {
    /// A clock at the epoch.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new(Self(watch::channel(Timestamp::from_unix_millis(0)).0))
    }

    /// Advances by `duration`.
    pub fn advance(&self, duration: Duration) {
        self.0.send_modify(|now| *now = *now + duration);
    }

    /// Advances to `moment`.
    pub fn advance_to(&self, moment: Timestamp) {
        self.0.send_replace(moment);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        *self.0.borrow()
    }

    fn sleep_until(&self, moment: Timestamp) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        let mut now = self.0.subscribe();
        Box::pin(async move {
            // The sender lives as long as `self` does.
            let _ = now.wait_for(|now| *now >= moment).await;
        })
    }
}
