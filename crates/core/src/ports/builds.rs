//! Builds of templates, and the files that clients upload for them.

use std::io;

use crate::build::{BuildStatus, InvalidPlan};
use crate::id::BuildId;
use crate::limits::NotGranted;
use crate::ports::NoEntropy;
use crate::resources::Resources;
use crate::store::StoreError;
use crate::template::{TemplateName, TemplateRef};

/// A build to announce.
#[derive(Debug, Clone)]
pub struct NewBuild {
    /// The name of the template, new or known, with a tag for the build if one is given.
    pub name: TemplateRef,
    /// More tags for the build.
    pub tags: Vec<String>,
    /// The limits of the template's sandboxes.
    pub resources: Resources,
}

/// Why a build was not announced, begun or cancelled.
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
    /// The build has begun already.
    #[error("build {0} is not waiting: it is {status}", status = .1.as_str())]
    NotWaiting(BuildId, BuildStatus),
    /// The team has reached its limit of builds that run or are queued.
    #[error("you have reached the limit of {0} builds at once: wait for one to end")]
    TooMany(usize),
    /// The team has reached its limit of builds that are announced and not begun.
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
}

/// Why a template of the installation is not being built.
#[derive(Debug, thiserror::Error)]
pub enum StockError {
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
}
