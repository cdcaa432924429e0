//! What clients say of sandboxes in labels and variables: as much of it as may be.

use std::collections::BTreeMap;

use shoal_core::template::RuntimeName;

use crate::error::ApiError;

/// The label that names the OCI runtime.
pub(crate) const RUNTIME_KEY: &str = "shoal/runtime";

/// How much may be said of the whole in labels or variables, in bytes.
const TEXT_MAX: usize = 256 << 10;

/// Refuses more than there may be.
pub(crate) fn check(name: &str, texts: &BTreeMap<String, String>) -> Result<(), ApiError> {
    let bytes: usize = texts
        .iter()
        .map(|(key, value)| key.len() + value.len())
        .sum();
    if bytes > TEXT_MAX {
        return Err(ApiError::invalid(format_args!(
            "`{name}`: at most {TEXT_MAX} bytes"
        )));
    }
    Ok(())
}

/// What no environment can hold is refused here, not met by the first command.
pub(crate) fn check_env(name: &str, env: &BTreeMap<String, String>) -> Result<(), ApiError> {
    check(name, env)?;
    let bad = env
        .iter()
        .find(|(key, value)| key.is_empty() || key.contains(['=', '\0']) || value.contains('\0'));
    match bad {
        Some((key, _)) => Err(ApiError::invalid(format_args!(
            "`{name}`: {key:?} cannot be set"
        ))),
        None => Ok(()),
    }
}

/// The OCI runtime that the labels name.
pub(crate) fn runtime(
    metadata: &BTreeMap<String, String>,
) -> Result<Option<RuntimeName>, ApiError> {
    let named = metadata.get(RUNTIME_KEY).map(|name| name.parse());
    named
        .transpose()
        .map_err(|e| ApiError::invalid(format_args!("`metadata.{RUNTIME_KEY}`: {e}")))
}
