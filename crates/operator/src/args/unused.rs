//! Flags of the reference controller that change nothing here, so that its manifests start this one.

use clap::{ArgAction, Args};

/// Accepted and not used. Their values are not looked at.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Accepted for manifests of the reference, without effect")]
#[rustfmt::skip]
pub struct UnusedArgs {
    /// Requests are not limited here.
    #[arg(long, value_name = "COUNT", allow_hyphen_values = true)]
    kube_api_qps: Option<String>,
    /// Requests are not limited here.
    #[arg(long, value_name = "COUNT", allow_hyphen_values = true)]
    kube_api_burst: Option<String>,
    /// `OTEL_EXPORTER_OTLP_ENDPOINT` turns traces on.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    enable_tracing: Option<String>,
    /// There is no profiler.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    enable_pprof: Option<String>,
    /// There is no profiler.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    enable_pprof_debug: Option<String>,
    /// There is no profiler.
    #[arg(long, value_name = "COUNT", allow_hyphen_values = true)]
    pprof_block_profile_rate: Option<String>,
    /// There is no profiler.
    #[arg(long, value_name = "COUNT", allow_hyphen_values = true)]
    pprof_mutex_profile_fraction: Option<String>,
    /// Members that cannot be scheduled are looked at once a minute.
    #[arg(long, value_name = "TIME")]
    sandbox_warm_pool_unschedulable_recheck_interval: Option<String>,
    /// All requests share connections.
    #[arg(long, value_name = "COUNT")]
    api_connections: Option<String>,
    /// All requests share connections.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    separate_watch_connection: Option<String>,
    /// Caches hold all objects that the controllers read.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    cache_label_selectors: Option<String>,
    /// Such annotations are not written.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    disable_claim_observability_annotations: Option<String>,
    /// A status that only reports progress waits for up to a second.
    #[arg(long, value_name = "TIME")]
    sandbox_write_behind_window: Option<String>,
    /// Certificates are kept in a Secret.
    #[arg(long, value_name = "DIR")]
    webhook_cert_dir: Option<String>,
    /// Certificates are kept in a Secret.
    #[arg(long, value_name = "NAME")]
    webhook_cert_name: Option<String>,
    /// Certificates are kept in a Secret.
    #[arg(long, value_name = "NAME")]
    webhook_key_name: Option<String>,
    /// The operator always does.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    manage_webhook_certs: Option<String>,
    /// `--log-level` is this one's.
    #[arg(long, value_name = "LEVEL")]
    zap_log_level: Option<String>,
    /// There is one form.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    zap_devel: Option<String>,
    /// There is one form.
    #[arg(long, value_name = "FORM")]
    zap_encoder: Option<String>,
    /// There are no stack traces.
    #[arg(long, value_name = "LEVEL")]
    zap_stacktrace_level: Option<String>,
    /// There is one form.
    #[arg(long, value_name = "FORM")]
    zap_time_encoding: Option<String>,
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use crate::OperatorArgs;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        args: OperatorArgs,
    }

    #[test]
    fn flags_of_the_references_manifests_are_accepted() {
        let read = |flags: &[&str]| {
            let read = Program::try_parse_from(["operator"].iter().chain(flags));
            read.map(|program| program.args)
        };
        let args = read(&[
            "--extensions",
            "--sandbox-concurrent-workers=10",
            "--kube-api-qps=50",
            "--kube-api-burst",
            "100",
            "--enable-tracing=false",
            "--enable-pprof",
            "--pprof-block-profile-rate=1000000",
            "--zap-log-level=debug",
            "--sandbox-warm-pool-readiness-grace-period=5m0s",
            "--sandbox-warm-pool-max-refill-rate=20",
            "--leader-elect=true",
            "--manage-webhook-certs=true",
            "--sandbox-write-behind-window=0",
        ]);
        let args = args.unwrap_or_else(|error| panic!("{error}"));
        assert!(args.extensions && args.sandbox_concurrent_workers == 10);
        assert!(read(&["--kube-api-qps=-1"]).is_ok());
        for wrong in [
            "--sandbox-warm-pool-max-refill-rate=NaN",
            "--sandbox-concurrent-workers=0",
            "--unknown",
        ] {
            assert!(read(&[wrong]).is_err(), "{wrong}");
        }
    }
}
