//! The addresses of all sandboxes, which the gateway reads as its routes.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use shoal_core::BoxFuture;
use shoal_core::auth::{Token, TokenSeed};
use shoal_core::id::{ExecutionId, KeyId, SandboxId, TeamId, entropy_of};
use shoal_core::routes::{
    Authorized, Credential, Lookup, NotAuthorized, NotResumed, Route, RouteTable,
};
use shoal_core::template::RuntimeName;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// The namespace and the name of a sandbox.
pub(crate) type Key = (String, String);

/// The addresses. A sandbox has a place in it while its pod has an address.
pub(crate) struct Table {
    state: RwLock<State>,
    /// Notified when a sandbox gets an address.
    changed: Notify,
    cluster_domain: String,
}

#[derive(Default)]
struct State {
    ids: HashMap<Key, SandboxId>,
    places: HashMap<SandboxId, Place>,
}

impl State {
    fn remove(&mut self, key: &Key) {
        let removed = self.ids.remove(key).and_then(|id| self.places.remove(&id));
        if let Some(place) = removed {
            place.ended.cancel();
        }
    }
}

struct Place {
    route: Arc<Route>,
    /// Cancelled when the sandbox ends or gets another address.
    ended: CancellationToken,
}

impl Table {
    /// An empty table. `cluster_domain` is part of the host name that servers in sandboxes see.
    pub(crate) fn new(cluster_domain: &str) -> Self {
        Self {
            state: RwLock::default(),
            changed: Notify::new(),
            cluster_domain: cluster_domain.to_owned(),
        }
    }

    /// Records the address of a sandbox's pod. Connections to an earlier one end.
    pub(crate) fn put(&self, key: &Key, uid: &str, address: Option<IpAddr>) {
        let Some(address) = address else {
            return self.remove(key);
        };
        let route = self.route_to(key, uid, address);
        let mut state = self.state.write();
        let known = state.ids.get(key).and_then(|id| state.places.get(id));
        if known.is_some_and(|place| place.route.execution == route.execution) {
            return;
        }
        state.remove(key);
        let id = route.sandbox.clone();
        state.ids.insert(key.clone(), id.clone());
        let place = Place {
            route: Arc::new(route),
            ended: CancellationToken::new(),
        };
        state.places.insert(id, place);
        drop(state);
        self.changed.notify_waiters();
    }

    /// Forgets a sandbox. Its connections end.
    pub(crate) fn remove(&self, key: &Key) {
        self.state.write().remove(key);
    }

    /// Forgets all sandboxes but these.
    pub(crate) fn retain(&self, listed: &HashSet<Key>) {
        let mut state = self.state.write();
        let gone: Vec<Key> = state
            .ids
            .keys()
            .filter(|key| !listed.contains(*key))
            .cloned()
            .collect();
        for key in gone {
            state.remove(&key);
        }
    }

    /// The route to a sandbox. Waits for it for a while: a client may know of a sandbox before the watch
    /// has shown it.
    pub(crate) async fn find(&self, key: &Key, patience: Duration) -> Option<Arc<Route>> {
        let wait = async {
            loop {
                let mut changed = pin!(self.changed.notified());
                // Registers before the look, so that no change is missed.
                changed.as_mut().enable();
                if let Some(route) = self.now(key) {
                    return route;
                }
                changed.await;
            }
        };
        tokio::time::timeout(patience, wait).await.ok()
    }

    fn now(&self, key: &Key) -> Option<Arc<Route>> {
        let state = self.state.read();
        let place = state.places.get(state.ids.get(key)?)?;
        Some(place.route.clone())
    }

    fn route_to(&self, key: &Key, uid: &str, address: IpAddr) -> Route {
        let (namespace, name) = key;
        let sandbox = SandboxId::from_entropy(entropy_of(&["sandbox", uid]));
        // The gateway requires one; no server accepts it.
        let token = TokenSeed::new([0; 32]).envd_access_token(&sandbox);
        let host = format!("{name}.{namespace}.svc.{}:${{PORT}}", self.cluster_domain);
        let execution = ExecutionId::from_entropy(entropy_of(&["pod", uid, &address.to_string()]));
        Route {
            team: TeamId::from_entropy(entropy_of(&["namespace", namespace])),
            execution,
            runtime: runtime(),
            address,
            guest_token: token.clone(),
            envd_access_token: Some(token),
            traffic_access_token: None,
            mask_request_host: host.parse().ok(),
            is_parkable: false,
            keeps_connections: false,
            network: execution,
            sandbox,
        }
    }
}

/// The name under which the gateway counts requests.
fn runtime() -> RuntimeName {
    let Ok(name) = "kubernetes".parse() else {
        unreachable!("the name is valid")
    };
    name
}

impl RouteTable for Table {
    fn lookup(&self, id: &SandboxId) -> Lookup {
        match self.state.read().places.get(id) {
            Some(place) => Lookup::Running(place.route.clone()),
            None => Lookup::Unknown,
        }
    }

    fn wake(&self, _: &SandboxId) -> BoxFuture<'static, Result<Arc<Route>, NotResumed>> {
        Box::pin(std::future::ready(Err(NotResumed::Gone)))
    }

    fn admit(
        &self,
        _: &str,
        _: Credential,
    ) -> BoxFuture<'static, Result<Authorized, NotAuthorized>> {
        Box::pin(std::future::ready(Err(NotAuthorized::NotFound)))
    }

    fn find_by_token(&self, is_wanted: &dyn Fn(&Token) -> bool) -> Option<SandboxId> {
        let state = self.state.read();
        let mut routes = state.places.values().map(|place| &place.route);
        let found = routes.find(|route| route.envd_access_token.as_ref().is_some_and(is_wanted));
        found.map(|route| route.sandbox.clone())
    }

    fn ended(&self, route: &Route) -> BoxFuture<'static, ()> {
        let state = self.state.read();
        let place = state.places.get(&route.sandbox);
        match place.filter(|place| place.route.execution == route.execution) {
            Some(place) => Box::pin(place.ended.clone().cancelled_owned()),
            None => Box::pin(std::future::ready(())),
        }
    }

    fn key_deleted(&self, _: KeyId) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn key(name: &str) -> Key {
        ("default".to_owned(), name.to_owned())
    }

    fn at(last: u8) -> Option<IpAddr> {
        Some([10, 0, 0, last].into())
    }

    fn address(table: &Table, name: &str) -> Option<IpAddr> {
        table.now(&key(name)).map(|route| route.address)
    }

    #[test]
    fn a_new_address_ends_connections_to_the_old_one() {
        let table = Table::new("cluster.local");
        table.put(&key("a"), "1", at(1));
        let first = table.now(&key("a")).unwrap();
        table.put(&key("a"), "1", at(1));
        assert!(table.ended(&first).now_or_never().is_none());
        let ended = table.ended(&first);
        table.put(&key("a"), "1", at(2));
        assert!(ended.now_or_never().is_some());
        assert!(table.ended(&first).now_or_never().is_some());
        assert_eq!(address(&table, "a"), at(2));
        assert!(
            matches!(table.lookup(&first.sandbox), Lookup::Running(route) if route.address == at(2).unwrap())
        );
    }

    #[test]
    fn a_sandbox_of_the_same_name_and_address_is_another_one() {
        let table = Table::new("cluster.local");
        table.put(&key("a"), "1", at(1));
        let first = table.now(&key("a")).unwrap();
        table.put(&key("a"), "2", at(1));
        assert!(table.ended(&first).now_or_never().is_some());
        assert!(matches!(table.lookup(&first.sandbox), Lookup::Unknown));
        assert_eq!(address(&table, "a"), at(1));
    }

    #[test]
    fn sandboxes_without_an_address_have_no_route() {
        let table = Table::new("cluster.local");
        table.put(&key("a"), "1", None);
        assert_eq!(address(&table, "a"), None);
        table.put(&key("a"), "1", at(1));
        table.put(&key("b"), "2", at(2));
        table.put(&key("a"), "1", None);
        assert_eq!((address(&table, "a"), address(&table, "b")), (None, at(2)));
        table.retain(&HashSet::new());
        assert!(table.find_by_token(&|_| true).is_none());
    }

    #[test]
    fn servers_see_the_name_of_the_service() {
        let table = Table::new("cluster.local");
        table.put(&key("a"), "1", at(1));
        let mask = table.now(&key("a")).unwrap().mask_request_host.clone();
        let host = mask.unwrap().for_port(80);
        assert_eq!(host, "a.default.svc.cluster.local:80");
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_waits_for_the_watch_but_not_forever() {
        let table = Arc::new(Table::new("cluster.local"));
        let patience = Duration::from_secs(1);
        assert!(table.find(&key("a"), patience).await.is_none());
        let (finding, wanted) = (table.clone(), key("a"));
        let found = tokio::spawn(async move { finding.find(&wanted, patience).await });
        tokio::time::sleep(patience / 2).await;
        table.put(&key("b"), "2", at(2));
        table.put(&key("a"), "1", at(1));
        assert_eq!(found.await.unwrap().unwrap().address, at(1).unwrap());
    }
}
