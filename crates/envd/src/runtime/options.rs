//! The configuration of the runtime API: environment variables, as an image's author sets them.

use std::time::Duration;

/// The directory of files and commands, and its default.
const DIRECTORY: (&str, &str) = ("SANDBOX_BASE_DIR", "/app");

/// The time limit of a command in seconds, and its default.
const TIME_LIMIT: (&str, Duration) = ("SANDBOX_EXEC_TIMEOUT_SECONDS", Duration::from_secs(300));

/// The configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Options {
    /// The directory that files are below, and commands begin in.
    pub(super) directory: String,
    /// The time limit of a command.
    pub(super) time_limit: Duration,
}

impl Options {
    /// Reads the variables. A time limit that is no positive number counts as unset.
    pub(super) fn from_environment(value: impl Fn(&str) -> Option<String>) -> Self {
        let directory = value(DIRECTORY.0).map(|text| text.trim().to_owned());
        let seconds = value(TIME_LIMIT.0).and_then(|text| text.trim().parse().ok());
        Self {
            directory: directory
                .filter(|text| !text.is_empty())
                .unwrap_or_else(|| DIRECTORY.1.to_owned()),
            time_limit: seconds.and_then(positive).unwrap_or(TIME_LIMIT.1),
        }
    }
}

/// A positive number of seconds as a duration.
pub(super) fn positive(seconds: f64) -> Option<Duration> {
    let duration = Duration::try_from_secs_f64(seconds).ok()?;
    (!duration.is_zero()).then_some(duration)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(directory: &str, seconds: &str) -> Options {
        Options::from_environment(|name| match name {
            "SANDBOX_BASE_DIR" => Some(directory.to_owned()),
            "SANDBOX_EXEC_TIMEOUT_SECONDS" => Some(seconds.to_owned()),
            _ => None,
        })
    }

    #[test]
    fn unusable_values_count_as_unset() {
        let unset = Options::from_environment(|_| None);
        assert_eq!(unset.directory, "/app");
        assert_eq!(unset.time_limit, Duration::from_secs(300));
        for seconds in ["", "soon", "0", "-1", "nan", "inf", "1e300"] {
            assert_eq!(options(" ", seconds), unset, "{seconds}");
        }
        let set = options(" /work ", "0.5");
        assert_eq!(set.directory, "/work");
        assert_eq!(set.time_limit, Duration::from_millis(500));
    }
}
