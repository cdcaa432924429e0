//! `shoal crds`: the custom resource definitions.

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use shoal_crds::Conversion;

/// Where the API server finds the conversion webhook, which `shoal operator` serves.
#[derive(Debug, Args)]
pub(crate) struct CrdsArgs {
    /// Namespace of the webhook's service.
    #[arg(long, value_name = "NAME", default_value = "agent-sandbox-system")]
    webhook_namespace: String,
    /// Name of the webhook's service.
    #[arg(
        long,
        value_name = "NAME",
        default_value = "agent-sandbox-webhook-service"
    )]
    webhook_service_name: String,
    /// URL of the webhook, for an operator outside the cluster.
    #[arg(long, value_name = "URL")]
    webhook_url: Option<String>,
}

/// Prints the definitions.
pub(crate) fn print(args: &CrdsArgs) -> ExitCode {
    let conversion = match &args.webhook_url {
        Some(url) => Conversion::Url(url.clone()),
        None => Conversion::Service {
            namespace: args.webhook_namespace.clone(),
            name: args.webhook_service_name.clone(),
        },
    };
    let printed = shoal_crds::yaml(&conversion)
        .map_err(|error| error.to_string())
        .and_then(|text| {
            let mut out = std::io::stdout().lock();
            out.write_all(text.as_bytes())
                .map_err(|error| error.to_string())
        });
    match printed {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("shoal: cannot print the definitions: {error}");
            ExitCode::FAILURE
        }
    }
}
