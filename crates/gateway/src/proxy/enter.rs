//! Requests that name their sandbox by the path.

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use shoal_core::catalog::NotAdmitted;

use super::{Client, Gateway, GatewayBody, Vouched, answer_of, count};
use crate::answer::Refusal;
use crate::door::{self, Door};
use crate::target::{InvalidTarget, Target};
use crate::upstream::BoxError;

impl Gateway {
    /// The sandbox that a request names by its path; none when it is for the API. Asked when
    /// [`Gateway::target`] has found nothing.
    ///
    /// # Errors
    /// When it names a port that cannot be.
    pub fn door<B>(&self, request: &Request<B>) -> Result<Option<Door>, InvalidTarget> {
        door::find(request.uri())
    }

    /// Passes a request on that names its sandbox by its path, and its answer back: for whoever
    /// shows a key of the sandbox's team, or its traffic token.
    pub async fn enter<B>(
        &self,
        mut request: Request<B>,
        door: Door,
        client: Client,
    ) -> Response<GatewayBody>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        self.weigh(request.headers_mut(), client);
        let asked = request.headers().clone();
        let (mut target, mut runtime) = (None, None);
        let answer = match self.admit(&door, &asked).await {
            Ok((found, vouched)) => match door.pass(&mut request) {
                Ok(()) => {
                    let found = &*target.insert(found);
                    let (passed, ran) = self.pass_on(request, found, client, vouched).await;
                    runtime = ran;
                    passed
                }
                Err(invalid) => Err(Refusal::Invalid(invalid)),
            },
            Err(refusal) => Err(refusal),
        };
        let mut answer =
            answer.unwrap_or_else(|refusal| answer_of(refusal.answer(&asked, target.as_ref())));
        door::disown(answer.headers_mut());
        count(&answer, runtime.as_ref());
        answer
    }

    /// Where a door leads, and whether whoever asks needs no more to be let in.
    async fn admit(
        &self,
        door: &Door,
        headers: &http::HeaderMap,
    ) -> Result<(Target, Vouched), Refusal> {
        let proof = Door::proof(headers).ok_or(Refusal::Unproven)?;
        let admitted = self.shared.catalog.admit(&door.name, proof).await;
        let admitted = admitted.map_err(|refused| match refused {
            NotAdmitted::Unproven => Refusal::Unproven,
            NotAdmitted::NotFound => Refusal::NotFound,
            NotAdmitted::Failed(_) => Refusal::Unknown,
        })?;
        let target = Target {
            sandbox: admitted.sandbox,
            port: door.port.unwrap_or(admitted.port),
        };
        let vouched = admitted.key.map_or(Vouched::ByNobody, Vouched::ByKey);
        Ok((target, vouched))
    }
}
