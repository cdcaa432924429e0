//! Deadlines, and the events of the drivers.

use shoal_core::driver::{Driver, DriverEvent};
use shoal_core::state::Input;

use super::Sandboxes;
use super::command::Command;

impl Sandboxes {
    /// Wakes the task of each sandbox whose moment has come. Never ends.
    pub(crate) async fn watch_deadlines(&self) {
        loop {
            let id = self.deadlines.due(&self.parts.clock).await;
            if let Some(mailbox) = self.registry.mailbox(&id) {
                // A full mailbox has a task behind it that will look at its deadline anyway.
                let _ = mailbox.try_send(Command::Tick);
            }
        }
    }

    /// Passes the events of a driver to the tasks of its sandboxes, and output to the logs. Ends when
    /// the driver does.
    pub(crate) async fn watch_driver(&self, driver: &dyn Driver) {
        while let Some(event) = driver.next_event().await {
            match event {
                DriverEvent::Failed {
                    id,
                    execution,
                    reason,
                } => {
                    if let Some(mailbox) = self.registry.mailbox(&id) {
                        // Waits when the mailbox is full: this must not be lost. A task that has
                        // ended needs no news.
                        let news = Command::Observed {
                            execution,
                            input: Input::Failed(reason),
                        };
                        let _ = mailbox.send_waiting(news).await;
                    }
                }
                DriverEvent::Output { id, lines } => {
                    // The log of a sandbox that is gone has no reader.
                    if let Some(record) = self.registry.record(&id) {
                        let now = self.parts.clock.now();
                        self.parts
                            .telemetry
                            .logs
                            .append(record.team, &id, lines, now)
                            .await;
                    }
                }
            }
        }
    }
}
