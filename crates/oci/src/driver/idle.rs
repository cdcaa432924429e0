//! Waiting until the programs of a sandbox are idle.

use std::sync::Arc;
use std::time::{Duration, Instant};

use shoal_core::driver::DriverError;
use shoal_core::id::SandboxId;
use shoal_node::blocking;

use super::{Shared, failed};

/// The interval over which processor time is measured.
const INTERVAL: Duration = Duration::from_millis(200);

/// The most processor time of an idle sandbox in one interval. It covers gVisor's own timers and
/// programs that poll now and then.
const IDLE_MAX: Duration = Duration::from_millis(10);

pub(super) async fn wait_idle(
    shared: Arc<Shared>,
    id: SandboxId,
    timeout: Duration,
) -> Result<bool, DriverError> {
    let end = Instant::now() + timeout;
    let used = async || {
        shared.must_live(&id)?;
        let group = shared.group(&id);
        let used = blocking(move || group.cpu_time()).await;
        used.map_err(failed("read counters"))
    };
    let mut before = used().await?;
    loop {
        tokio::time::sleep(INTERVAL).await;
        let now = used().await?;
        if now.saturating_sub(before) < IDLE_MAX {
            return Ok(true);
        }
        if Instant::now() >= end {
            return Ok(false);
        }
        before = now;
    }
}
