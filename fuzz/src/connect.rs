//! Connect requests, as the daemon takes them apart.

use std::sync::Arc;

use bytes::Bytes;
use connectrpc::{
    ConnectError, ConnectRpcService, InboundStream, Limits, RequestContext, Router, ServiceRequest,
    ServiceResult, ServiceStream,
};
use futures_util::StreamExt;
use http::Request;
use http_body_util::{BodyExt, Full};
use shoal_protocol::process::{
    CloseStdinRequest, CloseStdinResponse, ConnectRequest, ConnectResponse, ListRequest,
    ListResponse, Process, ProcessExt, SendInputRequest, SendInputResponse, SendSignalRequest,
    SendSignalResponse, StartRequest, StartResponse, StreamInputRequest, StreamInputResponse,
    UpdateRequest, UpdateResponse,
};
use tower_service::Service;

const METHODS: [&str; 8] = [
    "List",
    "Start",
    "Connect",
    "Update",
    "SendInput",
    "StreamInput",
    "SendSignal",
    "CloseStdin",
];

const TYPES: [&str; 4] = [
    "application/json",
    "application/proto",
    "application/connect+json",
    "application/connect+proto",
];

/// Far below the daemon's own, so that the bounds are met.
const MAX_MESSAGE: usize = 64 << 10;

/// One request: a byte for the method, one for the content type, then the body. Whatever it is,
/// it is answered.
pub fn connect(data: &[u8]) {
    let [method, kind, body @ ..] = data else {
        return;
    };
    let method = METHODS[usize::from(*method) % METHODS.len()];
    let kind = TYPES[usize::from(*kind) % TYPES.len()];
    let request = Request::post(format!("/process.Process/{method}"))
        .header("content-type", kind)
        .header("connect-protocol-version", "1")
        .body(Full::new(Bytes::copy_from_slice(body)))
        .unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let limits = Limits::default()
            .with_max_message_size(MAX_MESSAGE)
            .with_max_request_body_size(MAX_MESSAGE);
        let router = Arc::new(Reader).register(Router::new());
        let mut service = ConnectRpcService::new(router).with_limits(limits);
        let response = match service.call(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        };
        let answer = response.into_body().collect().await;
        assert!(answer.is_ok_and(|answer| answer.to_bytes().len() < 2 * MAX_MESSAGE));
    });
}

/// Reads each message whole and refuses it.
struct Reader;

fn refused<T>() -> ServiceResult<T> {
    Err(ConnectError::unimplemented("read"))
}

macro_rules! unary {
    ($($name:ident: $request:ty => $response:ty;)*) => {
        $(
            async fn $name(
                &self,
                _: RequestContext,
                request: ServiceRequest<'_, $request>,
            ) -> ServiceResult<$response> {
                let _ = request.to_owned_message();
                refused()
            }
        )*
    };
}

#[expect(
    refining_impl_trait,
    reason = "the answers are named, as there are none"
)]
impl Process for Reader {
    unary! {
        list: ListRequest => ListResponse;
        update: UpdateRequest => UpdateResponse;
        send_input: SendInputRequest => SendInputResponse;
        send_signal: SendSignalRequest => SendSignalResponse;
        close_stdin: CloseStdinRequest => CloseStdinResponse;
        start: StartRequest => ServiceStream<StartResponse>;
        connect: ConnectRequest => ServiceStream<ConnectResponse>;
    }

    async fn stream_input(
        &self,
        _: RequestContext,
        mut requests: InboundStream<StreamInputRequest>,
    ) -> ServiceResult<StreamInputResponse> {
        while let Some(message) = requests.next().await {
            let _ = message?.to_owned_message();
        }
        refused()
    }
}
