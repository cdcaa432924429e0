//! Templates that no build has finished yet.

use std::collections::HashSet;
use std::sync::Arc;

use shoal_core::auth::Principal;
use shoal_core::build::BuildRecord;
use shoal_core::template::TemplateRef;

use super::Templates;

impl Templates {
    /// The latest build of each pending template of a team or of the installation, the newest first.
    pub(crate) fn pending(&self, principal: &Principal) -> Vec<Arc<BuildRecord>> {
        let mut builds = self.parts.build_records.records();
        builds.retain(|build| {
            let visible = build.team == principal.team || build.builtin;
            visible && !self.has(&build.template)
        });
        builds.sort_by(|a, b| b.created_at.cmp(&a.created_at).then(a.id.cmp(&b.id)));
        let mut seen = HashSet::new();
        builds.retain(|build| seen.insert(build.template.clone()));
        builds
    }

    /// The latest build of the pending template with this name or id. A namespace must be the
    /// caller's own.
    pub(crate) fn pending_named(
        &self,
        principal: &Principal,
        reference: &TemplateRef,
    ) -> Option<Arc<BuildRecord>> {
        let (name, namespace) = (reference.name.as_str(), reference.namespace.as_deref());
        let in_namespace = |build: &BuildRecord| {
            namespace.is_none_or(|slug| slug == principal.slug.as_str() && !build.builtin)
        };
        let mut pending = self.pending(principal).into_iter();
        pending.find(|build| {
            let named = build.template.as_str() == name || build.name.as_str() == name;
            named && in_namespace(build)
        })
    }
}
