//! The backend that every route serves from.

use std::ops::Deref;
use std::sync::Arc;

use shoal_core::ports::Ports;

/// An implementation of the use cases. Requests share it, so a clone is one reference count.
#[derive(Clone)]
pub(crate) struct Backend(Arc<Ports>);

impl From<Ports> for Backend {
    fn from(ports: Ports) -> Self {
        Self(Arc::new(ports))
    }
}

impl Deref for Backend {
    type Target = Ports;

    fn deref(&self) -> &Ports {
        &self.0
    }
}
