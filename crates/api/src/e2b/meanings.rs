//! Template names that no build has created: entries of the catalogue, and snapshots. Their
//! sandboxes show the id as their template's, so it is shown as a template.

use std::sync::Arc;

use sha2::{Digest, Sha256};
use shoal_core::auth::Principal;
use shoal_core::clock::Timestamp;
use shoal_core::id::BuildId;
use shoal_core::ports::resolve::{Meaning, Resolved};
use shoal_core::ports::snapshots::SnapshotFilter;
use shoal_core::resources::Resources;
use shoal_core::snapshot::SnapshotRecord;
use shoal_core::template::{TemplateKey, TemplateRef};
use shoal_protocol::ENVD_VERSION;

use super::templates::{Build, TemplateWithBuilds};
use crate::backend::Backend;
use crate::error::ApiError;

/// Resolves `id` as a create does, unless it is a template with builds.
pub(super) fn resolve(
    backend: &Backend,
    principal: &Principal,
    id: &str,
) -> Result<Resolved, ApiError> {
    let missing = || ApiError::not_found(format!("template {id:?} not found"));
    let key: TemplateKey = id.parse().map_err(|_| missing())?;
    let resolved = backend.templates.resolve(principal, Some(&key), None);
    resolved.map_err(|_| missing())
}

/// Shows it as a template with builds.
pub(super) async fn shown(
    backend: &Backend,
    principal: &Principal,
    id: &str,
) -> Result<TemplateWithBuilds, ApiError> {
    let takings = takings(backend, principal, id);
    if let Some(newest) = takings.first() {
        return Ok(of_snapshot(backend, principal, newest, &takings));
    }
    let resolved = resolve(backend, principal, id)?;
    match &resolved.meaning {
        Meaning::Entry { .. } => of_entry(backend, principal, &resolved, id).await,
        Meaning::Template(_) | Meaning::Snapshot(_) | Meaning::Image => {
            Err(ApiError::not_found(format!("template {id:?} not found")))
        }
    }
}

/// The versions of the snapshot with this name, under all its tags, newest first; `None` if it does
/// not exist.
pub(super) fn takings(
    backend: &Backend,
    principal: &Principal,
    id: &str,
) -> Vec<Arc<SnapshotRecord>> {
    let Ok(reference) = id.parse::<TemplateRef>() else {
        return Vec::new();
    };
    let filter = SnapshotFilter {
        source: None,
        named: Some(TemplateRef {
            tag: None,
            ..reference
        }),
    };
    backend.snapshots.list(principal, &filter)
}

fn of_snapshot(
    backend: &Backend,
    principal: &Principal,
    snapshot: &SnapshotRecord,
    takings: &[Arc<SnapshotRecord>],
) -> TemplateWithBuilds {
    let times = || takings.iter().map(|taking| taking.created_at);
    let starts = backend.templates.starts(&snapshot.template);
    let aliases: Vec<String> = snapshot.name.iter().map(ToString::to_string).collect();
    TemplateWithBuilds {
        template_id: snapshot.template.to_string(),
        public: false,
        names: aliases
            .iter()
            .map(|alias| format!("{}/{alias}", principal.slug))
            .collect(),
        aliases,
        created_at: times().min().unwrap_or(snapshot.created_at).to_string(),
        updated_at: times().max().unwrap_or(snapshot.created_at).to_string(),
        last_spawned_at: starts.last.map(|at| at.to_string()),
        spawn_count: starts.count,
        builds: takings
            .iter()
            .map(|taking| build(taking.id.into(), taking.created_at, &taking.spec.resources))
            .collect(),
    }
}

async fn of_entry(
    backend: &Backend,
    principal: &Principal,
    resolved: &Resolved,
    id: &str,
) -> Result<TemplateWithBuilds, ApiError> {
    let missing = |_| ApiError::not_found(format!("template {id:?} not found"));
    let key: TemplateKey = id.parse().map_err(missing)?;
    let explained = backend
        .templates
        .explain(principal, Some(&key), None)
        .await?;
    let at = backend.catalogue.in_force().updated_at;
    let at = at.unwrap_or_else(|| Timestamp::from_unix_seconds(0));
    let starts = backend.templates.starts(&resolved.id);
    let name: Vec<String> = resolved.name.iter().cloned().collect();
    let template_id = resolved.key.clone();
    let template_id = template_id.unwrap_or_else(|| resolved.id.to_string());
    let digest = Sha256::digest(&template_id);
    let entry = BuildId::from_entropy(std::array::from_fn(|n| digest[n]));
    Ok(TemplateWithBuilds {
        template_id,
        public: true,
        names: name.clone(),
        aliases: name,
        created_at: at.to_string(),
        updated_at: at.to_string(),
        last_spawned_at: starts.last.map(|at| at.to_string()),
        spawn_count: starts.count,
        builds: vec![build(entry, at, &explained.merged.resources())],
    })
}

fn build(id: BuildId, at: Timestamp, resources: &Resources) -> Build {
    Build {
        build_id: id.to_string(),
        status: "ready",
        created_at: at.to_string(),
        updated_at: at.to_string(),
        finished_at: Some(at.to_string()),
        cpu_count: resources.cpu.whole(),
        memory_mb: resources.memory.0,
        disk_size_mb: resources.disk.0,
        envd_version: ENVD_VERSION,
    }
}
