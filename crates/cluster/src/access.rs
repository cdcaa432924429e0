//! The way into sandboxes: to the daemon in their pods.

use std::sync::Arc;

use shoal_core::BoxFuture;
use shoal_core::auth::{SandboxPermit, Token};
use shoal_core::ports::inside::{SandboxAccess, SandboxClient};
use shoal_core::ports::sandboxes::SandboxError;
use shoal_core::routes::{Lookup, RouteTable};
use shoal_core::sandbox::SandboxRecord;
use shoal_protocol::client::{DaemonClient, Network, SandboxTarget, TcpNetwork, UntilEnd};

use crate::record;
use crate::routes::Routes;
use crate::sandboxes::{Sandboxes, id_index};

/// Opens clients of sandboxes.
pub(crate) struct Access {
    pub(crate) sandboxes: Arc<Sandboxes>,
    pub(crate) routes: Arc<Routes>,
}

impl SandboxAccess for Access {
    fn open<'a>(
        &'a self,
        permit: &'a SandboxPermit,
        user: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Arc<dyn SandboxClient>, SandboxError>> {
        Box::pin(async move {
            self.sandboxes.key_of(permit)?;
            let id = permit.sandbox();
            let route = match self.routes.lookup(id) {
                Lookup::Running(route) => route,
                Lookup::Busy | Lookup::Resumable(_) | Lookup::Parked(_) => {
                    return Err(SandboxError::Busy(id.clone()));
                }
                Lookup::Paused => return Err(SandboxError::Paused(id.clone())),
                Lookup::Failed(_) | Lookup::Unknown => {
                    return Err(SandboxError::NotFound(id.clone()));
                }
            };
            let target = SandboxTarget {
                address: route.address,
                token: route.envd_access_token.clone(),
                user: user.map(str::to_owned),
            };
            let routes = self.routes.clone();
            let network: Arc<dyn Network> = Arc::new(UntilEnd {
                network: Arc::new(TcpNetwork),
                end: Arc::new(move || routes.ended(&route)),
            });
            Ok(Arc::new(DaemonClient::new(network, target)) as Arc<dyn SandboxClient>)
        })
    }

    fn envd_access_token(&self, record: &SandboxRecord) -> Option<Token> {
        let sandbox = self.sandboxes.watched.find(&id_index(&record.id))?;
        record::access_token(&sandbox)
    }

    fn traffic_access_token(&self, record: &SandboxRecord) -> Option<Token> {
        let sandbox = self.sandboxes.watched.find(&id_index(&record.id))?;
        record::traffic_access_token(&sandbox)
    }
}
