//! OpenKruise's metadata keys that resize the processors of a new sandbox in place.

use std::collections::BTreeMap;

use shoal_core::ports::create::{CpuTarget, ResizeCreated};
use shoal_core::quantity;

use crate::error::ApiError;

/// A multiple of the template's processors.
const FACTOR: &str = "e2b.agents.kruise.io/cpu-scale-factor";
/// An absolute amount, in Kubernetes' notation.
const REQUEST: &str = "e2b.agents.kruise.io/cpu-request";
const LIMIT: &str = "e2b.agents.kruise.io/cpu-limit";
/// Whether the create returns before the resize has finished.
const EARLY_RETURN: &str = "e2b.agents.kruise.io/cpu-resize-early-return";

/// Whether a sandbox with these labels was created with a resize.
pub(super) fn is_asked(metadata: &BTreeMap<String, String>) -> bool {
    [FACTOR, REQUEST, LIMIT]
        .iter()
        .any(|key| metadata.contains_key(*key))
}

/// The resize that the labels request, if any.
pub(super) fn asked(
    metadata: &BTreeMap<String, String>,
) -> Result<Option<ResizeCreated>, ApiError> {
    let early_return = match metadata.get(EARLY_RETURN).map(String::as_str) {
        None | Some("false") => false,
        Some("true") => true,
        Some(_) => return Err(bad(EARLY_RETURN, "must be true or false")),
    };
    let absolute = |key: &str| {
        let text = metadata.get(key);
        let read = text.map(|text| {
            quantity::cpu(text).ok_or_else(|| bad(key, "must be a quantity of processors above 0"))
        });
        read.transpose()
    };
    let (request, limit) = (absolute(REQUEST)?, absolute(LIMIT)?);
    if let (Some(request), Some(limit)) = (request, limit)
        && request > limit
    {
        return Err(bad(REQUEST, "must not be above cpu-limit"));
    }
    let factor = metadata.get(FACTOR).map(|text| factor(text)).transpose()?;
    let cpu = match (factor, limit.or(request)) {
        (Some(_), Some(_)) => {
            return Err(bad(
                FACTOR,
                "cannot be combined with cpu-request or cpu-limit",
            ));
        }
        (Some(factor), None) => CpuTarget::Factor(factor),
        (None, Some(_)) => CpuTarget::Absolute { request, limit },
        (None, None) => return Ok(None),
    };
    Ok(Some(ResizeCreated { cpu, early_return }))
}

fn factor(text: &str) -> Result<f64, ApiError> {
    // Only digits and a point: parsing a float would also accept `inf`, `nan` and `1e9`.
    let plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let factor = text.parse::<f64>().ok().filter(|_| plain);
    factor
        .filter(|factor| *factor > 0.0 && factor.is_finite())
        .ok_or_else(|| bad(FACTOR, "must be a decimal number above 0"))
}

fn bad(key: &str, rule: &str) -> ApiError {
    ApiError::invalid(format_args!(
        "Bad extension param: metadata key {key}: {rule}"
    ))
}

impl super::view::Ran {
    /// Whether the requested limits are in effect.
    pub(super) fn resize_of(
        metadata: &BTreeMap<String, String>,
        resizing: bool,
    ) -> Option<&'static str> {
        match (resizing, is_asked(metadata)) {
            (true, _) => Some("in_progress"),
            (false, true) => Some("completed"),
            (false, false) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::response::IntoResponse;
    use shoal_core::resources::MilliCpu;

    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Option<ResizeCreated>, ApiError> {
        let metadata = pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        asked(&metadata.collect())
    }

    #[test]
    fn the_keys_are_read() {
        assert_eq!(read(&[("other", "2")]).unwrap(), None);
        let factor = read(&[(FACTOR, "1.5"), (EARLY_RETURN, "true")]).unwrap();
        let expected = ResizeCreated {
            cpu: CpuTarget::Factor(1.5),
            early_return: true,
        };
        assert_eq!(factor, Some(expected));
        let both = read(&[(REQUEST, "500m"), (LIMIT, "2")]).unwrap().unwrap();
        let (half, two) = (Some(MilliCpu(500)), Some(MilliCpu(2000)));
        let absolute = |request, limit| CpuTarget::Absolute { request, limit };
        assert_eq!(both.cpu, absolute(half, two));
        let one = read(&[(REQUEST, "500m")]).unwrap().unwrap();
        assert_eq!(one.cpu, absolute(half, None));
    }

    #[test]
    fn what_they_cannot_say_names_the_key() {
        for (key, value) in [
            (FACTOR, "NaN"),
            (FACTOR, "inf"),
            (FACTOR, "0"),
            (FACTOR, "0.0"),
            (FACTOR, "-2"),
            (FACTOR, "two"),
            (FACTOR, ""),
            (FACTOR, "1e3"),
            (FACTOR, "1.2.3"),
            (LIMIT, "0"),
            (LIMIT, "-1"),
            (REQUEST, "x"),
            (EARLY_RETURN, "yes"),
        ] {
            let refused = read(&[(key, value)]).unwrap_err();
            assert!(refused.body()["message"].as_str().unwrap().contains(key));
            assert_eq!(refused.into_response().status(), 400, "{key}: {value}");
        }
        assert!(read(&[(FACTOR, "2"), (LIMIT, "2")]).is_err());
        assert!(read(&[(REQUEST, "3"), (LIMIT, "2")]).is_err());
    }
}
