//! Whether the internet is closed to the sandboxes of a namespace whose users ask for that.

use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::{Api, Client};
use serde_json::json;
use shoal_core::ports::NotServed;
use shoal_core::ports::create::CreateError;
use shoal_core::ports::sandboxes::SandboxError;
use shoal_crds::kruise::{NO_INTERNET_POLICY, no_internet_policy};

use crate::failure;

/// Checks that the namespace has the policy that closes the internet. A label alone closes nothing.
///
/// # Errors
/// When it is missing, is another one, or cannot be read.
pub(crate) async fn check_policy(client: &Client, namespace: &str) -> Result<(), CreateError> {
    let api: Api<NetworkPolicy> = Api::namespaced(client.clone(), namespace);
    let found = api.get_opt(NO_INTERNET_POLICY).await;
    let found = found.map_err(|error| CreateError::from(failure::store(&error)))?;
    let closes = found.is_some_and(|policy| json!(policy.spec) == no_internet_policy());
    if closes {
        return Ok(());
    }
    Err(CreateError::Sandbox(SandboxError::NotServed(NotServed {
        what: "a sandbox without internet access in a namespace without the NetworkPolicy shoal-no-internet",
        instead: "start `shoal operator`, which makes it",
    })))
}
