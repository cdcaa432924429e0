//! API keys: a Secret of the installation's namespace, of which every replica has a watch.
//!
//! A team is a namespace. Its keys act in that namespace alone.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use jiff::Timestamp as Time;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use parking_lot::RwLock;
use serde_json::json;
use shoal_core::BoxFuture;
use shoal_core::auth::{ApiKey, ApiKeyHash, KeyRecord, Principal, TeamSlug};
use shoal_core::clock::Timestamp;
use shoal_core::id::{KeyId, TeamId};
use shoal_core::ports::access::{KEY_NAME_MAX, KeyError, Keys as KeysPort, NewKey};
use shoal_core::quota::Quota;
use shoal_core::store::StoreError;
use tokio::sync::watch;

use crate::{failure, identity, random};

/// The Secret with the records of all keys.
pub(crate) const STORE: &str = "e2b-key-store";

/// The Secret with the first key, for the operator of the installation.
pub(crate) const FIRST_KEY: &str = "shoal-api-key";

/// The entry of that Secret.
const FIRST_KEY_ENTRY: &str = "key";

/// How often a rename is tried while other keys change.
const RENAMES: u32 = 8;

/// The keys, as the watch has last shown them.
pub(crate) struct Keys {
    client: Client,
    /// The namespace of the Secret.
    namespace: String,
    known: Arc<RwLock<Known>>,
    /// Counts changes.
    changed: watch::Sender<u64>,
}

#[derive(Default)]
struct Known {
    /// The resource version of the Secret.
    version: u64,
    by_hash: HashMap<ApiKeyHash, KeyRecord>,
    by_id: HashMap<KeyId, KeyRecord>,
}

impl Keys {
    pub(crate) fn new(client: Client, namespace: &str) -> Self {
        Self {
            client,
            namespace: namespace.to_owned(),
            known: Arc::default(),
            changed: watch::Sender::new(0),
        }
    }

    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Takes the records of a Secret over, unless a newer state of it is known.
    pub(crate) fn load(&self, secret: &Secret) {
        let version = secret.metadata.resource_version.as_ref();
        let mut known = Known {
            version: version
                .and_then(|version| version.parse().ok())
                .unwrap_or_default(),
            ..Known::default()
        };
        for (name, value) in secret.data.iter().flatten() {
            match serde_json::from_slice::<KeyRecord>(&value.0) {
                Ok(record) => {
                    known.by_hash.insert(record.hash.clone(), record.clone());
                    known.by_id.insert(record.id, record);
                }
                // The error shows no key: the record contains a hash only.
                Err(error) => tracing::warn!(name, %error, "cannot read an API key"),
            }
        }
        let mut current = self.known.write();
        if known.version < current.version {
            return;
        }
        *current = known;
        drop(current);
        self.changed.send_modify(|count| *count += 1);
    }

    /// Makes the first key, if there is none, and returns whether it did. Replicas that start together
    /// make one.
    ///
    /// # Errors
    /// When the API server refuses.
    pub(crate) async fn ensure_first(&self, team: &TeamSlug) -> Result<bool, KeyError> {
        let secrets = self.secrets();
        let stored = secrets.get_opt(STORE).await.map_err(failed)?;
        if let Some(stored) = &stored {
            self.load(stored);
            if !self.known.read().by_id.is_empty() {
                return Ok(false);
            }
        }
        let made = ApiKey::from_entropy(random::bytes()?);
        let secret = Secret {
            metadata: ObjectMeta {
                name: Some(FIRST_KEY.to_owned()),
                ..ObjectMeta::default()
            },
            data: Some(BTreeMap::from([(
                FIRST_KEY_ENTRY.to_owned(),
                ByteString(made.reveal().as_bytes().to_vec()),
            )])),
            ..Secret::default()
        };
        let (key, is_new) = match secrets.create(&PostParams::default(), &secret).await {
            Ok(_) => (made, true),
            // Another replica was faster, or ended before it had stored the record.
            Err(error) if failure::is_conflict(&error) => (self.first_key().await?, false),
            Err(error) => return Err(failed(error)),
        };
        let mut record = record_of(&key, team, "first key", true)?;
        // Replicas that start together write one record.
        record.id = identity::first_key(record.hash.as_str());
        self.put(&record).await?;
        Ok(is_new)
    }

    async fn first_key(&self) -> Result<ApiKey, KeyError> {
        let secret = self.secrets().get(FIRST_KEY).await.map_err(failed)?;
        let key = secret
            .data
            .and_then(|mut data| data.remove(FIRST_KEY_ENTRY));
        let text = key.and_then(|key| String::from_utf8(key.0).ok());
        let key = text.and_then(|text| ApiKey::parse(text.trim()).ok());
        key.ok_or_else(|| {
            KeyError::Store(StoreError::Corrupt {
                key: FIRST_KEY.to_owned(),
                detail: "it has no valid API key".to_owned(),
            })
        })
    }

    /// Stores a record.
    async fn put(&self, record: &KeyRecord) -> Result<(), KeyError> {
        let text = serde_json::to_string(record).map_err(StoreError::failed)?;
        self.change(json!({(record.id.to_string()): text})).await
    }

    /// Changes entries of the Secret, which is made when it is missing.
    async fn change(&self, entries: serde_json::Value) -> Result<(), KeyError> {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": STORE},
            "stringData": entries,
        });
        let patch = Patch::Merge(&secret);
        let secrets = self.secrets();
        let changed = match secrets.patch(STORE, &PatchParams::default(), &patch).await {
            Err(error) if failure::is_gone(&error) => {
                let new: Secret = serde_json::from_value(secret).map_err(StoreError::failed)?;
                secrets.create(&PostParams::default(), &new).await
            }
            changed => changed,
        };
        self.load(&changed.map_err(failed)?);
        Ok(())
    }

    /// Forgets all keys: their Secret was deleted.
    pub(crate) fn clear(&self) {
        self.known.write().by_hash.clear();
        self.known.write().by_id.clear();
        self.changed.send_modify(|count| *count += 1);
    }

    /// The holder of a key.
    pub(crate) fn holder(&self, key: &ApiKey) -> Option<Principal> {
        let known = self.known.read();
        known.by_hash.get(&key.hash()).map(principal_of)
    }

    /// Completes when a key is deleted. Watches from the call on.
    pub(crate) fn lifetime(&self, key: KeyId) -> impl Future<Output = ()> + use<> {
        let mut changed = self.changed.subscribe();
        let known = self.known.clone();
        async move {
            while known.read().by_id.contains_key(&key) {
                if changed.changed().await.is_err() {
                    // The server ends.
                    return;
                }
            }
        }
    }

    /// The quota of a key; none for a key without one, and for one that was deleted: its sandboxes stay.
    pub(crate) fn quota(&self, id: KeyId) -> Option<Quota> {
        self.known.read().by_id.get(&id)?.quota.clone()
    }

    /// The short name of a team that has a key.
    pub(crate) fn slug(&self, team: TeamId) -> Option<TeamSlug> {
        let known = self.known.read();
        let mut records = known.by_id.values();
        let found = records.find(|record| record.team == team);
        found.map(|record| record.slug.clone())
    }

    /// The keys that the caller may see.
    pub(crate) fn visible(&self, by: &Principal) -> Vec<KeyRecord> {
        let known = self.known.read();
        let records = known.by_id.values();
        let mut records: Vec<_> = records
            .filter(|record| by.admin || record.team == by.team)
            .cloned()
            .collect();
        records.sort_by_key(|record| (record.created_at, record.id));
        records
    }

    fn find(&self, by: &Principal, id: KeyId) -> Result<KeyRecord, KeyError> {
        let found = self.visible(by).into_iter().find(|record| record.id == id);
        found.ok_or(KeyError::NotFound(id))
    }
}

fn principal_of(record: &KeyRecord) -> Principal {
    Principal {
        team: record.team,
        slug: record.slug.clone(),
        key: record.id,
        admin: record.admin,
    }
}

fn record_of(
    key: &ApiKey,
    team: &TeamSlug,
    name: &str,
    admin: bool,
) -> Result<KeyRecord, KeyError> {
    check_name(name)?;
    Ok(KeyRecord {
        id: KeyId::from_entropy(random::bytes()?),
        team: identity::team(team.as_str()),
        slug: team.clone(),
        admin,
        name: name.to_owned(),
        mask: key.mask(),
        hash: key.hash(),
        created_at: Timestamp::from_unix_millis(Time::now().as_millisecond()),
        quota: None,
    })
}

fn check_name(name: &str) -> Result<(), KeyError> {
    if name.is_empty() || name.chars().count() > KEY_NAME_MAX {
        return Err(KeyError::InvalidName);
    }
    Ok(())
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn failed(error: kube::Error) -> KeyError {
    failure::store(&error).into()
}

impl KeysPort for Keys {
    fn authenticate<'a>(
        &'a self,
        key: &'a ApiKey,
    ) -> BoxFuture<'a, Result<Option<Principal>, StoreError>> {
        Box::pin(std::future::ready(Ok(self.holder(key))))
    }

    fn deleted(&self, principal: &Principal) -> BoxFuture<'static, ()> {
        Box::pin(self.lifetime(principal.key))
    }

    fn create<'a>(
        &'a self,
        by: &'a Principal,
        new: NewKey,
    ) -> BoxFuture<'a, Result<(ApiKey, KeyRecord), KeyError>> {
        Box::pin(async move {
            if !by.admin && (new.admin || new.quota.is_some() || new.team != by.slug) {
                return Err(KeyError::Forbidden);
            }
            let namespaces: Api<Namespace> = Api::all(self.client.clone());
            let exists = namespaces.get_opt(new.team.as_str()).await;
            if exists.map_err(failed)?.is_none() {
                return Err(KeyError::NoTeam(new.team));
            }
            let key = ApiKey::from_entropy(random::bytes()?);
            let mut record = record_of(&key, &new.team, &new.name, new.admin)?;
            record.quota = new.quota;
            self.put(&record).await?;
            Ok((key, record))
        })
    }

    fn list<'a>(&'a self, by: &'a Principal) -> BoxFuture<'a, Result<Vec<KeyRecord>, KeyError>> {
        Box::pin(std::future::ready(Ok(self.visible(by))))
    }

    fn rename<'a>(
        &'a self,
        by: &'a Principal,
        id: KeyId,
        name: &'a str,
    ) -> BoxFuture<'a, Result<KeyRecord, KeyError>> {
        Box::pin(async move {
            check_name(name)?;
            // Of the newest state, and only if it stays: a key that another replica has deleted must not
            // come back. All keys are in one object, so another key's change is a conflict, too.
            let mut left = RENAMES;
            let renamed = loop {
                let stored = self.secrets().get(STORE).await.map_err(failed)?;
                self.load(&stored);
                let renamed = KeyRecord {
                    name: name.to_owned(),
                    ..self.find(by, id)?
                };
                let text = serde_json::to_string(&renamed).map_err(StoreError::failed)?;
                let patch = json!({
                    "metadata": {"resourceVersion": stored.metadata.resource_version},
                    "stringData": {(renamed.id.to_string()): text},
                });
                let (params, patch) = (PatchParams::default(), Patch::Merge(&patch));
                left -= 1;
                match self.secrets().patch(STORE, &params, &patch).await {
                    Ok(changed) => {
                        self.load(&changed);
                        break renamed;
                    }
                    Err(error) if failure::is_conflict(&error) && left > 0 => {}
                    Err(error) => return Err(failed(error)),
                }
            };
            Ok(renamed)
        })
    }

    fn delete<'a>(&'a self, by: &'a Principal, id: KeyId) -> BoxFuture<'a, Result<(), KeyError>> {
        Box::pin(async move {
            if id == by.key {
                return Err(KeyError::Itself);
            }
            let key = self.find(by, id)?;
            let patch = json!({"data": {(key.id.to_string()): null}});
            let (params, patch) = (PatchParams::default(), Patch::Merge(&patch));
            let changed = self.secrets().patch(STORE, &params, &patch).await;
            self.load(&changed.map_err(failed)?);
            Ok(())
        })
    }
}
