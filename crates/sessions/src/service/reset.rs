//! The confirmation of a reset.

use std::time::Duration;

use shoal_core::ports::sessions::events::SessionFact;
use shoal_core::ports::sessions::{Reset, ResetQuestion, SessionError};

use super::live::Live;
use super::machine::Keep;
use super::{Service, random};

/// How long a question may be answered.
const ANSWER: Duration = Duration::from_secs(300);

impl Service {
    /// Ends the machine when `token` answers the question; asks it without a token.
    pub(super) async fn reset(
        &self,
        live: &Live,
        token: Option<&str>,
    ) -> Result<Reset, SessionError> {
        let Some(token) = token else {
            let question = ResetQuestion {
                token: format!("{:032x}", u128::from_be_bytes(random()?)),
                until: self.now() + ANSWER,
            };
            *live.question.lock() = Some(question.clone());
            return Ok(Reset::Asked(question));
        };
        let now = self.now();
        let answered =
            |question: &mut ResetQuestion| question.token == token && now < question.until;
        live.question
            .lock()
            .take_if(answered)
            .ok_or(SessionError::NotConfirmed)?;
        live.events.tell(SessionFact::Reset);
        Ok(Reset::Done(self.end(live, Keep::IfPossible).await?))
    }
}
