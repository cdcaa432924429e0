//! Waiting until nothing goes on in a sandbox.

use std::sync::Arc;
use std::time::{Duration, Instant};

use shoal_core::driver::DriverError;
use shoal_core::id::SandboxId;
use shoal_node::blocking;

use super::{Shared, failed};

/// How long its processor time is watched before it is called quiet.
const WATCHED: Duration = Duration::from_millis(200);

/// How much of that it may use: gVisor's own timers, and programs that look around now and then.
const LITTLE: Duration = Duration::from_millis(10);

pub(super) async fn until_quiet(
    shared: Arc<Shared>,
    id: SandboxId,
    within: Duration,
) -> Result<bool, DriverError> {
    let end = Instant::now() + within;
    let used = async || {
        let known = shared.live.lock().contains_key(&id);
        if !known {
            return Err(DriverError::NotFound(id.clone()));
        }
        let group = shared.group(&id);
        let used = blocking(move || group.cpu_time()).await;
        used.map_err(failed("read counters"))
    };
    let mut before = used().await?;
    loop {
        tokio::time::sleep(WATCHED).await;
        let now = used().await?;
        if now.saturating_sub(before) < LITTLE {
            return Ok(true);
        }
        if Instant::now() >= end {
            return Ok(false);
        }
        before = now;
    }
}
