//! List the sandboxes of a tenant, a page at a time.

use shoal_core::auth::Principal;
pub use shoal_core::ports::list::{ListFilter, Order, Page, PageToken};

use crate::engine::Engine;

impl Engine {
    /// The sandboxes of `principal` that match. Never waits for one.
    #[must_use]
    pub fn list(&self, principal: &Principal, filter: &ListFilter) -> Page {
        filter.page(principal, self.shared.entries.records())
    }
}
