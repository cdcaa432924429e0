//! Lists the sandboxes of a team, a page at a time.

use shoal_core::auth::Principal;
pub use shoal_core::ports::list::{ListFilter, ListOrder, Page, PageToken};

use super::Sandboxes;

impl Sandboxes {
    /// The matching sandboxes of `principal`. Never waits for a sandbox.
    pub(crate) fn list(&self, principal: &Principal, filter: &ListFilter) -> Page {
        filter.page(principal, self.registry.records())
    }
}
