//! Builds: creating a template from an image or another template by running steps.

mod plan;
mod record;
mod state;

pub use self::plan::{
    Action, Base, FilesHash, InvalidFilesHash, InvalidPlan, Plan, Source, Stage, Step,
};
pub use self::record::{
    BuildFailure, BuildLayer, BuildLogEntry, BuildOutput, BuildRecord, BuildStatus, Part,
    StartCommand,
};
pub use self::state::{BUILD_USER, BUILD_WORKDIR, BuildState, is_name};
pub use crate::log_level::LogLevel;
