//! Limits on labels and variables from clients.

use std::collections::BTreeMap;

use shoal_core::parking::ParkingLabel;
use shoal_core::sandbox::PARKING_KEY;
use shoal_core::template::RuntimeName;

use crate::error::ApiError;

/// The label that names the OCI runtime.
pub(crate) const RUNTIME_KEY: &str = "shoal/runtime";

/// The total size of labels or variables, in bytes.
const TEXT_MAX: usize = 256 << 10;

/// Refuses texts above the limit.
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

/// Refuses variables that no environment can contain, before the first command fails.
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

/// Refuses labels that Shoal reads and cannot understand, and labels above the limit.
pub(crate) fn check_metadata(metadata: &BTreeMap<String, String>) -> Result<(), ApiError> {
    check("metadata", metadata)?;
    let parking = metadata
        .get(PARKING_KEY)
        .map(|text| text.parse::<ParkingLabel>());
    match parking {
        Some(Err(error)) => Err(ApiError::invalid(format_args!(
            "`metadata.{PARKING_KEY}`: {error}"
        ))),
        _ => Ok(()),
    }
}

/// The OCI runtime named in the labels.
pub(crate) fn runtime(
    metadata: &BTreeMap<String, String>,
) -> Result<Option<RuntimeName>, ApiError> {
    let named = metadata.get(RUNTIME_KEY).map(|name| name.parse());
    named
        .transpose()
        .map_err(|e| ApiError::invalid(format_args!("`metadata.{RUNTIME_KEY}`: {e}")))
}
