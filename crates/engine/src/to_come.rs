//! Templates that no build has finished yet.

use std::collections::HashSet;
use std::sync::Arc;

use shoal_core::auth::Principal;
use shoal_core::build::BuildRecord;
use shoal_core::template::TemplateRef;

use crate::engine::Engine;

impl Engine {
    /// The latest build of each template of a team, or of the installation, that none has finished
    /// yet, the newest first.
    #[must_use]
    pub fn templates_to_come(&self, principal: &Principal) -> Vec<Arc<BuildRecord>> {
        let mut builds = self.shared.builds.records();
        builds.retain(|build| {
            let visible = build.team == principal.team || build.stock;
            visible && !self.shared.templates.has(&build.template)
        });
        builds.sort_by(|a, b| b.created_at.cmp(&a.created_at).then(a.id.cmp(&b.id)));
        let mut seen = HashSet::new();
        builds.retain(|build| seen.insert(build.template.clone()));
        builds
    }

    /// The latest build of a template to come that is meant by this name or id. In a namespace that is
    /// the caller's own.
    #[must_use]
    pub fn template_to_come(
        &self,
        principal: &Principal,
        reference: &TemplateRef,
    ) -> Option<Arc<BuildRecord>> {
        let (name, namespace) = (reference.name.as_str(), reference.namespace.as_deref());
        let in_namespace = |build: &BuildRecord| {
            namespace.is_none_or(|slug| slug == principal.slug.as_str() && !build.stock)
        };
        let mut coming = self.templates_to_come(principal).into_iter();
        coming.find(|build| {
            let named = build.template.as_str() == name || build.name.as_str() == name;
            named && in_namespace(build)
        })
    }
}
