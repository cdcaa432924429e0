//! Checks of the machine.

use axum::extract::State;
use shoal_core::ports::doctor::Health;
use shoal_protocol::native::Finding;

use super::admin::Admin;
use super::answer::Answer;
use crate::backend::Backend;
use crate::error::ApiError;

/// `GET /doctor`: the findings of the machine, problems first.
pub(super) async fn examine(
    State(backend): State<Backend>,
    _: Admin,
) -> Result<Answer<Vec<Finding>>, ApiError> {
    let mut findings = backend.doctor.examine().await?;
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.health));
    let shown = findings.into_iter().map(|finding| Finding {
        what: finding.what.to_owned(),
        health: health(finding.health).to_owned(),
        detail: finding.detail,
        cure: finding.cure,
    });
    Ok(Answer::ok(shown.collect()))
}

fn health(health: Health) -> &'static str {
    match health {
        Health::Good => "good",
        Health::Warning => "warning",
        Health::Missing => "missing",
    }
}
