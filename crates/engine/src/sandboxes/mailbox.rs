//! The way in to a sandbox's task. What ends the sandbox comes before all that waits.

use shoal_core::state::KillReason;
use tokio::sync::mpsc::{self, error::TrySendError};
use tokio::sync::oneshot;
use tracing::Span;

use super::order::Order;
use shoal_core::ports::sandboxes::SandboxError;

/// How many orders may wait for a sandbox; one more is told that it is busy.
const WAITING: usize = 64;

/// How many may wait for its end; whoever comes then waits for a place.
const KILLS_WAITING: usize = 8;

/// An order with the span of its caller, to which the log lines of the task belong.
#[derive(Debug)]
pub(super) struct Given {
    pub(super) order: Order,
    pub(super) span: Span,
}

type Kill = (KillReason, oneshot::Sender<Result<(), SandboxError>>, Span);

/// Where orders are given.
#[derive(Debug, Clone)]
pub(crate) struct Mailbox {
    orders: mpsc::Sender<Given>,
    kills: mpsc::Sender<Kill>,
}

/// Where the task takes them.
#[derive(Debug)]
pub(super) struct Orders {
    orders: mpsc::Receiver<Given>,
    kills: mpsc::Receiver<Kill>,
    /// The end that was asked for and is not carried out yet.
    kill: Option<Kill>,
}

/// Why an order was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotTaken {
    /// Too many wait.
    Full,
    /// The task has ended.
    Ended,
}

impl Given {
    /// An order from the current span.
    fn here(order: Order) -> Self {
        Self {
            order,
            span: Span::current(),
        }
    }
}

impl From<Kill> for Given {
    fn from((reason, reply, span): Kill) -> Self {
        Self {
            order: Order::Kill(reason, reply),
            span,
        }
    }
}

impl<T> From<TrySendError<T>> for NotTaken {
    fn from(error: TrySendError<T>) -> Self {
        match error {
            TrySendError::Full(_) => Self::Full,
            TrySendError::Closed(_) => Self::Ended,
        }
    }
}

/// A mailbox, and its other side.
pub(super) fn mailbox() -> (Mailbox, Orders) {
    let (orders, waiting) = mpsc::channel(WAITING);
    let (kills, ends) = mpsc::channel(KILLS_WAITING);
    let inner = Orders {
        orders: waiting,
        kills: ends,
        kill: None,
    };
    (Mailbox { orders, kills }, inner)
}

impl Mailbox {
    /// Gives an order for which there is a place. A kill waits for one: it is never refused because
    /// others are many.
    pub(crate) async fn give(&self, order: Order) -> Result<(), NotTaken> {
        match order {
            Order::Kill(..) => self.send(order).await,
            order => self.try_give(order),
        }
    }

    /// Gives an order for which there is a place now.
    pub(crate) fn try_give(&self, order: Order) -> Result<(), NotTaken> {
        match order {
            Order::Kill(reason, reply) => self.kills.try_send((reason, reply, Span::current()))?,
            order => self.orders.try_send(Given::here(order))?,
        }
        Ok(())
    }

    /// Gives an order, and waits for a place.
    pub(crate) async fn send(&self, order: Order) -> Result<(), NotTaken> {
        let sent = match order {
            Order::Kill(reason, reply) => {
                let kill = (reason, reply, Span::current());
                self.kills.send(kill).await.is_ok()
            }
            order => self.orders.send(Given::here(order)).await.is_ok(),
        };
        sent.then_some(()).ok_or(NotTaken::Ended)
    }
}

impl Orders {
    /// The next order: the end of the sandbox, if it was asked for, else what has waited longest.
    pub(super) async fn next(&mut self) -> Option<Given> {
        if let Some(kill) = self.kill.take() {
            return Some(Given::from(kill));
        }
        tokio::select! {
            biased;
            Some(kill) = self.kills.recv() => Some(Given::from(kill)),
            given = self.orders.recv() => given,
        }
    }

    /// Ends when the sandbox is to be ended, which is the next order then.
    pub(super) async fn kill_asked(&mut self) {
        if self.kill.is_none() {
            self.kill = self.kills.recv().await;
        }
        if self.kill.is_none() {
            // Nobody can ask any more.
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_kill_comes_before_what_waits_and_is_not_refused_when_all_places_are_taken() {
        let (mailbox, mut orders) = mailbox();
        for _ in 0..WAITING {
            mailbox.give(Order::Look).await.unwrap();
        }
        assert_eq!(mailbox.give(Order::Look).await, Err(NotTaken::Full));
        let (reply, _answer) = oneshot::channel();
        let kill = Order::Kill(KillReason::Requested, reply);
        mailbox.give(kill).await.unwrap();
        orders.kill_asked().await;
        let next = orders.next().await.unwrap();
        assert!(matches!(next.order, Order::Kill(..)));
        let next = orders.next().await.unwrap();
        assert!(matches!(next.order, Order::Look));
        drop(orders);
        assert_eq!(mailbox.give(Order::Look).await, Err(NotTaken::Ended));
    }
}
