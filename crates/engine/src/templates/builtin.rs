//! The templates that the installation can build on demand.

use std::sync::Arc;

use parking_lot::RwLock;
use shoal_core::build::{BuildRecord, FilesHash, Plan};
use shoal_core::id::TemplateId;
use shoal_core::resources::Resources;
use shoal_core::template::{Template, TemplateName};

/// A template that the installation can build.
pub struct BuiltinTemplate {
    /// Its id, whether it is built or not.
    pub id: TemplateId,
    /// Its name. No team can give this name to a template of its own.
    pub name: TemplateName,
    /// One line for people.
    pub description: String,
    /// The limits of its sandboxes.
    pub resources: Resources,
    /// Prepares its build.
    pub definition: Arc<dyn BuiltinDefinition>,
}

/// Prepares the build of a builtin template.
pub trait BuiltinDefinition: Send + Sync {
    /// The steps and files of a build on this machine at this moment. May read files.
    ///
    /// # Errors
    /// When a required file cannot be read.
    fn prepare(&self) -> std::io::Result<PreparedBuiltin>;
}

/// The steps and files of one build of a builtin template.
#[derive(Debug, Clone)]
pub struct PreparedBuiltin {
    /// Its steps.
    pub plan: Plan,
    /// The archives (tar) that its steps copy from.
    pub files: Vec<(FilesHash, Vec<u8>)>,
}

/// The registered builtin templates.
#[derive(Default)]
pub(crate) struct BuiltinTemplates(RwLock<Vec<Arc<BuiltinTemplate>>>);

impl BuiltinTemplates {
    /// Registers a template that is built when it is first requested.
    pub(crate) fn register(&self, template: BuiltinTemplate) {
        self.0.write().push(Arc::new(template));
    }

    /// The registered template with this name.
    pub(crate) fn find(&self, name: &TemplateName) -> Option<Arc<BuiltinTemplate>> {
        let all = self.0.read();
        all.iter().find(|template| template.name == *name).cloned()
    }

    /// The names of all registered templates, for an error message.
    pub(crate) fn names(&self) -> String {
        let all = self.0.read();
        let names: Vec<&str> = all.iter().map(|template| template.name.as_str()).collect();
        if names.is_empty() {
            return "none".to_owned();
        }
        names.join(", ")
    }

    /// `over` as the builtin template that `build` has made: public, and owned by no team.
    pub(super) fn template_of(&self, build: &BuildRecord, over: Template) -> Template {
        let builtin = self.find(&build.name);
        let description = builtin.map(|builtin| builtin.description.clone());
        Template {
            team: None,
            public: true,
            description: description.unwrap_or_default(),
            ..over
        }
    }
}
