//! The loop of a sandbox's task: one command after another.

use shoal_core::state::StateKind;
use tracing::Instrument;

use super::Sandbox;
use crate::sandboxes::command::{Command, answer};
use crate::sandboxes::mailbox::Envelope;

impl Sandbox {
    /// Carries out commands until the sandbox has ended.
    pub(super) async fn serve(mut self) {
        while self.record.state.kind() != StateKind::Terminated {
            let Some(Envelope { command, span }) = self.commands.next().await else {
                return;
            };
            let under_way = self.sandboxes.parts.work.begin();
            let id = &self.record.id;
            let step = tracing::debug_span!(parent: &span, "sandbox.command", command = command.name(), sandbox.id = %id);
            // In both spans: the inner one exists only if its level is recorded.
            let carried_out = self.carry_out(command).instrument(step);
            carried_out.instrument(span).await;
            drop(under_way);
        }
        self.sandboxes.forget(&self.record.id);
    }

    async fn carry_out(&mut self, command: Command) {
        match command {
            Command::Kill(reason, reply) => answer(reply, self.kill(reason).await),
            Command::SetDeadline(change, reply) => {
                answer(reply, self.set_deadline(change).await);
            }
            Command::SetEgress(egress, reply) => answer(reply, self.set_egress(egress).await),
            Command::Pause(request, reply) => {
                self.settle_rotation().await;
                answer(reply, self.pause(request).await);
                self.settle().await;
            }
            Command::Resume(request, reply) => {
                answer(reply, self.resume(request).await);
                self.settle().await;
            }
            Command::Connect(request, reply) => {
                answer(reply, self.connect(request).await);
                self.settle().await;
            }
            Command::Wake(request, reply) => {
                answer(reply, self.wake(request).await);
                self.settle().await;
            }
            Command::Park(idle_since, reply) => {
                answer(reply, self.park(idle_since).await);
                self.settle().await;
            }
            Command::Snapshot(request, reply) => {
                self.settle_rotation().await;
                answer(reply, self.snapshot(request).await);
            }
            Command::AnnounceResize(resize, kept, reply) => {
                answer(reply, self.announce_resize(resize, kept).await);
            }
            Command::FinishResize(reply) => answer(reply, self.finish_resize().await),
            Command::RotateTokens(reply) => answer(reply, self.rotate_tokens().await),
            Command::Resize(resize, reply) => answer(reply, self.resize(resize).await),
            Command::JoinPool(ready, reply) => answer(reply, self.join_pool(ready).await),
            Command::ParkMember(reply) => {
                answer(reply, self.park_member().await);
                self.settle().await;
            }
            Command::WakeMember(reply) => {
                answer(reply, self.wake_member().await);
                self.settle().await;
            }
            Command::Claim(request) => {
                self.claim(*request).await;
                self.settle().await;
            }
            Command::Observed { execution, input } if self.is_news(execution) => {
                self.observe(input).await;
            }
            // The event of an earlier run.
            Command::Observed { .. } => {}
            Command::Tick => self.on_timer().await,
        }
    }
}
