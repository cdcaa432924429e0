//! Processors and memory as Kubernetes writes them, in every dialect.

use serde_json::Value;
use shoal_core::quantity;
use shoal_core::resources::{AskedResources, Mib, MilliCpu};

use crate::error::ApiError;

/// What a create asks for over what its template says, by what it is called in every dialect.
#[derive(Debug, Clone, Default)]
pub(crate) struct AskedQuantities {
    /// `cpu`.
    pub(crate) cpu: Option<Value>,
    /// `cpu_limit`.
    pub(crate) cpu_limit: Option<Value>,
    /// `memory`.
    pub(crate) memory: Option<Value>,
    /// `memory_limit`.
    pub(crate) memory_limit: Option<Value>,
}

impl AskedQuantities {
    /// The limits. What a sandbox is given is bounded by its limits alone, so those count where both
    /// are said.
    pub(crate) fn read(self) -> Result<AskedResources, ApiError> {
        let cpu = larger::<MilliCpu>(
            ("cpu", cpu("cpu", said(self.cpu))?),
            cpu("cpu_limit", said(self.cpu_limit))?,
        )?;
        let memory = larger::<Mib>(
            ("memory", memory("memory", said(self.memory))?),
            memory("memory_limit", said(self.memory_limit))?,
        )?;
        Ok(AskedResources {
            cpu,
            memory,
            ..AskedResources::default()
        })
    }
}

/// A quantity as it was sent; an empty text says nothing.
fn said(value: Option<Value>) -> Option<Value> {
    value.filter(|value| value.as_str() != Some(""))
}

/// The limit, or what is asked for at least where there is none.
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

/// Reads processors.
pub(crate) fn cpu(name: &str, value: Option<Value>) -> Result<Option<MilliCpu>, ApiError> {
    read(name, value, quantity::cpu)
}

/// Reads memory. A bare number is mebibytes, as everywhere in this API.
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
