//! Object stores of clouds, by URL.
//!
//! Credentials, regions and endpoints come from the environment, under the names that the clouds' own tools use
//! (`AWS_…`, `GOOGLE_…`, `AZURE_…`).

use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::path::Path as Key;
use object_store::prefix::PrefixStore;
use object_store::{ClientConfigKey, ObjectStore, RetryConfig};
use shoal_core::store::StoreError;

use crate::failed;

/// How long a connection may take.
const CONNECT: &str = "5s";

/// How often a request is tried again, and how long that may take. Calls of the API wait for it.
const RETRIES: usize = 3;
const RETRIED: Duration = Duration::from_secs(20);

/// The store that a URL names.
///
/// # Errors
/// When the URL names none, or the environment lacks what the store needs.
pub(crate) fn open(url: &str) -> Result<Arc<dyn ObjectStore>, StoreError> {
    let unknown = || {
        StoreError::failed(format_args!(
            "contents of session files: {url} is no URL like s3://bucket/prefix, gs://bucket/prefix or az://container/prefix"
        ))
    };
    let (scheme, rest) = url.split_once("://").ok_or_else(unknown)?;
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    if bucket.is_empty() {
        return Err(unknown());
    }
    let prefix = Key::parse(prefix).map_err(failed)?;
    let retry = RetryConfig {
        max_retries: RETRIES,
        retry_timeout: RETRIED,
        ..RetryConfig::default()
    };
    let connect = ClientConfigKey::ConnectTimeout;
    match scheme {
        "s3" => {
            let store = AmazonS3Builder::from_env()
                .with_url(url)
                .with_config(AmazonS3ConfigKey::Client(connect), CONNECT)
                .with_retry(retry);
            Ok(below(store.build().map_err(failed)?, prefix))
        }
        "gs" => {
            let store = GoogleCloudStorageBuilder::from_env()
                .with_url(url)
                .with_config(GoogleConfigKey::Client(connect), CONNECT)
                .with_retry(retry);
            Ok(below(store.build().map_err(failed)?, prefix))
        }
        "az" => {
            let store = MicrosoftAzureBuilder::from_env()
                .with_url(url)
                .with_config(AzureConfigKey::Client(connect), CONNECT)
                .with_retry(retry);
            Ok(below(store.build().map_err(failed)?, prefix))
        }
        _ => Err(unknown()),
    }
}

fn below(store: impl ObjectStore, prefix: Key) -> Arc<dyn ObjectStore> {
    if prefix.as_ref().is_empty() {
        return Arc::new(store);
    }
    Arc::new(PrefixStore::new(store, prefix))
}
