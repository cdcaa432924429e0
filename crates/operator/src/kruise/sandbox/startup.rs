//! The command of a sandbox's template, which runs once in each container that a claimed sandbox gets: at the claim,
//! after a resume, and in a pod that replaces a lost one.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use shoal_crds::kruise::names::{condition, reason};
use shoal_crds::kruise::{Sandbox, SandboxStatus};

use super::phase::{Hook, HookTime};
use super::{SandboxController, Step};
use crate::cache::key;
use crate::conditions::{self, State, Truth};
use crate::failure::Failure;
use crate::kruise::Pod;

/// How long the command may take.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The command that is due, and its container. It follows the settings of the daemon, which has the user's variables
/// then.
pub(super) fn due(sandbox: &Sandbox, pod: &Pod) -> Option<(Vec<String>, String)> {
    let command = sandbox.startup_command()?;
    let container = pod.first_container().filter(|_| pod.is_ready())?;
    let told = sandbox.condition(condition::RUNTIME_INITIALIZED);
    let told = told.is_some_and(|told| told.status == "True" && told.message == container);
    (told && sandbox.started().is_none()).then(|| (command, container.to_owned()))
}

impl SandboxController {
    /// Runs the command, and writes how it ended.
    pub(super) async fn start_up(
        &self,
        sandbox: &Arc<Sandbox>,
        pod: &Pod,
        (command, container): &(Vec<String>, String),
        mut status: SandboxStatus,
    ) -> Result<Step, Failure> {
        let hook = Hook {
            when: HookTime::After,
            command: command.clone(),
            timeout: TIMEOUT,
        };
        let failure = self.run_hook(sandbox, pod, &hook).await;
        let (truth, reason, message) = match &failure {
            None => (Truth::True, reason::SUCCEEDED, container.clone()),
            Some(failure) => (
                Truth::False,
                reason::FAILED,
                format!("{container}\n{failure}"),
            ),
        };
        let state = State::new(condition::STARTED, truth, reason, message);
        let generation = sandbox.metadata.generation;
        conditions::set(&mut status.conditions, &state, generation, Timestamp::now());
        if let Some(newest) = self.sandboxes.get(&key(&**sandbox)) {
            self.write_status(&newest, &status).await?;
        }
        if let Some(failure) = failure {
            self.cluster
                .event(&**sandbox, true, "StartupCommandFailed", failure);
        }
        Ok(Step::Again)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn sandbox(conditions: &Value) -> Sandbox {
        serde_json::from_value(json!({
            "metadata": {"annotations": {"agents.kruise.io/startup-command": r#"["start", "it"]"#}},
            "spec": {}, "status": {"conditions": conditions},
        }))
        .unwrap()
    }

    fn condition(kind: &str, status: &str, message: &str) -> Value {
        json!({
            "type": kind, "status": status, "reason": "R", "message": message,
            "lastTransitionTime": "2026-01-02T03:04:05Z",
        })
    }

    fn pod(container: &str, ready: &str) -> Pod {
        serde_json::from_value(json!({
            "spec": {"containers": [{"name": "sandbox"}]},
            "status": {
                "conditions": [{"type": "Ready", "status": ready}],
                "containerStatuses": [{"name": "sandbox", "containerID": container}],
            },
        }))
        .unwrap()
    }

    #[test]
    fn the_command_runs_once_in_each_container() {
        let told = condition("RuntimeInitialized", "True", "one");
        let due_at =
            |conditions: Value, container| due(&sandbox(&conditions), &pod(container, "True"));
        let words = vec!["start".to_owned(), "it".to_owned()];
        assert_eq!(due_at(json!([]), "one"), None, "its daemon has no settings");
        assert_eq!(
            due_at(json!([told]), "one"),
            Some((words, "one".to_owned()))
        );
        assert_eq!(due(&sandbox(&json!([told])), &pod("one", "False")), None);
        let ran = condition("StartupCommand", "True", "one");
        assert_eq!(due_at(json!([told, ran]), "one"), None);
        assert_eq!(
            due_at(json!([told, ran]), "two"),
            None,
            "the settings come first"
        );
        let next = condition("RuntimeInitialized", "True", "two");
        assert!(due_at(json!([next, ran]), "two").is_some());
        let failed = condition("StartupCommand", "False", "two\nexit status 3");
        let failed = sandbox(&json!([next, failed]));
        assert_eq!(
            due(&failed, &pod("two", "True")),
            None,
            "it would fail again"
        );
        assert_eq!(failed.started(), Some(Err("exit status 3")));
    }
}
