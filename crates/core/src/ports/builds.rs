//! Builds of templates, and the files that clients upload for them.

use std::io;
use std::sync::Arc;

use bytes::Bytes;

use crate::BoxFuture;
use crate::auth::Principal;
use crate::build::{
    BuildLogEntry, BuildRecord, BuildStatus, FilesHash, InvalidPlan, LogLevel, Plan,
};
use crate::id::{BuildId, TeamId, TemplateId};
use crate::limits::NotGranted;
use crate::ports::{NoEntropy, NotServed};
use crate::resources::Resources;
use crate::store::StoreError;
use crate::template::{TemplateName, TemplateRef};

/// A build to announce.
#[derive(Debug, Clone)]
pub struct BuildRequest {
    /// The name of the template, new or known, with a tag for the build if one is given.
    pub name: TemplateRef,
    /// More tags for the build.
    pub tags: Vec<String>,
    /// The limits of the template's sandboxes.
    pub resources: Resources,
}

/// Why a build was not announced, started or cancelled.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The name is in another team's namespace.
    #[error("'{0}' is in the namespace of another team")]
    Namespace(TemplateRef),
    /// A template of the installation, or a snapshot, has this name.
    #[error("the name '{0}' is taken: choose another")]
    Taken(TemplateName),
    /// No such build exists, or it belongs to another team.
    #[error("build {0} was not found")]
    NotFound(BuildId),
    /// The build has started already.
    #[error("build {0} is not waiting: it is {status}", status = .1.as_str())]
    NotWaiting(BuildId, BuildStatus),
    /// The team has reached its limit of builds that run or are queued.
    #[error("you have reached the limit of {0} builds at once: wait for one to end")]
    TooMany(usize),
    /// The team has reached its limit of builds that are announced and not started.
    #[error("{0} builds are announced and not begun: begin or cancel them")]
    TooManyAnnounced(usize),
    /// The plan is invalid.
    #[error(transparent)]
    Plan(#[from] InvalidPlan),
    /// A limit is invalid, or more than a sandbox may have.
    #[error(transparent)]
    Resources(#[from] NotGranted),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The system has no randomness.
    #[error(transparent)]
    Entropy(#[from] NoEntropy),
    /// The backend does not serve this.
    #[error(transparent)]
    NotServed(#[from] NotServed),
}

/// Why a template of the installation is not being built.
#[derive(Debug, thiserror::Error)]
pub enum BuiltinError {
    /// The installation has no definition of that name.
    #[error("the installation does not know how to build '{name}': it can build {known}")]
    Unknown {
        /// The name that was asked for.
        name: TemplateName,
        /// The names of the definitions that exist.
        known: String,
    },
    /// It is built already, and all teams use it.
    #[error("template '{0}' is built already: only an admin key may build it anew")]
    Forbidden(TemplateName),
    /// It is not built yet, and the caller may not begin its build.
    #[error(
        "template '{0}' is not built on this installation yet: an admin key builds it, or any key does \
         when the operator sets templates.build_on_demand=any"
    )]
    AdminsOnly(TemplateName),
    /// Its last build failed a moment ago.
    #[error(
        "template '{0}' could not be built: {1}; it can be tried again a minute later, by an admin key \
         at once"
    )]
    NotBuilt(TemplateName, String),
    /// The files that its build copies cannot be prepared.
    #[error("the build of '{0}' cannot be prepared: the server's log says why")]
    Files(TemplateName, #[source] io::Error),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The system has no randomness.
    #[error(transparent)]
    Entropy(#[from] NoEntropy),
    /// The backend does not serve this.
    #[error(transparent)]
    NotServed(#[from] NotServed),
}

/// Why an uploaded archive was not kept.
#[derive(Debug, thiserror::Error)]
pub enum UploadError {
    /// The archives that the team's unfinished builds need leave no room for this one.
    #[error(
        "the archives of a team have at most {0} bytes in all, and what its builds need that have \
         not ended leaves no room for this one: wait until they have, cancel those that nobody will \
         begin, or copy less"
    )]
    Full(u64),
    /// The archives of all teams have reached their limit, or the disk is nearly full.
    #[error(
        "the archives of all teams have at most {0} bytes here, and there is no room for this one: try \
         again later"
    )]
    AllFull(u64),
    /// The archive is larger than one may be.
    #[error("an archive has at most {0} bytes")]
    TooLarge(u64),
    /// The archive cannot be written.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The backend does not serve this.
    #[error(transparent)]
    NotServed(#[from] NotServed),
}

/// Builds of templates: announce, start, watch, cancel.
///
/// A template of which no build has succeeded yet is known by its builds alone.
pub trait Builds: Send + Sync {
    /// Announces a build of a new template, or of the one with this name.
    ///
    /// # Errors
    /// See [`BuildError`].
    fn announce<'a>(
        &'a self,
        principal: &'a Principal,
        new: BuildRequest,
    ) -> BoxFuture<'a, Result<Arc<BuildRecord>, BuildError>>;

    /// Begins an announced build, which continues by itself.
    ///
    /// # Errors
    /// See [`BuildError`].
    fn begin<'a>(
        &'a self,
        principal: &'a Principal,
        id: BuildId,
        plan: Plan,
    ) -> BoxFuture<'a, Result<(), BuildError>>;

    /// Cancels a build that has not finished.
    ///
    /// # Errors
    /// See [`BuildError`].
    fn cancel<'a>(
        &'a self,
        principal: &'a Principal,
        id: BuildId,
    ) -> BoxFuture<'a, Result<(), BuildError>>;

    /// Builds a template of the installation, for the first time or anew, or joins the build that
    /// runs. `force` is for admins.
    ///
    /// # Errors
    /// See [`BuiltinError`].
    fn build_builtin<'a>(
        &'a self,
        principal: &'a Principal,
        name: &'a TemplateName,
        force: bool,
    ) -> BoxFuture<'a, Result<Arc<BuildRecord>, BuiltinError>>;

    /// A build that `principal` may see.
    fn get<'a>(
        &'a self,
        principal: &'a Principal,
        id: BuildId,
    ) -> BoxFuture<'a, Option<Arc<BuildRecord>>>;

    /// The log of a build, from this severity on.
    ///
    /// # Errors
    /// When the store cannot be read.
    fn log(
        &self,
        id: BuildId,
        level: LogLevel,
    ) -> BoxFuture<'_, Result<Vec<BuildLogEntry>, StoreError>>;

    /// The builds of a template, the newest first. Never waits.
    fn of_template(&self, template: &TemplateId) -> Vec<Arc<BuildRecord>>;

    /// The latest build of each template without a successful one. Never waits.
    fn pending_templates(&self, principal: &Principal) -> Vec<Arc<BuildRecord>>;

    /// The same for the template that `reference` names. Never waits.
    fn pending_template(
        &self,
        principal: &Principal,
        reference: &TemplateRef,
    ) -> Option<Arc<BuildRecord>>;
}

/// The archives that clients upload for builds, each named by a digest of its files.
pub trait Uploads: Send + Sync {
    /// Signs the right of a team to upload these files, until a Unix second.
    fn sign(&self, team: TeamId, hash: &FilesHash, expires: i64) -> String;

    /// Whether a signature gives that right.
    fn is_signed(&self, team: TeamId, hash: &FilesHash, expires: i64, signature: &str) -> bool;

    /// Whether a team has uploaded these files.
    fn has<'a>(&'a self, team: TeamId, hash: &'a FilesHash) -> BoxFuture<'a, bool>;

    /// The largest archive, in bytes.
    fn max_bytes(&self) -> u64;

    /// Begins an upload. A second upload of the same archive waits for the first.
    ///
    /// # Errors
    /// See [`UploadError`].
    fn begin<'a>(
        &'a self,
        team: TeamId,
        hash: &'a FilesHash,
    ) -> BoxFuture<'a, Result<Box<dyn Upload>, UploadError>>;
}

/// An archive that is being uploaded. Dropping it discards it.
pub trait Upload: Send {
    /// Appends a piece, once there is room for it.
    ///
    /// # Errors
    /// See [`UploadError`].
    fn write(&mut self, piece: Bytes) -> BoxFuture<'_, Result<(), UploadError>>;

    /// Keeps the archive for the builds of the team, and waits until it is on disk.
    ///
    /// # Errors
    /// See [`UploadError`].
    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<(), UploadError>>;
}
