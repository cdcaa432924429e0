//! Builds: creating a template from an image or another template by running steps.

mod plan;
mod record;
mod state;

pub use self::plan::{
    Action, Base, FilesHash, InvalidFilesHash, InvalidPlan, Plan, Source, Stage, Step,
};
pub use self::record::{
    BuildFailure, BuildRecord, BuildStatus, Layer, LogEntry, LogLevel, Made, Part, StartCommand,
};
pub use self::state::{BUILD_USER, BUILD_WORKDIR, BuildState, is_name};
