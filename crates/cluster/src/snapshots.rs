//! Snapshots: Checkpoints of the pods of sandboxes, which the agent of their node carries out.

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
use crate::failure;
use crate::sandboxes::Sandboxes;
use crate::saves::SavedSandbox;

const NAMES: NotServed = NotServed {
    what: "a name or tag for a snapshot",
    instead: "use its id",
};

const FILES: NotServed = NotServed {
    what: "an exported snapshot",
    instead: "keep the Checkpoint",
};

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
            if new.name.is_some() {
                return Err(SandboxError::NotServed(NAMES).into());
            }
            let wanted = Wanted {
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
                && named.is_none_or(|named| record.is_meant_by(named))
        });
        wanted.map(Arc::new).collect()
    }

    fn add_tags<'a>(
        &'a self,
        _: &'a Principal,
        _: &'a TemplateRef,
        _: &'a [String],
    ) -> BoxFuture<'a, Result<SnapshotId, SnapshotError>> {
        Box::pin(std::future::ready(Err(NAMES.into())))
    }

    fn delete<'a>(
        &'a self,
        principal: &'a Principal,
        reference: &'a TemplateRef,
    ) -> BoxFuture<'a, Result<(), SnapshotError>> {
        Box::pin(async move {
            let missing = || SnapshotError::NotFound(reference.clone());
            let namespace = principal.slug.as_str();
            let own = reference.namespace.as_deref();
            if own.is_some_and(|own| own != namespace) {
                return Err(missing());
            }
            let name = reference.name.as_str();
            self.0.look_up_save(namespace, name).await?;
            let found = self.0.saves.find(namespace, name).ok_or_else(missing)?;
            let deleted = self.0.forget_save(found.checkpoint()).await;
            Ok(deleted.map_err(|error| failure::store(&error))?)
        })
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
