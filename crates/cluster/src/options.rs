//! Options of a create that clients send as metadata (OpenKruise's `e2b.agents.kruise.io/…`).

use std::collections::BTreeMap;
use std::time::Duration;

use shoal_core::ports::create::CreateError;
use shoal_crds::kruise::names::{E2B_PREFIX, PREFIX, annotation};

/// How long a pause keeps a sandbox: forever, in the words of the clients.
pub(crate) const FOR_EVER: &str = "forever";

/// The options.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Options {
    /// The daemon inside is not initialized, so that the sandbox has no token.
    pub(crate) skip_init: bool,
    /// How long to look for a sandbox in the pool.
    pub(crate) claim_timeout: Option<Duration>,
    /// How long the sandbox may take to become ready.
    pub(crate) ready_timeout: Option<Duration>,
    /// Whether to create none when the pool is empty.
    pub(crate) pooled_only: bool,
    /// How long a sandbox stays that did not become ready: none deletes it at once.
    pub(crate) keep_failed: Option<Keep>,
    /// The annotation about how long a pause keeps the sandbox.
    pub(crate) keep_paused: Option<String>,
    /// Whether responses have the address of the pod.
    pub(crate) return_ip: bool,
}

/// How long something stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    /// Until it is deleted.
    ForEver,
    /// This long.
    For(Duration),
}

impl Options {
    /// Takes the options out of the metadata of a request.
    ///
    /// # Errors
    /// Names the key that is unknown, or whose value is invalid.
    pub(crate) fn take(metadata: &mut BTreeMap<String, String>) -> Result<Self, CreateError> {
        let mut options = Self::default();
        let keys = metadata.keys().filter(|key| key.starts_with(E2B_PREFIX));
        let keys: Vec<String> = keys.cloned().collect();
        for key in keys {
            let value = metadata.remove(&key).unwrap_or_default();
            options.set(&key, &value)?;
        }
        match metadata.keys().find(|key| key.starts_with(PREFIX)) {
            Some(key) => Err(bad(key, "is reserved")),
            None => Ok(options),
        }
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), CreateError> {
        match key.strip_prefix(E2B_PREFIX).unwrap_or_default() {
            "skip-init-runtime" => self.skip_init = flag(key, value)?,
            "claim-timeout-seconds" => self.claim_timeout = Some(seconds(key, value)?),
            "wait-ready-timeout-seconds" => self.ready_timeout = Some(seconds(key, value)?),
            "create-on-no-stock" => self.pooled_only = !flag(key, value)?,
            "reserve-failed-sandbox" => {
                if flag(key, value)? && self.keep_failed.is_none() {
                    self.keep_failed = Some(Keep::ForEver);
                }
            }
            "reserve-failed-sandbox-for" if value == "never" => self.keep_failed = None,
            "reserve-failed-sandbox-for" => self.keep_failed = Some(keep(key, value)?),
            "reserve-paused-sandbox-duration" => {
                keep(key, value)?;
                self.keep_paused = Some(value.to_owned());
            }
            // The API layer has read these.
            "cpu-scale-factor" | "cpu-request" | "cpu-limit" | "cpu-resize-early-return" => {}
            _ if key == annotation::RETURN_SANDBOX_IP => self.return_ip = flag(key, value)?,
            _ => return Err(bad(key, "is not known here")),
        }
        Ok(())
    }

    /// How long a pause keeps the sandbox.
    pub(crate) fn kept_paused(&self) -> Keep {
        kept_paused(self.keep_paused.as_deref())
    }
}

/// How long a pause keeps a sandbox with this annotation. An invalid one keeps it forever.
pub(crate) fn kept_paused(annotation: Option<&str>) -> Keep {
    let keep = annotation.and_then(|value| keep("", value).ok());
    keep.unwrap_or(Keep::ForEver)
}

fn keep(key: &str, value: &str) -> Result<Keep, CreateError> {
    if value == FOR_EVER {
        return Ok(Keep::ForEver);
    }
    let time = shoal_core::quantity::duration(value).filter(|time| !time.is_zero());
    time.map(Keep::For)
        .ok_or_else(|| bad(key, "must be `forever` or a time like 30s, 5m or 24h"))
}

fn flag(key: &str, value: &str) -> Result<bool, CreateError> {
    match value {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(bad(key, "must be true or false")),
    }
}

fn seconds(key: &str, value: &str) -> Result<Duration, CreateError> {
    let seconds = value.parse().ok().filter(|seconds| *seconds <= 1 << 31);
    seconds
        .map(Duration::from_secs)
        .ok_or_else(|| bad(key, "must be a number of seconds"))
}

fn bad(key: &str, rule: &str) -> CreateError {
    CreateError::InvalidOption(format!("Bad extension param: metadata `{key}` {rule}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(pairs: &[(&str, &str)]) -> Result<(Options, BTreeMap<String, String>), CreateError> {
        let text = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        let mut metadata = pairs.iter().map(text).collect();
        Options::take(&mut metadata).map(|options| (options, metadata))
    }

    #[test]
    fn options_are_taken_out_of_the_metadata() {
        let (options, rest) = take(&[
            ("purpose", "test"),
            ("e2b.agents.kruise.io/create-on-no-stock", "false"),
            ("e2b.agents.kruise.io/wait-ready-timeout-seconds", "7"),
            ("e2b.agents.kruise.io/reserve-failed-sandbox", "true"),
            ("e2b.agents.kruise.io/reserve-failed-sandbox-for", "5m"),
            ("e2b.agents.kruise.io/return-sandbox-ip", "true"),
            ("e2b.agents.kruise.io/cpu-scale-factor", "2"),
        ])
        .unwrap();
        let expected = Options {
            pooled_only: true,
            ready_timeout: Some(Duration::from_secs(7)),
            keep_failed: Some(Keep::For(Duration::from_secs(300))),
            return_ip: true,
            ..Options::default()
        };
        assert_eq!(options, expected);
        assert_eq!(rest.into_keys().collect::<Vec<_>>(), ["purpose"]);
    }

    #[test]
    fn the_later_key_about_failed_sandboxes_wins() {
        let never = take(&[
            ("e2b.agents.kruise.io/reserve-failed-sandbox", "true"),
            ("e2b.agents.kruise.io/reserve-failed-sandbox-for", "never"),
        ]);
        assert_eq!(never.unwrap().0.keep_failed, None);
    }

    #[test]
    fn an_unknown_option_and_an_invalid_value_are_named() {
        for (key, value) in [
            ("e2b.agents.kruise.io/image", "x"),
            ("e2b.agents.kruise.io/unknown", "x"),
            ("e2b.agents.kruise.io/skip-init-runtime", "yes"),
            ("e2b.agents.kruise.io/claim-timeout-seconds", "-1"),
            ("e2b.agents.kruise.io/reserve-paused-sandbox-duration", "0s"),
            ("agents.kruise.io/owner", "me"),
        ] {
            let error = take(&[(key, value)]).unwrap_err().to_string();
            assert!(error.contains(key), "{error}");
        }
    }

    #[test]
    fn a_pause_keeps_for_ever_unless_told() {
        assert_eq!(kept_paused(None), Keep::ForEver);
        assert_eq!(kept_paused(Some("nonsense")), Keep::ForEver);
        assert_eq!(
            kept_paused(Some("24h")),
            Keep::For(Duration::from_secs(86_400))
        );
    }
}
