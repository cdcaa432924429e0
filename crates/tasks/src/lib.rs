//! Supervision of tasks that run as long as the program: one that ends ends the program.
//!
//! A server whose deadlines, watches or listener have stopped looks alive and is not. Ending it with a
//! clear error is better: sandboxes outlive it, and the next start recovers them.

use std::any::Any;
use std::collections::HashMap;

use tokio::task::{Id, JoinError, JoinSet};

/// A task that should run as long as the program has ended.
#[derive(Debug, thiserror::Error)]
pub enum TaskEnded {
    /// It panicked.
    #[error("the task '{task}' panicked: {message}")]
    Panicked {
        /// Its name.
        task: &'static str,
        /// The message of the panic.
        message: String,
    },
    /// It returned although nothing asked it to.
    #[error("the task '{0}' ended by itself")]
    Early(&'static str),
    /// No task was started.
    #[error("no task runs")]
    None,
}

/// Long-lived tasks. Dropping the set aborts them.
#[derive(Debug, Default)]
pub struct Tasks {
    set: JoinSet<()>,
    names: HashMap<Id, &'static str>,
}

impl Tasks {
    /// Starts a task that should never end, on the runtime of the caller.
    pub fn spawn(&mut self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let handle = self.set.spawn(task);
        self.names.insert(handle.id(), name);
    }

    /// Waits until the first task ends, and says which one and how.
    ///
    /// Cancel safe: a task whose end was not seen is reported by the next call.
    pub async fn ended(&mut self) -> TaskEnded {
        let Some(ended) = self.set.join_next_with_id().await else {
            return TaskEnded::None;
        };
        let id = match &ended {
            Ok((id, ())) => *id,
            Err(error) => error.id(),
        };
        let task = self.names.remove(&id).unwrap_or("unknown");
        match ended.map_err(JoinError::try_into_panic) {
            Err(Ok(panic)) => TaskEnded::Panicked {
                task,
                message: panic_message(&*panic).to_owned(),
            },
            Ok(_) | Err(Err(_)) => TaskEnded::Early(task),
        }
    }

    /// Waits until all tasks have ended, because they were asked to.
    ///
    /// # Errors
    /// When one of them panics. The others are aborted then.
    pub async fn finish(mut self) -> Result<(), TaskEnded> {
        loop {
            match self.ended().await {
                TaskEnded::Early(_) => {}
                TaskEnded::None => return Ok(()),
                panicked @ TaskEnded::Panicked { .. } => return Err(panicked),
            }
        }
    }
}

/// The text that a panic was raised with.
#[must_use]
pub fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_first_task_that_ends_is_named_with_its_reason() {
        let mut tasks = Tasks::default();
        assert!(matches!(tasks.ended().await, TaskEnded::None));
        tasks.spawn("for ever", std::future::pending());
        tasks.spawn("broken", async { panic!("told to, {}", 1) });
        let ended = tasks.ended().await.to_string();
        assert_eq!(ended, "the task 'broken' panicked: told to, 1");
        tasks.spawn("short", async {});
        let ended = tasks.ended().await.to_string();
        assert_eq!(ended, "the task 'short' ended by itself");
    }

    #[tokio::test]
    async fn tasks_that_are_asked_to_end_are_waited_for() {
        let (ask, asked) = tokio::sync::watch::channel(false);
        let mut tasks = Tasks::default();
        for name in ["one", "two"] {
            let mut asked = asked.clone();
            tasks.spawn(name, async move {
                let _ = asked.wait_for(|asked| *asked).await;
            });
        }
        ask.send(true).unwrap();
        tasks.finish().await.unwrap();
        let mut tasks = Tasks::default();
        tasks.spawn("broken", async { panic!("late") });
        let failed = tasks.finish().await.unwrap_err().to_string();
        assert_eq!(failed, "the task 'broken' panicked: late");
    }
}
