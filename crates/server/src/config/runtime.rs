//! The runtimes of sandboxes.

use std::path::PathBuf;

use shoal_engine::AllowedRuntimes;
use shoal_oci::RuntimeKind;

use super::read::{Reader, items, positive};

/// The settings `runtime.*`, `envd` and `starts`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RuntimeSettings {
    pub(crate) default: RuntimeKind,
    pub(crate) allowed: AllowedRuntimes,
    pub(crate) runsc: PathBuf,
    pub(crate) runc: PathBuf,
    pub(crate) platform: String,
    pub(crate) envd: Option<PathBuf>,
    /// The maximum number of parallel starts.
    pub(crate) starts: Option<usize>,
}

pub(super) fn read(reader: &mut Reader<'_>) -> Option<RuntimeSettings> {
    let default = reader.with("runtime.default", "runsc or runc", |text| match text {
        "runsc" => Some(RuntimeKind::Runsc),
        "runc" => Some(RuntimeKind::Runc),
        _ => None,
    });
    let allowed = reader.optional(
        "runtime.allowed",
        "runsc, runc, both separated by a comma, or any",
        parse_allowed,
    );
    let runsc = reader.parse("runtime.runsc", "a path");
    let runc = reader.parse("runtime.runc", "a path");
    let platform = reader.with("runtime.platform", "systrap, ptrace or kvm", |text| {
        matches!(text, "systrap" | "ptrace" | "kvm").then(|| text.to_owned())
    });
    let envd = reader.optional("envd", "a path", |text| Some(text.into()));
    let starts = reader.optional("starts", "a number above zero", positive);
    Some(RuntimeSettings {
        default: default?,
        allowed: allowed?.unwrap_or_default(),
        runsc: runsc?,
        runc: runc?,
        platform: platform?,
        envd: envd?,
        starts: starts?,
    })
}

fn parse_allowed(text: &str) -> Option<AllowedRuntimes> {
    if text == "any" {
        return Some(AllowedRuntimes::Any);
    }
    let known = items(text).map(|name| match name {
        "runsc" | "runc" => name.parse().ok(),
        _ => None,
    });
    known.collect::<Option<_>>().map(AllowedRuntimes::Named)
}
