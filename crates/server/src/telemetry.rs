//! The log.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::config::{Config, LogFormat};

/// Begins to log to standard error.
///
/// # Errors
/// When the filter makes no sense.
pub(crate) fn start(config: &Config) -> anyhow::Result<()> {
    let filter = EnvFilter::builder().parse(&config.log_level)?;
    let registry = tracing_subscriber::registry().with(filter);
    match config.log_format {
        LogFormat::Text => {
            let layer = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
            registry.with(layer).try_init()?;
        }
        LogFormat::Json => {
            let layer = tracing_subscriber::fmt::layer().json().with_writer(std::io::stderr);
            registry.with(layer).try_init()?;
        }
    }
    Ok(())
}
