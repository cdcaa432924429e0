//! The filter of the log.

use shoal_core::similar::nearest;
use tracing_subscriber::EnvFilter;

const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];

/// Checks a list of levels and `target=level`. Other single words are refused: the filter would take
/// them for targets and log nothing.
///
/// # Errors
/// The mistake, with a suggestion.
pub(super) fn check(text: &str) -> Result<(), String> {
    for part in text.split(',') {
        let level = part.rsplit_once('=').map_or(part, |(_, level)| level);
        let level = level.trim().to_ascii_lowercase();
        if !LEVELS.contains(&level.as_str()) {
            let near = nearest(&level, LEVELS);
            let meant = near.map_or_else(String::new, |known| format!("; did you mean {known}?"));
            return Err(format!(
                "{part:?} is neither a level ({}) nor <target>=<level>{meant}",
                LEVELS.join(", ")
            ));
        }
    }
    EnvFilter::builder()
        .parse(text)
        .map(|_| ())
        .map_err(|error| format!("{text:?} is not a valid filter: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_and_targets_with_levels_are_filters() {
        for good in [
            "warn",
            "INFO",
            "off",
            "info,shoal_engine=debug",
            "shoal_node::network=trace, warn",
        ] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
    }

    #[test]
    fn a_word_that_would_silence_everything_is_refused() {
        for (bad, part) in [
            ("wran", "did you mean warn?"),
            ("info,shoal_engine", "\"shoal_engine\" is neither a level"),
            ("shoal_engine=verbose", "<target>=<level>"),
            ("info,", "\"\" is neither"),
        ] {
            let why = check(bad).unwrap_err();
            assert!(why.contains(part), "{why}");
        }
    }
}
