//! Requests with path-based URLs.

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use shoal_core::routes::NotAuthorized;

use super::{AuthenticatedBy, Client, Gateway, GatewayBody, answer_of};
use crate::answer::{AnswerForm, Refusal};
use crate::path_route::{self, PathRoute};
use crate::target::{InvalidTarget, Target};
use crate::upstream::BoxError;

impl Gateway {
    /// The path-based target of a request; none for the API. Call it after [`Gateway::target`] returned
    /// none.
    ///
    /// # Errors
    /// When the port is invalid.
    pub fn path_route<B>(&self, request: &Request<B>) -> Result<Option<PathRoute>, InvalidTarget> {
        path_route::find(request.uri())
    }

    /// Forwards a request with a path-based URL, authorized by a key of the sandbox's team or by its
    /// traffic token, and returns the answer.
    pub async fn proxy_path<B>(
        &self,
        mut request: Request<B>,
        path_route: PathRoute,
        client: Client,
    ) -> Response<GatewayBody>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        self.check_proxy_headers(request.headers_mut(), client);
        let form = AnswerForm::of(request.headers());
        let (mut target, mut runtime) = (None, None);
        let answer = match self.admit(&path_route, request.headers()).await {
            Ok((found, authenticated)) => match path_route.pass(&mut request) {
                Ok(()) => {
                    let found = &*target.insert(found);
                    let (passed, ran) = self.pass_on(request, found, client, authenticated).await;
                    runtime = ran;
                    passed
                }
                Err(invalid) => Err(Refusal::Invalid(invalid)),
            },
            Err(refusal) => Err(refusal),
        };
        let mut answer =
            answer.unwrap_or_else(|refusal| answer_of(refusal.answer(form, target.as_ref())));
        path_route::sandbox_csp(answer.headers_mut());
        self.shared.counts.add(&answer, runtime.as_ref());
        answer
    }

    /// Resolves a path-based target and checks the credential.
    async fn admit(
        &self,
        path_route: &PathRoute,
        headers: &http::HeaderMap,
    ) -> Result<(Target, AuthenticatedBy), Refusal> {
        let credential = PathRoute::credential(headers).ok_or(Refusal::Unproven)?;
        let admitted = self.shared.routes.admit(&path_route.name, credential).await;
        let admitted = admitted.map_err(|refused| match refused {
            NotAuthorized::Unproven => Refusal::Unproven,
            NotAuthorized::NotFound => Refusal::NotFound,
            NotAuthorized::Failed(_) => Refusal::Unknown,
        })?;
        let target = Target {
            sandbox: admitted.sandbox,
            port: path_route.port.unwrap_or(admitted.port),
        };
        let authenticated = admitted
            .key
            .map_or(AuthenticatedBy::Tokens, AuthenticatedBy::Key);
        Ok((target, authenticated))
    }
}
