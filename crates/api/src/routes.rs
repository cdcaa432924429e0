//! A router whose paths are known, so that a test can compare them with the OpenAPI document.

use axum::Router;
use axum::routing::MethodRouter;

use crate::backend::Backend;

/// Routes of the API. Every route is registered here, never on a bare [`Router`].
pub(crate) struct Routes {
    router: Router<Backend>,
    /// The registered paths, each once.
    #[cfg(test)]
    pub(crate) paths: std::collections::BTreeSet<&'static str>,
}

impl Routes {
    /// No routes.
    pub(crate) fn new() -> Self {
        Self {
            router: Router::new(),
            #[cfg(test)]
            paths: std::collections::BTreeSet::new(),
        }
    }

    /// Adds a route, or further methods of one.
    #[expect(clippy::disallowed_methods, reason = "here its path is remembered")]
    pub(crate) fn route(mut self, path: &'static str, methods: MethodRouter<Backend>) -> Self {
        self.router = self.router.route(path, methods);
        #[cfg(test)]
        self.paths.insert(path);
        self
    }
}

impl From<Routes> for Router<Backend> {
    fn from(routes: Routes) -> Self {
        routes.router
    }
}
