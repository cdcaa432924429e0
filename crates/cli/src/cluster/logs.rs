//! `shoal cluster logs`.

use std::io::{self, Write};

use clap::Args;
use futures_util::AsyncReadExt;
use kube::api::LogParams;

use super::api::{Cluster, failure};
use crate::failure::{Failure, Kind};

/// How much is read at once.
const CHUNK: usize = 32 << 10;

#[derive(Debug, Args)]
pub(super) struct LogsArgs {
    /// The sandbox.
    #[arg(value_name = "NAME")]
    name: String,
    /// The container [default: the first].
    #[arg(long, short, value_name = "NAME")]
    container: Option<String>,
    /// Print new lines as they come.
    #[arg(long, short)]
    follow: bool,
    /// Only so many of the last lines.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(i64).range(0..))]
    tail: Option<i64>,
    /// The log of the container before its last restart.
    #[arg(long)]
    previous: bool,
    /// Print the time of each line.
    #[arg(long)]
    timestamps: bool,
}

impl LogsArgs {
    pub(super) async fn run(self, cluster: &Cluster) -> Result<(), Failure> {
        let sandbox = cluster.sandbox(&self.name).await?;
        let container = match self.container {
            Some(container) => Some(container),
            None => super::exec::first_container(cluster, &sandbox).await?,
        };
        let params = LogParams {
            container,
            follow: self.follow,
            tail_lines: self.tail,
            previous: self.previous,
            timestamps: self.timestamps,
            ..LogParams::default()
        };
        let log = cluster.pods().log_stream(&sandbox.pod, &params).await;
        let mut log = std::pin::pin!(log.map_err(failure)?);
        let mut buffer = vec![0; CHUNK];
        let mut out = io::stdout().lock();
        loop {
            let broke =
                |error| Failure::new(Kind::Unreachable, format!("the log broke off: {error}"));
            match log.read(&mut buffer).await.map_err(broke)? {
                0 => return Ok(()),
                read => out.write_all(&buffer[..read])?,
            }
            out.flush()?;
        }
    }
}
