//! Error texts that name a request's field, a command of the CLI, or a phrase of E2B's.
//!
//! The errors of the ports are neutral; this module adds what clients look for.

use shoal_core::id::SandboxId;
use shoal_core::ports::inside::InsideError;
use shoal_core::ports::sandboxes::TimeoutTooLong;
use shoal_core::template::{RuntimeName, TemplateName};

/// E2B's text for a timeout of zero.
pub(super) const NO_TIMEOUT: &str = "Timeout must be greater than 0";

/// E2B's text for a timeout above the limit, which its clients match.
pub(super) fn timeout_too_long(error: TimeoutTooLong) -> String {
    let hours = error.most.as_secs().div_ceil(3600);
    format!("Timeout cannot be greater than {hours} hours")
}

/// A pause or a snapshot without memory whose files did not reach the disk.
pub(super) fn not_synced(error: &InsideError) -> String {
    format!(
        "what the sandbox has written did not reach its disk, so nothing was saved and it runs on \
         ({error}): try again, keep its memory too (`memory: true`), or end it"
    )
}

/// A runtime that cannot save memory, although the request needs it.
pub(super) fn cannot_keep_memory(runtime: &RuntimeName) -> String {
    format!(
        "runtime {runtime} cannot keep memory in a pause: use autoPauseMemory: false, or the runtime \
         runsc"
    )
}

/// A first build in progress, and how to watch it.
pub(super) fn being_built(message: &str, build: &str) -> String {
    format!("{message}: try again then; `shoal template build --watch {build}` shows how far it is")
}

/// A failed build, and when it is retried.
pub(super) fn not_built(message: &str, template: &TemplateName) -> String {
    format!(
        "{message}; it is tried again a minute later, and at once when an admin runs `shoal template \
         build {template}`"
    )
}

/// A template that the caller's key may not build, and which keys may.
pub(super) fn admins_only(template: &TemplateName) -> String {
    format!(
        "template '{template}' is not built on this installation yet: an admin key builds it (`shoal \
         template build {template}`), or any key does when the operator sets \
         templates.build_on_demand=any"
    )
}

/// A snapshot whose memory contains a valid token, and how to revoke the token.
pub(super) fn live_token(sandbox: &SandboxId) -> String {
    format!(
        "the memory in it holds the access token of sandbox {sandbox}, which is still there: `shoal \
         sandbox rotate-token {sandbox}` or `shoal sandbox kill {sandbox}` first, or export a snapshot \
         of the files alone"
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn an_answer_names_the_field_or_the_command_that_helps() {
        let gone = InsideError::TimedOut;
        assert!(not_synced(&gone).contains("`memory: true`"));
        let template = "base".parse().unwrap();
        assert!(admins_only(&template).contains("`shoal template build base`"));
        assert!(not_built("no", &template).contains("`shoal template build base`"));
        assert!(being_built("soon", "b1").contains("`shoal template build --watch b1`"));
        let sandbox = "ia".parse().unwrap();
        assert!(live_token(&sandbox).contains("`shoal sandbox rotate-token ia`"));
        let runtime = "runc".parse().unwrap();
        assert!(cannot_keep_memory(&runtime).contains("autoPauseMemory: false"));
    }

    #[test]
    fn a_timeout_that_is_too_long_is_told_in_whole_hours() {
        let told = |seconds| {
            let most = Duration::from_secs(seconds);
            timeout_too_long(TimeoutTooLong { most })
        };
        assert_eq!(told(86_400), "Timeout cannot be greater than 24 hours");
        assert_eq!(told(3_601), "Timeout cannot be greater than 2 hours");
    }
}
