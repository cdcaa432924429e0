//! The start of a run.

use std::collections::BTreeMap;
use std::sync::Arc;

use shoal_core::auth::Token;
use shoal_core::detail::Chain;
use shoal_core::driver::{Start, StartReport, StartSpec};
use shoal_core::sandbox::SandboxRecord;
use shoal_core::state::{FailReason, Input, KillReason};
use tokio::time::Instant;
use tracing::Instrument;

use super::Sandbox;
use crate::guest::InitSpec;
use crate::telemetry::EventKind;
use shoal_core::ports::create::CreateError;
use shoal_core::ports::sandboxes::SandboxError;

/// The address of the events service inside a sandbox.
const EVENTS_ADDRESS: &str = "http://192.0.2.1";

impl Sandbox {
    /// Starts a sandbox whose state is `Creating`. A failure leaves nothing of it.
    #[tracing::instrument(level = "debug", name = "sandbox.start", skip_all, fields(sandbox.id = %self.record.id))]
    pub(super) async fn start(&mut self) -> Result<Arc<SandboxRecord>, CreateError> {
        let spec = &self.record.spec;
        let own = Some(self.sandboxes.parts.access.guest_token(&self.record));
        let (start, known) = match &spec.snapshot {
            None => (Start::Image(spec.image.clone()), own),
            Some(snapshot) => (
                Start::Snapshot {
                    id: snapshot.id,
                    memory: snapshot.memory,
                },
                match snapshot.memory {
                    true => snapshot.guest_token.clone(),
                    false => own,
                },
            ),
        };
        let up = match self.bring_up(start, known).await {
            Ok(mut report) => {
                let began = Instant::now();
                let started = self.run_start_command(&report).await;
                report.phases.ready += began.elapsed();
                started.map(|()| report)
            }
            Err(error) => Err(CreateError::from(error)),
        };
        match up {
            Ok(report) => self.ready(report).await,
            Err(error) => {
                let runtime = self.sandboxes.runtime_label(&self.record);
                metrics::counter!("shoal_sandbox_start_failures_total", "runtime" => runtime)
                    .increment(1);
                let reason = FailReason::Create(error.to_string());
                // The caller gets the error. A failed commit does not stop the removal.
                if let Err(error) = self.advance(&Input::Failed(reason)).await {
                    tracing::error!(sandbox.id = %self.record.id, error = %Chain(&error), "a failure cannot be committed");
                }
                self.end(KillReason::Failed).await;
                Err(error)
            }
        }
    }

    /// Starts a run and waits until the daemon inside answers. A daemon in restored memory requires the
    /// token `known` until it gets the sandbox's own; any other daemon has the sandbox's own.
    pub(super) async fn bring_up(
        &self,
        start: Start,
        known: Option<Token>,
    ) -> Result<StartReport, SandboxError> {
        let (sandboxes, record) = (&self.sandboxes, &self.record);
        let spec = &record.spec;
        let driver = sandboxes.parts.drivers.for_start(record, &start)?;
        let run = StartSpec {
            id: record.id.clone(),
            execution: record.execution,
            start,
            runtime: spec.runtime.clone(),
            limits: sandboxes
                .parts
                .access
                .bounds(record.team)
                .grant(spec.resources, spec.cpu_ceiling)?,
            owner: sandboxes.parts.access.owner(record.team),
            egress: spec.network.egress.clone(),
            env: BTreeMap::new(),
            privileged: spec.privileged,
            keep_connections: !spec.privileged && sandboxes.parking_rules(record).is_some(),
            guest_token: sandboxes.parts.access.guest_token(record),
        };
        let create = driver.create(run);
        let create = create.instrument(tracing::debug_span!("driver.create"));
        let mut report = create.await?;
        let started = Instant::now();
        let spec = InitSpec {
            known_token: known,
            ..self.init_spec()
        };
        let init = sandboxes.parts.guest.init(report.address, spec);
        let init = init.instrument(tracing::debug_span!("guest.init"));
        report.envd_version = init.await?;
        report.phases.ready = started.elapsed();
        Ok(report)
    }

    pub(super) fn init_spec(&self) -> InitSpec {
        let (record, spec) = (&self.record, &self.record.spec);
        let own = [
            ("E2B_SANDBOX", "true".to_owned()),
            ("E2B_SANDBOX_ID", record.id.to_string()),
            ("E2B_TEMPLATE_ID", spec.template.to_string()),
            ("E2B_EVENTS_ADDRESS", EVENTS_ADDRESS.to_owned()),
        ];
        let mut env: BTreeMap<String, String> = own
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect();
        // The user's variables override these.
        env.extend(spec.env.clone());
        InitSpec {
            env,
            known_token: Some(self.sandboxes.parts.access.guest_token(record)),
            access_token: self.sandboxes.parts.access.coming_guest_token(record),
            open_inside: !spec.secure,
            memory: spec.resources.memory,
            user: spec.user.clone(),
            workdir: spec.workdir.clone(),
        }
    }

    async fn ready(&mut self, report: StartReport) -> Result<Arc<SandboxRecord>, CreateError> {
        let now = self.sandboxes.parts.clock.now();
        let state = self
            .record
            .state
            .on(&Input::Ready)
            .map_err(SandboxError::from);
        let ready = SandboxRecord {
            report: Some(report),
            started_at: now,
            deadline: now + self.record.spec.lifecycle.timeout,
            ..self
                .record
                .with_state(state.map_err(CreateError::from)?, now)
        };
        if let Err(error) = self.commit(ready).await {
            self.end(KillReason::Failed).await;
            return Err(error.into());
        }
        self.emit(EventKind::Created, BTreeMap::new());
        // A pool member is counted when it is claimed.
        if let Some(report) = &self.record.report
            && self.record.pool_member().is_none()
        {
            count(report);
        }
        Ok(self.record.clone())
    }
}

/// Counts a start and the time of its phases, by runtime, isolation and origin.
pub(super) fn count(report: &StartReport) {
    let labels = [
        ("runtime", report.runtime.to_string()),
        ("isolation", report.isolation.to_string()),
        ("origin", report.origin.to_string()),
    ];
    metrics::counter!("shoal_sandbox_starts_total", &labels).increment(1);
    for (phase, time) in report.phases.named() {
        let mut labels = labels.to_vec();
        labels.push(("phase", phase.to_owned()));
        metrics::histogram!("shoal_sandbox_start_phase_seconds", &labels).record(time);
    }
}
