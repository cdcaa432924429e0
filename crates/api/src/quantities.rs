//! Processors and memory in Kubernetes' notation, for every API.

use serde_json::Value;
use shoal_core::quantity;
use shoal_core::resources::{Mib, MilliCpu, RequestedResources};

use crate::error::ApiError;

/// The limits that a create request sets: `[cpu, cpu_limit]` and `[memory, memory_limit]`. Only the
/// limit of a sandbox is enforced, so the limit wins over the request.
pub(crate) fn limits(
    [least_cpu, most_cpu]: [Option<Value>; 2],
    [least_memory, most_memory]: [Option<Value>; 2],
) -> Result<RequestedResources, ApiError> {
    Ok(RequestedResources {
        cpu: larger::<MilliCpu>(
            ("cpu", cpu("cpu", said(least_cpu))?),
            cpu("cpu_limit", said(most_cpu))?,
        )?,
        memory: larger::<Mib>(
            ("memory", memory("memory", said(least_memory))?),
            memory("memory_limit", said(most_memory))?,
        )?,
        ..RequestedResources::default()
    })
}

/// A quantity as it was sent; an empty text counts as not set.
fn said(value: Option<Value>) -> Option<Value> {
    value.filter(|value| value.as_str() != Some(""))
}

/// The limit, or the request if there is no limit.
fn larger<T: PartialOrd>(
    (name, least): (&str, Option<T>),
    most: Option<T>,
) -> Result<Option<T>, ApiError> {
    match (least, most) {
        (Some(least), Some(most)) if least > most => Err(ApiError::invalid(format_args!(
            "`{name}`: is more than `{name}_limit`"
        ))),
        (least, most) => Ok(most.or(least)),
    }
}

/// Parses processors.
pub(crate) fn cpu(name: &str, value: Option<Value>) -> Result<Option<MilliCpu>, ApiError> {
    read(name, value, quantity::cpu)
}

/// Parses memory. A bare number is mebibytes, as everywhere in this API.
pub(crate) fn memory(name: &str, value: Option<Value>) -> Result<Option<Mib>, ApiError> {
    read(name, value, |text| {
        let bare = text.bytes().all(|b| b.is_ascii_digit());
        quantity::memory(&if bare {
            format!("{text}Mi")
        } else {
            text.to_owned()
        })
    })
}

fn read<T>(
    name: &str,
    value: Option<Value>,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>, ApiError> {
    let text = match value {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::String(text)) => text,
        Some(other) => other.to_string(),
    };
    match parse(&text) {
        Some(read) => Ok(Some(read)),
        None => Err(ApiError::invalid(format_args!(
            "`{name}`: {} is no quantity above 0",
            text.chars().take(64).collect::<String>()
        ))),
    }
}
