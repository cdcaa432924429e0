//! The tokens that ports of a sandbox require.

use http::HeaderMap;
use shoal_core::auth::Token;
use shoal_core::id::KeyId;
use shoal_core::routes::WakeAuth;
use shoal_protocol::ENVD_PORT;
use shoal_protocol::headers::ACCESS_TOKEN;

use crate::answer::Refusal;
use crate::forward::TRAFFIC_TOKEN;
use crate::target::Target;

/// The credential that authenticated a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AuthenticatedBy {
    /// Nothing yet: the sandbox's tokens decide.
    Tokens,
    /// A key of the sandbox's team, until it is deleted.
    Key(KeyId),
    /// The name of a preview, for the public port of its session's machine.
    Preview,
}

/// Checks the tokens for the requested port.
pub(super) fn may_wake(
    auth: &WakeAuth,
    target: &Target,
    headers: &HeaderMap,
) -> Result<(), Refusal> {
    check_traffic_token(auth.traffic_access_token.as_ref(), target, headers)?;
    let envd = auth.envd_access_token.as_ref();
    if let Some(token) = envd.filter(|_| target.port == ENVD_PORT) {
        let offered = headers
            .get(&ACCESS_TOKEN)
            .and_then(|text| text.to_str().ok());
        if !offered.is_some_and(|offered| token.matches(offered)) {
            return Err(Refusal::MayNotWake);
        }
    }
    Ok(())
}

/// Checks the traffic token, which every port of a private sandbox requires, except the daemon's, which
/// has its own token.
pub(super) fn check_traffic_token(
    token: Option<&Token>,
    target: &Target,
    headers: &HeaderMap,
) -> Result<(), Refusal> {
    let Some(token) = token.filter(|_| target.port != ENVD_PORT) else {
        return Ok(());
    };
    let offered = headers.get(&TRAFFIC_TOKEN).ok_or(Refusal::TokenMissing)?;
    let good = offered.to_str().is_ok_and(|offered| token.matches(offered));
    if good {
        Ok(())
    } else {
        Err(Refusal::TokenInvalid)
    }
}
