//! Conversion between v1alpha1 and v1beta1.
//!
//! The storage version is v1beta1. An object that was written in v1alpha1 carries that form in an
//! annotation, by which controllers also recognise the version. What v1alpha1 cannot hold is
//! in an annotation of the v1alpha1 form. So a round trip loses nothing, in either direction.

mod claim;
mod kept;
mod pool;
mod sandbox;
mod template;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::names::annotation::{ALPHA_CLAIM, ALPHA_POOL, ALPHA_SANDBOX, ALPHA_TEMPLATE};
use crate::names::{EXTENSIONS_GROUP, GROUP};

pub use claim::{
    Requested, requested, to_v1alpha1 as claim_to_v1alpha1, to_v1beta1 as claim_to_v1beta1,
};
pub use pool::{to_v1alpha1 as pool_to_v1alpha1, to_v1beta1 as pool_to_v1beta1};
pub use sandbox::{to_v1alpha1 as sandbox_to_v1alpha1, to_v1beta1 as sandbox_to_v1beta1};
pub use template::{to_v1alpha1 as template_to_v1alpha1, to_v1beta1 as template_to_v1beta1};

/// Why an object cannot be converted.
#[derive(Debug, thiserror::Error)]
pub enum ConversionError {
    /// The object has no `kind` or `apiVersion`, or they are unknown here.
    #[error(
        "cannot convert {kind} from {from} to {to}: only kinds of {GROUP} and {EXTENSIONS_GROUP} in v1alpha1 and v1beta1"
    )]
    Unknown {
        /// The object's kind.
        kind: String,
        /// Its `apiVersion`.
        from: String,
        /// The desired `apiVersion`.
        to: String,
    },
    /// The object is not valid in its own version, or cannot be written as JSON.
    #[error("invalid {kind}: {source}")]
    Invalid {
        /// The object's kind.
        kind: &'static str,
        /// The JSON error.
        source: serde_json::Error,
    },
    /// The annotation with the policy for volume claims has an unknown value.
    #[error("invalid annotation {key}: {value:?} is not Allowed, Overrides or Disallowed")]
    Policy {
        /// The annotation.
        key: &'static str,
        /// Its value.
        value: String,
    },
}

/// Whether the object, in v1beta1, was last written in v1alpha1.
#[must_use]
pub fn written_in_v1alpha1(metadata: &ObjectMeta) -> bool {
    metadata.annotations.as_ref().is_some_and(|annotations| {
        [ALPHA_SANDBOX, ALPHA_CLAIM, ALPHA_TEMPLATE, ALPHA_POOL]
            .iter()
            .any(|key| annotations.contains_key(*key))
    })
}

/// Converts an object to the version `desired`, as a conversion webhook is asked to.
///
/// # Errors
/// When the kind or a version is unknown, or the object is invalid in its version.
pub fn convert(object: Value, desired: &str) -> Result<Value, ConversionError> {
    let text = |field: &str| {
        object
            .get(field)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let (kind, from) = (text("kind"), text("apiVersion"));
    let group = if kind == "Sandbox" {
        GROUP
    } else {
        EXTENSIONS_GROUP
    };
    let version = |api_version: &str| match api_version.split_once('/') {
        Some((of, "v1alpha1")) if of == group => Some(false),
        Some((of, "v1beta1")) if of == group => Some(true),
        _ => None,
    };
    let (Some(from_beta), Some(to_beta)) = (version(&from), version(desired)) else {
        return Err(ConversionError::Unknown {
            kind,
            from,
            to: desired.to_owned(),
        });
    };
    if from_beta == to_beta {
        return Ok(object);
    }
    match (kind.as_str(), to_beta) {
        ("Sandbox", true) => through(object, sandbox::to_v1beta1),
        ("Sandbox", false) => through(object, sandbox::to_v1alpha1),
        ("SandboxClaim", true) => through(object, claim::to_v1beta1),
        ("SandboxClaim", false) => through(object, claim::to_v1alpha1),
        ("SandboxTemplate", true) => through(object, template::to_v1beta1),
        ("SandboxTemplate", false) => through(object, template::to_v1alpha1),
        ("SandboxWarmPool", true) => through(object, pool::to_v1beta1),
        ("SandboxWarmPool", false) => through(object, pool::to_v1alpha1),
        _ => Err(ConversionError::Unknown {
            kind,
            from,
            to: desired.to_owned(),
        }),
    }
}

fn through<A, B>(
    object: Value,
    convert: impl FnOnce(A) -> Result<B, ConversionError>,
) -> Result<Value, ConversionError>
where
    A: DeserializeOwned + k8s_openapi::Resource,
    B: serde::Serialize,
{
    let invalid = |source| ConversionError::Invalid {
        kind: A::KIND,
        source,
    };
    let read: A = serde_json::from_value(object).map_err(invalid)?;
    serde_json::to_value(convert(read)?).map_err(invalid)
}

#[cfg(test)]
mod tests;
