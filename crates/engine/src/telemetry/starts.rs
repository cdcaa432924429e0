//! How often sandboxes were started from each template.

use std::collections::HashMap;

use parking_lot::RwLock;
use shoal_core::clock::Timestamp;
use shoal_core::id::TemplateId;
pub use shoal_core::ports::templates::Starts;

/// The starts of all templates.
#[derive(Debug, Default)]
pub(crate) struct TemplateStarts(RwLock<HashMap<TemplateId, Starts>>);

impl TemplateStarts {
    /// Counts a start.
    pub(crate) fn count(&self, template: &TemplateId, at: Timestamp) {
        let mut all = self.0.write();
        let starts = all.entry(template.clone()).or_default();
        starts.count += 1;
        starts.last = Some(at);
    }

    /// The starts of a template.
    pub(crate) fn of(&self, template: &TemplateId) -> Starts {
        self.0.read().get(template).copied().unwrap_or_default()
    }
}
