//! Requests to previews.

use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use shoal_core::id::SandboxId;
use shoal_core::ports::sessions::preview::{Forwarding, Preview, Previews, Waking};
use shoal_core::routes::{Lookup, Visit};
use shoal_core::session::preview::{PREVIEW_PORT, PreviewName};
use shoal_core::template::RuntimeName;
use shoal_protocol::{ENVD_PORT, INTERPRETER_PORT};

use super::exchange::{give_back, prepare, version};
use super::send::send;
use super::{AuthenticatedBy, Client, Gateway, GatewayBody, answer_of};
use crate::answer::{AnswerForm, Refusal, Unreached};
use crate::preview;
use crate::target::Target;
use crate::tunnel::Upgrade;
use crate::upstream::BoxError;

impl Gateway {
    /// A gateway to these previews too.
    #[must_use]
    pub fn with_previews(self, previews: Arc<dyn Previews>) -> Self {
        Self { previews, ..self }
    }

    /// The preview that a request names; none for other hosts. Call it before all others: the host decides.
    #[must_use]
    pub fn preview<B>(&self, request: &Request<B>) -> Option<PreviewName> {
        let domain = &self.shared.preview_domain;
        preview::find(request.headers(), request.uri(), domain)
    }

    /// Forwards a request to the public port of a session, and returns the answer. Knowing the name is enough.
    pub async fn proxy_preview<B>(
        &self,
        mut request: Request<B>,
        name: PreviewName,
        client: Client,
    ) -> Response<GatewayBody>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        self.check_proxy_headers(request.headers_mut(), client);
        let form = AnswerForm::of(request.headers());
        let (answer, runtime) = self.reach_preview(request, &name, client).await;
        let answer = answer.unwrap_or_else(|unreached| answer_of(unreached.answer(form)));
        self.shared.counts.add(&answer, runtime.as_ref());
        answer
    }

    async fn reach_preview<B>(
        &self,
        request: Request<B>,
        name: &PreviewName,
        client: Client,
    ) -> (
        Result<Response<GatewayBody>, Unreached>,
        Option<RuntimeName>,
    )
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let PreviewName::Hash(hash) = name else {
            return (Err(Unreached::Unknown), None);
        };
        let Some(preview) = self.previews.find(hash) else {
            return (Err(Unreached::Unknown), None);
        };
        let Preview {
            machine,
            forwarding,
            wakes,
        } = preview;
        if let (Some(machine), Some(forwarding)) = (&machine, &forwarding) {
            let passed = self.reach_external(request, machine, forwarding, client);
            let passed = passed.await.map_err(|refusal| match refusal {
                // Its session has just let it go.
                Refusal::NotFound => Unreached::Asleep,
                refusal => Unreached::Refused {
                    looks_again: false,
                    refusal,
                },
            });
            return (passed, None);
        }
        let Some(sandbox) = machine.filter(|machine| self.is_up(machine)) else {
            let unreached = match self.previews.wake(hash) {
                Waking::Begun(_) | Waking::Going => Unreached::Waking,
                Waking::NotFor(time) => Unreached::Resting(time),
                Waking::Never => Unreached::Asleep,
            };
            return (Err(unreached), None);
        };
        let target = Target {
            sandbox,
            port: PREVIEW_PORT,
        };
        let (passed, runtime) = self
            .pass_on(request, &target, client, AuthenticatedBy::Preview)
            .await;
        (passed.map_err(|refusal| unreached(refusal, wakes)), runtime)
    }

    /// Forwards a request to an external machine. It has no runs: it ends when its session does not use it any more.
    async fn reach_external<B>(
        &self,
        request: Request<B>,
        machine: &SandboxId,
        forwarding: &Forwarding,
        client: Client,
    ) -> Result<Response<GatewayBody>, Refusal>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let target = Target {
            sandbox: machine.clone(),
            port: PREVIEW_PORT,
        };
        let asked = Upgrade::of(&request)?;
        let slot = self.slot(&target)?;
        let (http2, asked) = version(&request, asked);
        let (forwarded, client_side) = prepare(request, &target, None, client, &asked, http2)?;
        let upstream = self.external_upstream(machine, forwarding);
        let mut ended = forwarding.ports.closed();
        let (response, stream) = tokio::select! {
            sent = send(&upstream, target.port, forwarded, http2) => sent?,
            () = &mut ended => return Err(Refusal::NotFound),
        };
        let held = (slot, stream, Visit::default());
        give_back(response, client_side, &asked, ended, held, None)
    }

    /// Whether a machine runs, or will run or end soon without anybody's help.
    fn is_up(&self, machine: &SandboxId) -> bool {
        match self.shared.routes.lookup(machine) {
            Lookup::Running(_) | Lookup::Parked(_) | Lookup::Busy => true,
            Lookup::Resumable(_) | Lookup::Paused | Lookup::Failed(_) | Lookup::Unknown => false,
        }
    }

    /// Refuses a port of a session's machine to all but its preview. The daemon has its own tokens.
    pub(super) fn check_machine(
        &self,
        target: &Target,
        authenticated: AuthenticatedBy,
    ) -> Result<(), Refusal> {
        let is_own = matches!(target.port, ENVD_PORT | INTERPRETER_PORT);
        let may_pass = is_own || authenticated == AuthenticatedBy::Preview;
        if may_pass || !self.previews.is_machine(&target.sandbox) {
            return Ok(());
        }
        Err(Refusal::OnlyPreview)
    }
}

/// Why the machine of a preview was not reached.
fn unreached(refusal: Refusal, wakes: bool) -> Unreached {
    match refusal {
        // It ends or starts at this moment.
        Refusal::NotFound | Refusal::Paused | Refusal::Failed(_) | Refusal::Busy => {
            Unreached::Waking
        }
        refusal => Unreached::Refused {
            looks_again: wakes && refusal == Refusal::PortClosed,
            refusal,
        },
    }
}
