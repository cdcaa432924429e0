//! Templates, their tags, and the sandboxes that use them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::BoxFuture;
use crate::auth::Principal;
use crate::catalogue::ResolveError;
use crate::clock::Timestamp;
use crate::id::{BuildId, SandboxId, TemplateId};
use crate::image::{ImageError, ImageName};
use crate::limits::NotGranted;
use crate::ports::create::CreateError;
use crate::ports::resolve::{Explained, Resolved};
use crate::ports::{NoEntropy, NotServed};
use crate::resources::{MilliCpu, Resources};
use crate::snapshot::Contents;
use crate::store::StoreError;
use crate::template::{
    InvalidTemplateRef, RuntimeName, Template, TemplateKey, TemplateName, TemplateRef,
};

/// How many ids of sandboxes an error lists.
const USERS_SHOWN: usize = 10;

/// A template over an image, to be made.
#[derive(Debug, Clone)]
pub struct TemplateRequest {
    /// Its name.
    pub name: TemplateName,
    /// The image.
    pub image: ImageName,
    /// Limits of its sandboxes.
    pub resources: Resources,
    /// The OCI runtime; the default when absent.
    pub runtime: Option<RuntimeName>,
    /// The user of commands; the image's when absent.
    pub user: Option<String>,
    /// The working directory of commands; the image's when absent.
    pub workdir: Option<String>,
    /// Environment over the image's.
    pub env: BTreeMap<String, String>,
    /// The default contents of a pause or a snapshot of its sandboxes.
    pub persistent: Contents,
    /// The most processor time that its sandboxes can be given while they run.
    pub max_cpu: Option<MilliCpu>,
    /// Whether other teams may use it.
    pub public: bool,
    /// One line for people.
    pub description: String,
}

/// Why a template was not made.
#[derive(Debug, thiserror::Error)]
pub enum CreateTemplateError {
    /// A template, build or snapshot of the caller, or a template of the installation, has this name.
    #[error("there is a template '{0}' already: remove it first, or take another name")]
    NameTaken(TemplateName),
    /// The image has not been pulled or imported.
    #[error("image {0} is not here: pull or import it first")]
    ImageMissing(ImageName),
    /// A limit is invalid, or more than a sandbox may have.
    #[error(transparent)]
    Resources(#[from] NotGranted),
    /// The runtime is not available.
    #[error("there is no OCI runtime {asked} here; there are: {known}")]
    RuntimeMissing {
        /// The runtime that was asked for.
        asked: RuntimeName,
        /// The runtimes that are available, for people.
        known: String,
    },
    /// The images cannot be read.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The template was not kept.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// The system has no randomness.
    #[error(transparent)]
    Entropy(#[from] NoEntropy),
}

/// How often sandboxes were started from a template since the server started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Starts {
    /// The number of starts.
    pub count: u64,
    /// The time of the last one.
    pub last: Option<Timestamp>,
}

/// Why a template cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TemplateError {
    /// No such template exists, or the caller may not see it.
    #[error("template '{0}' not found")]
    NotFound(String),
    /// The base of a catalogue entry does not exist, or its team has not published it.
    #[error(
        "template '{entry}' is based on '{base}', which does not exist: build or save that first, or have \
         the catalogue say another"
    )]
    NoBase {
        /// The entry.
        entry: String,
        /// Its base.
        base: TemplateRef,
    },
    /// The text is not the name of a template.
    #[error(transparent)]
    Invalid(#[from] InvalidTemplateRef),
    /// A dynamic entry of the catalogue makes no valid image of the name.
    #[error(transparent)]
    Dynamic(#[from] ResolveError),
    /// The template has no such tag.
    #[error(
        "tag '{tag}' does not exist for template '{template}'{}",
        other_tags(known)
    )]
    NoTag {
        /// The tag.
        tag: String,
        /// The template, as the caller named it.
        template: TemplateRef,
        /// The tags that the template has.
        known: Vec<String>,
    },
    /// The tag is the default one or the last one, which a template keeps.
    #[error(
        "tag '{tag}' of template '{template}' cannot be removed alone: remove the whole template \
         by its name, '{template}'"
    )]
    KeptTag {
        /// The tag.
        tag: String,
        /// The template without its tag, as the caller named it.
        template: TemplateRef,
    },
    /// Sandboxes use it.
    #[error("template {0} is in use by {1}: end them first")]
    InUse(TemplateId, Users),
    /// It belongs to the installation, and only an admin may remove it.
    #[error("template {0} is a builtin template")]
    Builtin(TemplateId),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The backend does not serve this.
    #[error(transparent)]
    NotServed(#[from] NotServed),
}

impl TemplateError {
    /// `template` has no such tag; the error lists the tags that it has.
    #[must_use]
    pub fn no_tag(tag: &str, asked: TemplateRef, template: &Template) -> Self {
        Self::NoTag {
            tag: tag.to_owned(),
            template: asked,
            known: template.tags.keys().cloned().collect(),
        }
    }
}

fn other_tags(known: &[String]) -> String {
    if known.is_empty() {
        return String::new();
    }
    format!(": it has {}", known.join(", "))
}

/// Why tags were not changed.
#[derive(Debug, thiserror::Error)]
pub enum TagError {
    /// No such template exists, or it belongs to another team.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// The default tag cannot be removed.
    #[error("the tag 'default' cannot be removed")]
    Default,
    /// A template keeps its last tag.
    #[error("the last tag of a template stays: remove the template")]
    Last,
    /// A template over an image has no builds to tag.
    #[error("template '{0}' was not built: it has no tags")]
    NotBuilt(TemplateRef),
    /// The build is not ready, or was removed after it lost its last tag.
    #[error("there is nothing of build {0}: it is not ready, or no tag means it any more")]
    NotKept(BuildId),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The sandboxes that keep a template from being removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Users {
    /// The templates of the caller's team.
    pub own: Vec<SandboxId>,
    /// The number of other teams' sandboxes, whose ids the caller must not see.
    pub others: usize,
}

impl fmt::Display for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = self.own.len() + self.others;
        write!(f, "{total} sandbox{}", if total == 1 { "" } else { "es" })?;
        let shown = self.own.iter().take(USERS_SHOWN);
        let shown: Vec<&str> = shown.map(SandboxId::as_str).collect();
        if shown.is_empty() {
            return f.write_str(" of other teams");
        }
        write!(f, " ({}", shown.join(", "))?;
        match total - shown.len() {
            0 => f.write_str(")"),
            more => write!(f, " and {more} more)"),
        }
    }
}

/// The templates that teams and the installation have.
///
/// Reads come from a view in memory and never wait.
pub trait Templates: Send + Sync {
    /// Resolves the template and the image of a request.
    ///
    /// # Errors
    /// When the template is unknown, or the caller may not name an image.
    fn resolve(
        &self,
        principal: &Principal,
        template: Option<&TemplateKey>,
        image: Option<&ImageName>,
    ) -> Result<Resolved, CreateError>;

    /// The settings that a request with this template and this image would get, with the layer that sets each.
    ///
    /// # Errors
    /// As [`Templates::resolve`], and when images cannot be read.
    fn explain<'a>(
        &'a self,
        principal: &'a Principal,
        template: Option<&'a TemplateKey>,
        image: Option<&'a ImageName>,
    ) -> BoxFuture<'a, Result<Explained, CreateError>>;

    /// The template that `reference` means, in the build that its tag means.
    ///
    /// # Errors
    /// See [`TemplateError`].
    fn get(
        &self,
        principal: &Principal,
        reference: &TemplateRef,
    ) -> Result<Arc<Template>, TemplateError>;

    /// The template that `reference` names, regardless of its tag.
    fn find(&self, principal: &Principal, reference: &TemplateRef) -> Option<Arc<Template>>;

    /// The template with this id.
    fn by_id(&self, id: &TemplateId) -> Option<Arc<Template>>;

    /// Every template that `principal` may use, the newest first.
    fn list(&self, principal: &Principal) -> Vec<Arc<Template>>;

    /// How often sandboxes were started from a template since the server started.
    fn starts(&self, id: &TemplateId) -> Starts;

    /// Makes a template over an image.
    ///
    /// # Errors
    /// See [`CreateTemplateError`].
    fn create<'a>(
        &'a self,
        principal: &'a Principal,
        new: TemplateRequest,
    ) -> BoxFuture<'a, Result<Template, CreateTemplateError>>;

    /// Removes a template of the caller's team; an admin may remove one of the installation too. A
    /// reference with a tag removes that tag alone.
    ///
    /// # Errors
    /// [`TemplateError::InUse`] while sandboxes use it; [`TemplateError::KeptTag`] for a tag that a
    /// template keeps.
    fn delete<'a>(
        &'a self,
        principal: &'a Principal,
        reference: &'a TemplateRef,
    ) -> BoxFuture<'a, Result<(), TemplateError>>;

    /// Lets other teams use a template, or stops that.
    ///
    /// # Errors
    /// See [`TagError`].
    fn publish<'a>(
        &'a self,
        principal: &'a Principal,
        reference: &'a TemplateRef,
        public: bool,
    ) -> BoxFuture<'a, Result<(), TagError>>;

    /// Gives more tags to the build that `target` means, and returns its id.
    ///
    /// # Errors
    /// See [`TagError`].
    fn add_tags<'a>(
        &'a self,
        principal: &'a Principal,
        target: &'a TemplateRef,
        tags: &'a [String],
    ) -> BoxFuture<'a, Result<BuildId, TagError>>;

    /// Gives more tags to a build.
    ///
    /// # Errors
    /// See [`TagError`].
    fn add_tags_to_build<'a>(
        &'a self,
        principal: &'a Principal,
        build: BuildId,
        tags: &'a [String],
    ) -> BoxFuture<'a, Result<BuildId, TagError>>;

    /// Removes tags of a template; unknown ones are skipped.
    ///
    /// # Errors
    /// See [`TagError`].
    fn remove_tags<'a>(
        &'a self,
        principal: &'a Principal,
        template: &'a TemplateRef,
        tags: &'a [String],
    ) -> BoxFuture<'a, Result<(), TagError>>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_sandboxes_are_named_and_those_of_other_teams_are_counted() {
        let users = |own: usize, others| {
            let own = (0..own).map(|n| format!("i{n}").parse().unwrap()).collect();
            Users { own, others }.to_string()
        };
        assert_eq!(users(1, 0), "1 sandbox (i0)");
        assert_eq!(users(2, 1), "3 sandboxes (i0, i1 and 1 more)");
        assert_eq!(users(0, 2), "2 sandboxes of other teams");
        assert!(users(12, 0).ends_with("i9 and 2 more)"));
    }
}
