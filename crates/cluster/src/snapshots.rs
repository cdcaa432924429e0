//! Snapshots: Checkpoints of the pods of sandboxes, which the agent of their node carries out.

mod name;
mod take;

use std::path::PathBuf;
use std::sync::Arc;

use shoal_core::BoxFuture;
use shoal_core::auth::{Principal, SandboxPermit};
use shoal_core::id::SnapshotId;
use shoal_core::ports::NotServed;
use shoal_core::ports::sandboxes::SandboxError;
use shoal_core::ports::snapshots::{
    NewSnapshot, SnapshotError, SnapshotFilter, Snapshots as SnapshotsPort, TakeError,
};
use shoal_core::snapshot::SnapshotRecord;
use shoal_core::store::StoreError;
use shoal_core::template::TemplateRef;

pub(crate) use self::take::Wanted;
use crate::sandboxes::Sandboxes;
use crate::saves::SavedSandbox;

const FILES: NotServed = NotServed {
    what: "an exported snapshot",
    instead: "keep the Checkpoint",
};

/// Whether a snapshot is meant by a reference of a filter; without a tag, that is any of them.
fn is_listed_as(record: &SnapshotRecord, principal: &Principal, named: &TemplateRef) -> bool {
    let tag = named.tag.clone().unwrap_or_else(|| record.tag.clone());
    let any_tag = TemplateRef {
        tag: Some(tag),
        ..named.clone()
    };
    let of_team = named.namespace.as_deref();
    of_team.is_none_or(|of| of == principal.slug.as_str())
        && (record.is_meant_by(named) || record.is_meant_by(&any_tag))
}

/// The port.
pub(crate) struct Port(pub(crate) Arc<Sandboxes>);

impl SnapshotsPort for Port {
    fn take<'a>(
        &'a self,
        principal: &'a Principal,
        permit: &'a SandboxPermit,
        new: NewSnapshot,
    ) -> BoxFuture<'a, Result<SnapshotRecord, TakeError>> {
        Box::pin(async move {
            let key = self.0.key_of(permit)?;
            if let Some(name) = &new.name {
                self.0.check_name(principal, name)?;
            }
            let wanted = Wanted {
                name: new.name,
                contents: new.contents,
                keep_running: new.keep_running,
                ttl: new.ttl,
                wait: new.wait,
                of_fork: false,
            };
            let (sandboxes, principal) = (self.0.clone(), principal.clone());
            let saved =
                tokio::spawn(async move { sandboxes.save(&principal, &key, &wanted).await });
            let saved = saved.await.map_err(StoreError::failed);
            Ok(saved.map_err(SandboxError::Store)??.record())
        })
    }

    fn list(&self, principal: &Principal, filter: &SnapshotFilter) -> Vec<Arc<SnapshotRecord>> {
        let all = self.0.saves.list(principal.slug.as_str());
        let records = all.iter().map(SavedSandbox::record);
        let wanted = records.filter(|record| {
            let source = filter.source.as_ref();
            let named = filter.named.as_ref();
            source.is_none_or(|source| record.source == *source)
                && named.is_none_or(|named| is_listed_as(record, principal, named))
        });
        wanted.map(Arc::new).collect()
    }

    fn add_tags<'a>(
        &'a self,
        principal: &'a Principal,
        reference: &'a TemplateRef,
        tags: &'a [String],
    ) -> BoxFuture<'a, Result<SnapshotId, SnapshotError>> {
        let (sandboxes, principal) = (self.0.clone(), principal.clone());
        let (reference, tags) = (reference.clone(), tags.to_vec());
        Box::pin(async move { sandboxes.add_tags(&principal, &reference, &tags).await })
    }

    fn delete<'a>(
        &'a self,
        principal: &'a Principal,
        reference: &'a TemplateRef,
    ) -> BoxFuture<'a, Result<(), SnapshotError>> {
        Box::pin(self.0.delete_snapshot(principal, reference))
    }

    fn export<'a>(
        &'a self,
        _: &'a Principal,
        _: &'a TemplateRef,
        _: PathBuf,
    ) -> BoxFuture<'a, Result<u64, SnapshotError>> {
        Box::pin(std::future::ready(Err(FILES.into())))
    }

    fn import<'a>(
        &'a self,
        _: &'a Principal,
        _: PathBuf,
        _: Option<TemplateRef>,
        _: bool,
    ) -> BoxFuture<'a, Result<SnapshotRecord, SnapshotError>> {
        Box::pin(std::future::ready(Err(FILES.into())))
    }
}
