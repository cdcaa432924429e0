//! `process.Process` on the wire.

use std::sync::Arc;
use std::time::Duration;

use connectrpc::{
    ConnectError, Encodable, InboundStream, RequestContext, Response, ServiceRequest,
    ServiceResult, ServiceStream,
};
use futures_util::stream::{self, StreamExt as _};
use rustix::process::Signal as SystemSignal;
use shoal_protocol::process::process_event::{
    DataEvent, Event as WireEvent, KeepAlive, StartEvent, data_event::Output,
};
use shoal_protocol::process::process_input::Input as WireInput;
use shoal_protocol::process::stream_input_request::Event as InputEvent;
use shoal_protocol::process::{
    CloseStdinRequest, CloseStdinResponse, ConnectRequest, ConnectResponse, ListRequest,
    ListResponse, Process as ProcessRpc, ProcessEvent, ProcessInput, ProcessSelector,
    SendInputRequest, SendInputResponse, SendSignalRequest, SendSignalResponse, Signal,
    StartRequest, StartResponse, StreamInputRequest, StreamInputResponse, UpdateRequest,
    UpdateResponse,
};
use tokio::time::Instant;

use super::InheritedLimits;
use super::input::InputError;
use super::output_channel::{Event, SubscribeError, Subscription};
use super::supervise::{self, StartError, StartSpec};
use super::table::{LookupResult, NotFound};
use super::{Process, Processes, streams};
use crate::caller::Caller;
use crate::clock::sleep_until;

/// How long a kill request waits for the process to exit. A busy machine takes seconds to run it once
/// more; only a process that the kernel holds takes longer.
const KILL_WAIT_TIMEOUT: Duration = Duration::from_secs(10);

/// The Connect service.
pub(crate) struct ProcessService {
    caller: Arc<Caller>,
    processes: Arc<Processes>,
    inherited_limits: InheritedLimits,
}

impl ProcessService {
    /// A service for these processes.
    pub(crate) fn new(
        caller: Arc<Caller>,
        processes: Arc<Processes>,
        inherited_limits: InheritedLimits,
    ) -> Self {
        Self {
            caller,
            processes,
            inherited_limits,
        }
    }

    fn live(
        &self,
        ctx: &RequestContext,
        selector: Option<&ProcessSelector>,
    ) -> Result<Arc<Process>, ConnectError> {
        self.caller.check(ctx)?;
        let selector = selector.and_then(|selector| selector.selector.as_ref());
        Ok(self.processes.find_live(selector)?)
    }
}

impl From<NotFound> for ConnectError {
    fn from(error: NotFound) -> Self {
        match error {
            NotFound::Empty => Self::invalid_argument(error.to_string()),
            NotFound::Pid(_) | NotFound::Tag(_) => Self::not_found(error.to_string()),
        }
    }
}

impl From<StartError> for ConnectError {
    fn from(error: StartError) -> Self {
        let text = error.to_string();
        match error {
            StartError::Invalid(_) | StartError::Directory(..) | StartError::Program(..) => {
                Self::invalid_argument(text)
            }
            StartError::Streams(..) => Self::internal(text),
            StartError::Full => Self::resource_exhausted(text),
            StartError::Ending => Self::unavailable(text),
        }
    }
}

impl From<InputError> for ConnectError {
    fn from(error: InputError) -> Self {
        let text = match &error {
            InputError::Failed(source) => format!("{error}: {source}"),
            _ => error.to_string(),
        };
        match error {
            InputError::TerminalCannotClose => Self::unknown(text),
            InputError::NoStdin
            | InputError::IsTerminal
            | InputError::NoTerminal
            | InputError::NoTerminalToResize
            | InputError::Failed(_) => Self::internal(text),
        }
    }
}

impl From<SubscribeError> for ConnectError {
    fn from(error: SubscribeError) -> Self {
        match error {
            SubscribeError::Ended => Self::not_found("process ended"),
            SubscribeError::Full => Self::resource_exhausted("too many subscribers of one process"),
        }
    }
}

impl From<Event> for WireEvent {
    fn from(event: Event) -> Self {
        let output = match event {
            Event::Stdout(bytes) => Output::Stdout(bytes),
            Event::Stderr(bytes) => Output::Stderr(bytes),
            Event::Terminal(bytes) => Output::Pty(bytes),
            Event::End(end) => return (*end).clone().into(),
        };
        DataEvent {
            output: Some(output),
        }
        .into()
    }
}

fn wire(event: impl Into<WireEvent>) -> ProcessEvent {
    ProcessEvent {
        event: Some(event.into()),
    }
}

fn started(pid: u32) -> ProcessEvent {
    wire(StartEvent { pid })
}

/// Event stream of one subscriber: start, output, end, and keepalives while idle. At the deadline
/// it ends with `deadline_exceeded`.
struct EventStream {
    first: Option<ProcessEvent>,
    subscription: Subscription,
    keepalive: Duration,
    deadline: Option<Instant>,
    ended: bool,
}

impl EventStream {
    fn into_stream(self) -> impl futures_util::Stream<Item = Result<ProcessEvent, ConnectError>> {
        stream::unfold(self, |mut event_stream| async {
            let event = event_stream.next().await?;
            Some((event, event_stream))
        })
    }

    async fn next(&mut self) -> Option<Result<ProcessEvent, ConnectError>> {
        if let Some(first) = self.first.take() {
            return Some(Ok(first));
        }
        if self.ended {
            return None;
        }
        let event = tokio::select! {
            biased;
            event = self.subscription.next() => event,
            () = sleep_until(self.deadline) => {
                self.ended = true;
                return Some(Err(too_late()));
            }
            () = tokio::time::sleep(self.keepalive) => {
                return Some(Ok(wire(KeepAlive::default())));
            }
        };
        self.ended = matches!(event, None | Some(Event::End(_)));
        match event {
            // Killed at the deadline, before this task was run again.
            Some(Event::End(end)) if !end.exited && self.is_over() => Some(Err(too_late())),
            Some(event) => Some(Ok(wire(event))),
            None if self.subscription.was_disconnected() => {
                Some(Err(ConnectError::resource_exhausted(
                    "subscriber disconnected: it blocked other subscribers for too long",
                )))
            }
            None => None,
        }
    }

    /// Whether the deadline has passed.
    fn is_over(&self) -> bool {
        let now = Instant::now();
        self.deadline.is_some_and(|deadline| deadline <= now)
    }
}

fn too_late() -> ConnectError {
    ConnectError::deadline_exceeded("deadline exceeded")
}

impl ProcessRpc for ProcessService {
    async fn list<'a>(
        &'a self,
        ctx: RequestContext,
        _: ServiceRequest<'_, ListRequest>,
    ) -> ServiceResult<impl Encodable<ListResponse> + Send + use<'a>> {
        self.caller.check(&ctx)?;
        Response::ok(ListResponse {
            processes: self.processes.list(),
        })
    }

    async fn start(
        &self,
        ctx: RequestContext,
        request: ServiceRequest<'_, StartRequest>,
    ) -> ServiceResult<ServiceStream<impl Encodable<StartResponse> + Send + use<>>> {
        let (user, groups) = self.caller.user(&ctx)?;
        let deadline = self.caller.deadline(&ctx)?;
        let spec = StartSpec {
            request: request.to_owned_message(),
            user,
            groups,
            defaults: self.caller.defaults(),
            environment: self.caller.environment(),
            deadline,
            inherited_limits: self.inherited_limits,
        };
        let (process, subscription) = supervise::start(&self.processes, spec).await?;
        let event_stream = EventStream {
            first: Some(started(process.pid)),
            subscription,
            keepalive: Caller::keepalive(&ctx),
            deadline,
            ended: false,
        };
        let events = event_stream.into_stream().map(|event| {
            event.map(|event| StartResponse {
                event: Some(event).into(),
            })
        });
        Ok(Response::stream(events))
    }

    async fn connect(
        &self,
        ctx: RequestContext,
        request: ServiceRequest<'_, ConnectRequest>,
    ) -> ServiceResult<ServiceStream<impl Encodable<ConnectResponse> + Send + use<>>> {
        self.caller.check(&ctx)?;
        let deadline = self.caller.deadline(&ctx)?;
        let request = request.to_owned_message();
        let found = self.processes.find(request.process.selector.as_ref())?;
        let events = match found {
            LookupResult::Live(process) => {
                let event_stream = EventStream {
                    first: Some(started(process.pid)),
                    subscription: process.output.subscribe()?,
                    keepalive: Caller::keepalive(&ctx),
                    deadline,
                    ended: false,
                };
                event_stream.into_stream().left_stream()
            }
            LookupResult::Ended(ended) => {
                let events = [started(ended.pid), wire((*ended.event).clone())];
                stream::iter(events.map(Ok)).right_stream()
            }
        };
        let events = events.map(|event| {
            event.map(|event| ConnectResponse {
                event: Some(event).into(),
            })
        });
        Ok(Response::stream(events))
    }

    async fn update<'a>(
        &'a self,
        ctx: RequestContext,
        request: ServiceRequest<'_, UpdateRequest>,
    ) -> ServiceResult<impl Encodable<UpdateResponse> + Send + use<'a>> {
        let request = request.to_owned_message();
        let process = self.live(&ctx, request.process.as_option())?;
        if let Some(pty) = request.pty.as_option() {
            let size = streams::size(pty.size.cols, pty.size.rows);
            process.input.resize(size)?;
        }
        Response::ok(UpdateResponse::default())
    }

    async fn send_input<'a>(
        &'a self,
        ctx: RequestContext,
        request: ServiceRequest<'_, SendInputRequest>,
    ) -> ServiceResult<impl Encodable<SendInputResponse> + Send + use<'a>> {
        let request = request.to_owned_message();
        let process = self.live(&ctx, request.process.as_option())?;
        write(&process, request.input.as_option()).await?;
        Response::ok(SendInputResponse::default())
    }

    async fn stream_input<'a>(
        &'a self,
        ctx: RequestContext,
        mut requests: InboundStream<StreamInputRequest>,
    ) -> ServiceResult<impl Encodable<StreamInputResponse> + Send + use<'a>> {
        let mut process = None;
        while let Some(request) = requests.next().await {
            match request?.to_owned_message().event {
                Some(InputEvent::Start(start)) => {
                    process = Some(self.live(&ctx, start.process.as_option())?);
                }
                Some(InputEvent::Data(data)) => {
                    let process = process.as_ref().ok_or_else(|| {
                        ConnectError::unimplemented("the first message must be a start")
                    })?;
                    write(process, data.input.as_option()).await?;
                }
                Some(InputEvent::Keepalive(_)) => {}
                None => return Err(ConnectError::unimplemented("invalid event type")),
            }
        }
        Response::ok(StreamInputResponse::default())
    }

    async fn send_signal<'a>(
        &'a self,
        ctx: RequestContext,
        request: ServiceRequest<'_, SendSignalRequest>,
    ) -> ServiceResult<impl Encodable<SendSignalResponse> + Send + use<'a>> {
        let request = request.to_owned_message();
        let process = self.live(&ctx, request.process.as_option())?;
        let signal = match request.signal.as_known() {
            Some(Signal::SIGNAL_SIGKILL) => SystemSignal::KILL,
            Some(Signal::SIGNAL_SIGTERM) => SystemSignal::TERM,
            Some(Signal::SIGNAL_UNSPECIFIED) | None => {
                let number = request.signal.to_i32();
                return Err(ConnectError::unimplemented(format!(
                    "invalid signal: {number}"
                )));
            }
        };
        process
            .signal(&self.processes.children, signal)
            .map_err(|error| ConnectError::internal(format!("error sending signal: {error}")))?;
        if signal == SystemSignal::KILL {
            // Wait briefly for exit, so that a caller that checks after the reply sees it gone.
            let reaped = self
                .processes
                .children
                .wait_reaped(process.pid.cast_signed());
            let _ = tokio::time::timeout(KILL_WAIT_TIMEOUT, reaped).await;
        }
        Response::ok(SendSignalResponse::default())
    }

    async fn close_stdin<'a>(
        &'a self,
        ctx: RequestContext,
        request: ServiceRequest<'_, CloseStdinRequest>,
    ) -> ServiceResult<impl Encodable<CloseStdinResponse> + Send + use<'a>> {
        let request = request.to_owned_message();
        let process = self.live(&ctx, request.process.as_option())?;
        process.input.close().await?;
        Response::ok(CloseStdinResponse::default())
    }
}

async fn write(process: &Process, input: Option<&ProcessInput>) -> Result<(), ConnectError> {
    match input.and_then(|input| input.input.as_ref()) {
        Some(WireInput::Stdin(bytes)) => process.input.write_stdin(bytes).await?,
        Some(WireInput::Pty(bytes)) => process.input.write_terminal(bytes).await?,
        None => return Err(ConnectError::unimplemented("invalid input type")),
    }
    Ok(())
}

#[cfg(test)]
mod tests;
