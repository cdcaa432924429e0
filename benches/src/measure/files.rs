//! Uploads and downloads of large files.

use std::time::Instant;

use http::Method;

use crate::api::{Api, millis};
use crate::http::Client;
use crate::report::{Promise, Report, Row, Unit};
use crate::server::Server;
use crate::stats::Samples;

const SIZE: u64 = 256 << 20;

/// Uploads and downloads in turns with nginx, which serves files on port `nginx`.
pub(crate) async fn measure(
    server: &Server,
    runtime: &str,
    nginx: u16,
    rounds: usize,
    report: &mut Report,
) -> anyhow::Result<()> {
    let api = Api::of(server)?;
    let sandbox = api.create(runtime).await?;
    let headers = sandbox.headers(shoal_protocol::ENVD_PORT);
    let direct = format!(
        "http://{}:{}",
        server.address(&sandbox.id)?,
        shoal_protocol::ENVD_PORT
    );
    let ways = [server.url(), direct]
        .map(|origin| format!("{origin}/files?path=/home/user/large&username=user"));
    let put = format!("http://127.0.0.1:{nginx}/large");
    let mut up: [Samples; 3] = Default::default();
    let mut down: [Samples; 3] = Default::default();
    for round in 0..=rounds {
        for (way, url) in [&ways[0], &put, &ways[1]].into_iter().enumerate() {
            let (to, from) = exchange(url, &headers, way == 1).await?;
            // Round 0 warms the page cache.
            if round > 0 {
                up[way].push(to);
                down[way].push(from);
            }
        }
    }
    api.kill(&sandbox).await?;
    for (what, [ours, nginx, direct]) in [("upload", up), ("download", down)] {
        let what = format!("{what} of 256 MiB ({runtime})");
        report.add(
            Row::new(&what, Unit::Millis, ours.clone())
                .beside("nginx", nginx)
                .promised(Promise::Ratio(1.5)),
        );
        report.add(
            Row::new(&what, Unit::Millis, ours)
                .beside("Shoal's daemon without the gateway", direct),
        );
    }
    Ok(())
}

/// One upload and one download on a new connection, in milliseconds.
async fn exchange(
    url: &str,
    headers: &[(String, String)],
    is_nginx: bool,
) -> anyhow::Result<(f64, f64)> {
    let client = Client::new();
    let mut headers: Vec<(&str, &str)> = headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    let method = if is_nginx { Method::PUT } else { Method::POST };
    headers.push(("content-type", "application/octet-stream"));
    let begun = Instant::now();
    client.upload(method, url, &headers, SIZE).await?;
    let up = millis(begun.elapsed());
    let begun = Instant::now();
    let size = client.download(url, &headers).await?;
    let down = millis(begun.elapsed());
    anyhow::ensure!(size == SIZE, "{url} gave {size} bytes");
    // Flush, so that the next turn does not wait for this one's writes.
    nix::unistd::sync();
    Ok((up, down))
}

/// The note about this group in BENCHMARKS.md.
pub(crate) const NOTE: &str = "**upload and download**: one request with an `octet-stream` body \
to `/files` through the gateway, and back. Compared with nginx (`PUT` by `dav_methods`, and \
`sendfile`), with the same client over loopback. Both write to btrfs in a preallocated file, \
mounted with the same options; Shoal's has quotas. Neither waits for the disk; `sync` runs \
between turns. The second row of each is the same request sent directly to the daemon.";
