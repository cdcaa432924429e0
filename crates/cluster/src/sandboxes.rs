//! Sandboxes: the port, over custom resources.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp as Time;
use kube::api::ListParams;
use kube::{Api, Client};
use shoal_core::BoxFuture;
use shoal_core::auth::{Principal, SandboxPermit};
use shoal_core::id::SandboxId;
use shoal_core::network::{Egress, InvalidRule};
use shoal_core::ports::NotServed;
use shoal_core::ports::backing::BackingObject;
use shoal_core::ports::create::{CreateError, Created, Idempotency, SandboxRequest};
use shoal_core::ports::list::{ListFilter, Page};
use shoal_core::ports::sandboxes::{Connected, Resize, SandboxError, Sandboxes as SandboxesPort};
use shoal_core::sandbox::{NAME_KEY, SandboxRecord};
use shoal_core::snapshot::Contents;
use shoal_core::state::State;
use shoal_core::store::StoreError;
use shoal_crds::kruise::names::label;
use shoal_crds::kruise::{Checkpoint, Sandbox};

use crate::claim::{Claims, pool_index};
use crate::identity::{self, Key, key, sandbox_id};
use crate::initialize::Passes;
use crate::keys::Keys;
use crate::nodes::NodeAddresses;
use crate::pools::PoolHistory;
use crate::quotas::Quotas;
use crate::saves::Saves;
use crate::templates::Templates;
use crate::watched::Watched;
use crate::{failure, objects, record};

/// The sandboxes of all namespaces.
pub(crate) struct Sandboxes {
    pub(crate) client: Client,
    pub(crate) watched: Arc<Watched<Sandbox>>,
    pub(crate) templates: Arc<Templates>,
    pub(crate) saves: Arc<Saves>,
    pub(crate) claims: Claims,
    pub(crate) passes: Passes,
    pub(crate) keys: Arc<Keys>,
    pub(crate) quotas: Arc<Quotas>,
    pub(crate) nodes: Arc<NodeAddresses>,
    pub(crate) pools: PoolHistory,
    pub(crate) max_timeout: Duration,
}

/// The other names of a sandbox: its id, and its pool while it waits there.
pub(crate) fn index(sandbox: &Sandbox) -> Vec<String> {
    let mut names = vec![id_index(&sandbox_id(sandbox))];
    if let Some(pool) = sandbox.pool() {
        let (namespace, _) = key(&sandbox.metadata);
        names.push(pool_index(&namespace, &pool.name));
    }
    names
}

/// Sandboxes of one template share its pod.
pub(crate) fn share(sandbox: &mut Sandbox) {
    if let Some(template) = &mut sandbox.spec.template {
        template.spec.share();
    }
}

/// The other name that is an id.
pub(crate) fn id_index(id: &SandboxId) -> String {
    format!("id/{id}")
}

impl Sandboxes {
    /// The live sandbox with this id that its users may see.
    pub(crate) fn visible(&self, id: &SandboxId) -> Option<Arc<Sandbox>> {
        let found = self.watched.find(&id_index(id))?;
        record::is_claimed(&found).then_some(found)
    }

    /// The same, asking the API server for one that the watch has not shown yet: another replica may have
    /// answered its create a moment ago.
    async fn look_up(
        &self,
        principal: &Principal,
        id: &SandboxId,
    ) -> Result<Option<Arc<Sandbox>>, StoreError> {
        if let Some(known) = self.watched.find(&id_index(id)) {
            return Ok(Some(known).filter(|sandbox| record::is_claimed(sandbox)));
        }
        let api: Api<Sandbox> = Api::namespaced(self.client.clone(), principal.slug.as_str());
        let labelled = ListParams::default().labels(&format!("{}={id}", label::SANDBOX_ID));
        let found = api.list(&labelled).await;
        let found = found.map_err(|error| failure::store(&error))?;
        let mut found = found.items.into_iter();
        Ok(match (found.next(), found.next()) {
            (Some(found), None) => Some(self.watched.put(found)),
            _ => None,
        })
    }

    /// The address of a sandbox's pod.
    pub(crate) fn address(&self, sandbox: &Sandbox) -> Option<IpAddr> {
        sandbox
            .address()
            .filter(|address| !self.nodes.has(*address))
    }

    fn grant(
        principal: &Principal,
        sandbox: &Sandbox,
    ) -> Option<(SandboxPermit, Arc<SandboxRecord>)> {
        let record = record::of(sandbox, Time::now());
        if !record.is_user_visible() {
            return None;
        }
        let permit = SandboxPermit::grant(principal, &record)?;
        Some((permit, Arc::new(record)))
    }

    /// Where the sandbox of a permit is.
    pub(crate) fn key_of(&self, permit: &SandboxPermit) -> Result<Key, SandboxError> {
        let id = permit.sandbox();
        let known = self.watched.find(&id_index(id));
        let known = known.filter(|sandbox| {
            let (namespace, _) = key(&sandbox.metadata);
            identity::team(&namespace) == permit.team()
        });
        let known = known.ok_or_else(|| SandboxError::NotFound(id.clone()))?;
        Ok(key(&known.metadata))
    }
}

/// The port. Creates, pauses and resumes continue when their callers stop waiting: the steps after a write
/// belong to it.
pub(crate) struct Port(pub(crate) Arc<Sandboxes>);

impl Port {
    fn go_on<'a, T, F>(
        &'a self,
        permit: &'a SandboxPermit,
        operation: impl FnOnce(Arc<Sandboxes>, Key) -> F + Send + 'a,
    ) -> BoxFuture<'a, Result<T, SandboxError>>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, SandboxError>> + Send + 'static,
    {
        Box::pin(async move {
            let key = self.0.key_of(permit)?;
            let done = tokio::spawn(operation(self.0.clone(), key));
            done.await.map_err(StoreError::failed)?
        })
    }
}

impl Sandboxes {
    /// The sandbox of a namespace whose resource, or whose user, calls it so; the resource comes first.
    fn called(&self, namespace: &str, name: &str) -> Option<Arc<Sandbox>> {
        let resource = (namespace.to_owned(), name.to_owned());
        let resource = self.watched.get(&resource);
        let called = |sandbox: &Sandbox| {
            sandbox.metadata.namespace.as_deref() == Some(namespace)
                && sandbox.annotation(NAME_KEY) == Some(name)
                && record::is_claimed(sandbox)
        };
        let resource = resource.filter(|sandbox| record::is_claimed(sandbox));
        resource.or_else(|| self.watched.filter(called).into_iter().next())
    }
}

impl SandboxesPort for Port {
    fn create<'a>(
        &'a self,
        principal: &'a Principal,
        new: SandboxRequest,
        idempotency: Option<Idempotency>,
    ) -> BoxFuture<'a, Result<Created, CreateError>> {
        Box::pin(async move {
            let (sandboxes, principal) = (self.0.clone(), principal.clone());
            let created = tokio::spawn(async move {
                let once = idempotency.as_ref();
                sandboxes.create_one(&principal, new, once).await
            });
            created.await.map_err(StoreError::failed)?
        })
    }

    fn authorize<'a>(
        &'a self,
        principal: &'a Principal,
        id: &'a SandboxId,
    ) -> BoxFuture<'a, Result<(SandboxPermit, Arc<SandboxRecord>), SandboxError>> {
        Box::pin(async move {
            let found = self.0.look_up(principal, id).await?;
            let granted = found.and_then(|sandbox| Sandboxes::grant(principal, &sandbox));
            granted.ok_or_else(|| SandboxError::NotFound(id.clone()))
        })
    }

    fn find<'a>(
        &'a self,
        principal: &'a Principal,
        text: &'a str,
    ) -> BoxFuture<'a, Result<(SandboxPermit, Arc<SandboxRecord>), SandboxError>> {
        Box::pin(async move {
            if let Ok(id) = SandboxId::from_wire(text)
                && let Ok(found) = self.authorize(principal, &id).await
            {
                return Ok(found);
            }
            // A generated name ends with the id.
            if let Some((_, id)) = text.rsplit_once('-')
                && let Ok(id) = id.parse()
                && let Ok(found) = self.authorize(principal, &id).await
                && found.1.name() == text
            {
                return Ok(found);
            }
            let named = self.0.called(principal.slug.as_str(), text);
            let granted = named.and_then(|sandbox| Sandboxes::grant(principal, &sandbox));
            granted.ok_or_else(|| SandboxError::NoSuchName(text.to_owned()))
        })
    }

    fn list<'a>(&'a self, principal: &'a Principal, filter: &'a ListFilter) -> BoxFuture<'a, Page> {
        Box::pin(async move {
            let all = filter.all_teams && principal.admin;
            let namespace = principal.slug.as_str();
            let own = |sandbox: &Sandbox| {
                let of = sandbox.metadata.namespace.as_deref();
                (all || of == Some(namespace)) && record::is_claimed(sandbox)
            };
            let now = Time::now();
            let sandboxes = self.0.watched.filter(own).into_iter();
            let page = filter.select(sandboxes.map(|one| record::Brief::of(one, now)).collect());
            let records = page.sandboxes.iter().map(|brief| brief.record(now));
            Page {
                sandboxes: records.collect(),
                next: page.next,
                running: page.running,
            }
        })
    }

    fn kill<'a>(&'a self, permit: &'a SandboxPermit) -> BoxFuture<'a, Result<(), SandboxError>> {
        Box::pin(async move {
            let key = self.0.key_of(permit)?;
            if let Some(sandbox) = self.0.watched.get(&key) {
                let deleted = self.0.delete(&sandbox).await;
                deleted.map_err(|error| failure::store(&error))?;
            }
            Ok(())
        })
    }

    fn clear_failed<'a>(
        &'a self,
        principal: &'a Principal,
        text: &'a str,
    ) -> BoxFuture<'a, Result<bool, SandboxError>> {
        Box::pin(async move {
            let found = match SandboxId::from_wire(text) {
                Ok(id) => self.0.look_up(principal, &id).await?,
                Err(_) => None,
            };
            let named = (principal.slug.to_string(), text.to_owned());
            let found = found.or_else(|| self.0.watched.get(&named));
            let failed = found.filter(|sandbox| {
                let record = record::of(sandbox, Time::now());
                let own = SandboxPermit::grant(principal, &record).is_some();
                own && record::is_claimed(sandbox) && matches!(record.state, State::Failed(_))
            });
            let Some(failed) = failed else {
                return Ok(false);
            };
            let deleted = self.0.delete(&failed).await;
            deleted.map_err(|error| failure::store(&error))?;
            Ok(true)
        })
    }

    fn connect<'a>(
        &'a self,
        permit: &'a SandboxPermit,
        timeout: Duration,
        _memory: bool,
    ) -> BoxFuture<'a, Result<Connected, SandboxError>> {
        self.go_on(permit, move |sandboxes, key| async move {
            sandboxes.connect_one(&key, timeout).await
        })
    }

    fn pause<'a>(
        &'a self,
        permit: &'a SandboxPermit,
        contents: Option<Contents>,
        _healthy: bool,
    ) -> BoxFuture<'a, Result<(), SandboxError>> {
        self.go_on(permit, move |sandboxes, key| async move {
            sandboxes.pause_one(&key, contents).await
        })
    }

    fn resume<'a>(
        &'a self,
        permit: &'a SandboxPermit,
        timeout: Duration,
        _memory: bool,
    ) -> BoxFuture<'a, Result<Arc<SandboxRecord>, SandboxError>> {
        self.go_on(permit, move |sandboxes, key| async move {
            sandboxes.resume_one(&key, timeout).await
        })
    }

    fn fork<'a>(
        &'a self,
        principal: &'a Principal,
        permit: &'a SandboxPermit,
        count: usize,
        timeout: Duration,
    ) -> BoxFuture<'a, Result<Vec<Result<Created, CreateError>>, SandboxError>> {
        let principal = principal.clone();
        self.go_on(permit, move |sandboxes, key| async move {
            sandboxes.fork_one(&principal, &key, count, timeout).await
        })
    }

    fn set_timeout<'a>(
        &'a self,
        permit: &'a SandboxPermit,
        timeout: Duration,
    ) -> BoxFuture<'a, Result<Arc<SandboxRecord>, SandboxError>> {
        Box::pin(async move { self.0.set_deadline(&self.0.key_of(permit)?, timeout).await })
    }

    fn refresh<'a>(
        &'a self,
        permit: &'a SandboxPermit,
        duration: Duration,
    ) -> BoxFuture<'a, Result<Arc<SandboxRecord>, SandboxError>> {
        Box::pin(async move {
            self.0
                .extend_deadline(&self.0.key_of(permit)?, duration)
                .await
        })
    }

    fn set_network<'a>(
        &'a self,
        permit: &'a SandboxPermit,
        _: Egress,
    ) -> BoxFuture<'a, Result<Result<(), SandboxError>, InvalidRule>> {
        Box::pin(async move {
            let served = self.0.key_of(permit).and({
                Err(SandboxError::NotServed(NotServed {
                    what: "a change of network rules",
                    instead: "create a TrafficPolicy that selects the sandbox",
                }))
            });
            Ok(served)
        })
    }

    fn resize<'a>(
        &'a self,
        permit: &'a SandboxPermit,
        resize: Resize,
    ) -> BoxFuture<'a, Result<Arc<SandboxRecord>, SandboxError>> {
        Box::pin(async move { self.0.resize_one(&self.0.key_of(permit)?, resize).await })
    }

    fn rotate_tokens<'a>(
        &'a self,
        permit: &'a SandboxPermit,
    ) -> BoxFuture<'a, Result<Arc<SandboxRecord>, SandboxError>> {
        Box::pin(async move {
            self.0.key_of(permit)?;
            Err(NotServed {
                what: "another token for a sandbox",
                instead: "create another sandbox",
            }
            .into())
        })
    }

    fn backing_objects(&self, permit: &SandboxPermit) -> Result<Vec<BackingObject>, SandboxError> {
        let key = self.0.key_of(permit)?;
        let sandbox = self.0.watched.get(&key);
        let sandbox = sandbox.ok_or_else(|| SandboxError::NotFound(permit.sandbox().clone()))?;
        let of_namespace = |checkpoint: &Checkpoint| {
            checkpoint.metadata.namespace.as_deref() == Some(key.0.as_str())
        };
        let saved = self.0.saves.checkpoints.filter(of_namespace);
        Ok(objects::behind(&sandbox, &saved))
    }
}
