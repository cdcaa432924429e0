//! The secrets of a window: variables of its shell, which its output does not show.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use shoal_core::session::secret::SecretValue;
use tokio::time::Instant;

use super::{Actor, Wait};
use crate::secrets::FollowSecrets;
use crate::window::shell::Doing;
use crate::window::typed;
use crate::window::typed::variables::Lines;

/// How long a shell may take to set its variables.
const SETTING: Duration = Duration::from_secs(20);

/// After how long without output a prompt is shown that may be the beginning of a secret.
const QUIET: Duration = Duration::from_millis(100);

impl Actor {
    /// Hides the values that are secret by now.
    pub(super) fn hide(&mut self) {
        let secrets = self.place.secrets.borrow_and_update();
        let hidden: Vec<Arc<SecretValue>> = secrets.hidden.clone();
        drop(secrets);
        self.shell.masks.hide(hidden.iter().map(|value| &**value));
    }

    /// Types what the variables of the shell lack; whether that was anything.
    pub(super) async fn set_variables(&mut self) -> bool {
        self.hide();
        let wanted = self.place.secrets.borrow().set.clone();
        let mut lines = Lines::default();
        for (name, value) in &wanted {
            if !matches!(self.set.get(name), Some(Some(set)) if set == value) {
                lines.set(name, value);
            }
        }
        for name in self.set.keys().filter(|name| !wanted.contains_key(name)) {
            lines.unset(name);
        }
        if lines.is_empty() {
            return false;
        }
        // Until the shell has answered, it may have them or not.
        for (name, value) in wanted {
            if !matches!(self.set.get(&name), Some(Some(set)) if *set == value) {
                self.set.insert(name.clone(), None);
            }
            self.asked.insert(name, value);
        }
        let id = self.id();
        let command = typed::variables::command(&id);
        self.lines = lines.end(&id);
        self.shell.setting(id, &self.scrollback);
        self.wait = Some((Wait::Setting, Instant::now() + SETTING));
        self.write(command.into()).await;
        true
    }

    /// Types what the shell reads.
    pub(super) async fn type_variables(&mut self) {
        let lines = std::mem::take(&mut self.lines);
        self.write(Bytes::copy_from_slice(&lines)).await;
    }

    /// Writes a client's input to the shell. A shell that reads its variables gets the input afterwards.
    pub(super) async fn input(&mut self, bytes: Bytes) {
        if matches!(self.shell.doing, Doing::Setting(_)) {
            return self.held.hold(&bytes);
        }
        self.touched = true;
        self.write(bytes).await;
    }

    /// The shell has the variables that were typed, and no others.
    pub(super) async fn variables_are_set(&mut self) {
        let asked = std::mem::take(&mut self.asked);
        self.set = asked
            .into_iter()
            .map(|(name, value)| (name, Some(value)))
            .collect();
        if let Some(held) = self.held.take() {
            self.touched = true;
            self.write(held).await;
        }
    }

    /// A new shell has no variables yet.
    pub(super) fn forget_variables(&mut self) {
        self.set.clear();
        self.asked.clear();
        // The input was for the shell before.
        self.held.take();
    }

    /// When to show the output that is held back.
    pub(super) fn quiet_at(&self) -> Option<Instant> {
        let waits = self.shell.masks.is_waiting();
        waits.then(|| self.heard_at + QUIET)
    }
}

/// Waits for a change of the secrets.
pub(super) async fn changed(secrets: &mut FollowSecrets) {
    if secrets.changed().await.is_err() {
        // The session has ended, and the window ends with it.
        std::future::pending().await
    }
}
