//! Routes that were made before. Each takes several digests, and every request needs one.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use shoal_core::id::SandboxId;
use shoal_core::routes::Route;
use shoal_crds::kruise::Sandbox;

/// So many are kept without a look at which sandboxes have changed or gone.
const FEW: usize = 256;

/// The routes of sandboxes as they are now.
#[derive(Default)]
pub(super) struct Known(Mutex<State>);

#[derive(Default)]
struct State {
    routes: HashMap<SandboxId, Entry>,
    /// How many were of present sandboxes at the last look.
    present: usize,
}

struct Entry {
    /// The object that the route was made from. It keeps the address, which no other object gets.
    of: Weak<Sandbox>,
    route: Arc<Route>,
}

impl Known {
    /// The route of a sandbox, which `make` makes if the sandbox or its address has changed.
    pub(super) fn get_or_make(
        &self,
        id: &SandboxId,
        sandbox: &Arc<Sandbox>,
        address: IpAddr,
        make: impl FnOnce() -> Route,
    ) -> Arc<Route> {
        let mut state = self.0.lock();
        if let Some(entry) = state.routes.get(id)
            && std::ptr::eq(entry.of.as_ptr(), Arc::as_ptr(sandbox))
            && entry.route.address == address
        {
            return entry.route.clone();
        }
        let route = Arc::new(make());
        if state.routes.len() >= FEW + 2 * state.present {
            state.routes.retain(|_, entry| entry.of.strong_count() > 0);
            state.present = state.routes.len();
        }
        let entry = Entry {
            of: Arc::downgrade(sandbox),
            route: route.clone(),
        };
        state.routes.insert(id.clone(), entry);
        route
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use serde_json::json;

    use super::*;
    use crate::routes::Routes;

    fn sandbox() -> Arc<Sandbox> {
        let object = json!({"metadata": {"namespace": "n", "name": "a", "uid": "u"}, "spec": {}});
        Arc::new(serde_json::from_value(object).unwrap())
    }

    fn get(known: &Known, id: &SandboxId, sandbox: &Arc<Sandbox>, last: u8) -> (Arc<Route>, bool) {
        let address = IpAddr::V4(Ipv4Addr::new(10, 0, 0, last));
        let mut made = false;
        let route = known.get_or_make(id, sandbox, address, || {
            made = true;
            Routes::route(sandbox, address)
        });
        (route, made)
    }

    #[test]
    fn a_route_is_made_once_until_its_sandbox_changes() {
        let (known, id) = (Known::default(), "ia".parse().unwrap());
        let (first, changed) = (sandbox(), sandbox());
        let (route, made) = get(&known, &id, &first, 1);
        assert!(made);
        let (again, made) = get(&known, &id, &first, 1);
        assert!(!made && Arc::ptr_eq(&route, &again));
        assert!(get(&known, &id, &first, 2).1, "its address");
        assert!(get(&known, &id, &changed, 2).1, "its object");
    }

    #[test]
    fn routes_of_sandboxes_that_are_gone_are_forgotten() {
        let known = Known::default();
        let here = sandbox();
        get(&known, &"ihere".parse().unwrap(), &here, 1);
        for number in 0..10 * FEW {
            get(
                &known,
                &format!("ia{number}").parse().unwrap(),
                &sandbox(),
                1,
            );
        }
        assert!(known.0.lock().routes.len() <= FEW + 2);
        assert!(!get(&known, &"ihere".parse().unwrap(), &here, 1).1);
    }
}
