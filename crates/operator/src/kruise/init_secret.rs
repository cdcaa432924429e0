//! The secret from which sandboxes have their passes, shared with the programs that claim them.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use shoal_protocol::pass::{InitSecret, SECRET, SECRET_KEY, SECRET_NAME};

use crate::failure::is_conflict;

/// Why there is no secret.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InitSecretError {
    /// The API server refused to show or to store it.
    #[error(transparent)]
    Api(#[from] kube::Error),
    /// Another client has written other data there.
    #[error(
        "it has no {SECRET} bytes under {SECRET_KEY:?}; delete it, and the pods that wait in pools"
    )]
    Unusable,
    /// The system has no random bytes.
    #[error("no random bytes: {0}")]
    NoEntropy(#[from] getrandom::Error),
}

/// The secret of a namespace. Makes one where there is none.
///
/// # Errors
/// See [`InitSecretError`].
pub(crate) async fn ensure(client: Client, namespace: &str) -> Result<InitSecret, InitSecretError> {
    let api: Api<Secret> = Api::namespaced(client, namespace);
    loop {
        if let Some(found) = api.get_opt(SECRET_NAME).await? {
            return read(&found).ok_or(InitSecretError::Unusable);
        }
        let mut bytes = [0; SECRET];
        getrandom::fill(&mut bytes)?;
        match api.create(&PostParams::default(), &write(&bytes)).await {
            Ok(_) => return Ok(InitSecret::new(bytes)),
            // Another replica was faster: use its secret.
            Err(error) if is_conflict(&error) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn read(secret: &Secret) -> Option<InitSecret> {
    InitSecret::from_slice(&secret.data.as_ref()?.get(SECRET_KEY)?.0)
}

fn write(bytes: &[u8]) -> Secret {
    Secret {
        metadata: ObjectMeta {
            name: Some(SECRET_NAME.to_owned()),
            ..ObjectMeta::default()
        },
        data: Some(BTreeMap::from([(
            SECRET_KEY.to_owned(),
            ByteString(bytes.to_vec()),
        )])),
        ..Secret::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_can_be_read() {
        let bytes = [9; SECRET];
        assert_eq!(read(&write(&bytes)), Some(InitSecret::new(bytes)));
        assert_eq!(read(&write(&bytes[1..])), None);
        assert_eq!(read(&Secret::default()), None);
    }
}
