//! The loop of a sandbox's task: one order after another.

use shoal_core::state::StateKind;
use tracing::Instrument;

use super::Sandbox;
use crate::sandboxes::mailbox::Given;
use crate::sandboxes::order::{Order, answer};

impl Sandbox {
    /// Carries out orders until the sandbox has ended.
    pub(super) async fn serve(mut self) {
        while self.record.state.kind() != StateKind::Terminated {
            let Some(Given { order, span }) = self.orders.next().await else {
                return;
            };
            let under_way = self.sandboxes.work.begin();
            let id = &self.record.id;
            let step = tracing::debug_span!(parent: &span, "sandbox.order", order = order.name(), sandbox.id = %id);
            // In both spans: the inner one exists only if its level is recorded.
            let carried_out = self.carry_out(order).instrument(step);
            carried_out.instrument(span).await;
            drop(under_way);
        }
        self.sandboxes.forget(&self.record.id);
    }

    async fn carry_out(&mut self, order: Order) {
        match order {
            Order::Kill(reason, reply) => answer(reply, self.kill(reason).await),
            Order::SetDeadline(change, reply) => {
                answer(reply, self.set_deadline(change).await);
            }
            Order::SetEgress(egress, reply) => answer(reply, self.set_egress(egress).await),
            Order::Pause(order, reply) => {
                self.settle_rotation().await;
                answer(reply, self.pause(order).await);
                self.settle().await;
            }
            Order::Resume(order, reply) => {
                answer(reply, self.resume(order).await);
                self.settle().await;
            }
            Order::Connect(order, reply) => {
                answer(reply, self.connect(order).await);
                self.settle().await;
            }
            Order::Wake(order, reply) => {
                answer(reply, self.wake(order).await);
                self.settle().await;
            }
            Order::Snapshot(order, reply) => {
                self.settle_rotation().await;
                answer(reply, self.snapshot(order).await);
            }
            Order::AnnounceResize(resize, kept, reply) => {
                answer(reply, self.announce_resize(resize, kept).await);
            }
            Order::FinishResize(reply) => answer(reply, self.finish_resize().await),
            Order::RotateTokens(reply) => answer(reply, self.rotate_tokens().await),
            Order::Resize(resize, reply) => answer(reply, self.resize(resize).await),
            Order::JoinPool(ready, reply) => answer(reply, self.join_pool(ready).await),
            Order::Claim(order) => self.claim(*order).await,
            Order::Observed { execution, input } if self.is_news(execution) => {
                self.observe(input).await;
            }
            // The event of an earlier run.
            Order::Observed { .. } => {}
            Order::Look => self.look().await,
        }
    }
}
