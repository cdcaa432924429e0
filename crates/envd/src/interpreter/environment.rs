//! Environment of a kernel before and after an execution, and reseeding after a clone.

use std::sync::Arc;
use std::time::Duration;

use super::context::{Context, KernelSlot};
use super::execution::ExecutionEnd;
use super::kernel::{Kernel, Launcher};
use super::variables::Change;
use crate::random;
use crate::settings::Variables;

/// Timeout of internal code.
pub(super) const INTERNAL_TIMEOUT: Duration = Duration::from_secs(10);

/// Limit of variable names in a notice.
const MAX_NAMES: usize = 8;

/// The target environment of a kernel. Variables of the execution override global ones, which
/// override those of the kernel's start.
pub(super) fn wanted(kernel: &Kernel, launcher: &Launcher, own: Variables) -> Variables {
    let mut wanted = kernel.inherited.clone();
    wanted.extend((*launcher.settings.environment()).clone());
    wanted.extend(own);
    wanted
}

/// Updates the environment of a kernel, and reseeds it after a clone. Returns a notice if some of
/// it failed and the client does not know yet. Failed changes are retried before the next
/// execution.
pub(super) async fn prepare(
    kernel: &mut Kernel,
    context: &Context,
    launcher: &Launcher,
    wanted: Variables,
) -> Result<Option<String>, ExecutionEnd> {
    let Some(dialect) = context.dialect() else {
        return Ok(None);
    };
    let changes = dialect.changes(&kernel.variables, &wanted);
    let sandbox = launcher.sandbox();
    let is_another = sandbox != kernel.sandbox;
    let mut reseed = Vec::new();
    if is_another || !kernel.unseeded.is_empty() {
        let seed = [(); 4].map(|()| u32::from_ne_bytes(random::bytes()));
        reseed = dialect.reseed(seed);
        // Generators that were reseeded belong to the user again, who may have chosen a seed.
        reseed.retain(|Change { name, .. }| is_another || kernel.unseeded.contains(name));
    }
    if !changes.is_empty() || !reseed.is_empty() {
        let all = || changes.iter().chain(&reseed);
        let mut failed = run_internal(kernel, launcher, &dialect.join_all(all())).await?;
        if failed.is_some()
            && let Some(plain) = dialect.join_fallbacks(all())
        {
            failed = run_internal(kernel, launcher, &plain).await?;
        }
        if failed.is_some() {
            return one_by_one(kernel, launcher, &wanted, [changes, reseed], sandbox).await;
        }
    }
    kernel.sandbox = sandbox;
    kernel.unseeded.clear();
    kernel.variables = wanted;
    kernel.last_notice = None;
    Ok(None)
}

/// Applies changes one by one after a failure, so that the others take effect.
async fn one_by_one(
    kernel: &mut Kernel,
    launcher: &Launcher,
    wanted: &Variables,
    [changes, reseed]: [Vec<Change>; 2],
    sandbox: Option<String>,
) -> Result<Option<String>, ExecutionEnd> {
    let mut failed_changes = FailedChanges::default();
    for change in changes {
        let failed = apply_change(kernel, launcher, &change).await?;
        let name = change.name;
        match failed {
            Some(why) => failed_changes.note(&name, &why),
            None => match wanted.get(&name) {
                Some(value) => drop(kernel.variables.insert(name, value.clone())),
                None => drop(kernel.variables.remove(&name)),
            },
        }
    }
    let mut unseeded = Vec::new();
    for change in reseed {
        if let Some(why) = apply_change(kernel, launcher, &change).await? {
            failed_changes.note(&change.name, &why);
            unseeded.push(change.name);
        }
    }
    (kernel.sandbox, kernel.unseeded) = (sandbox, unseeded);
    let failed_changes = failed_changes.notice();
    let news = failed_changes
        .clone()
        .filter(|_| failed_changes != kernel.last_notice);
    kernel.last_notice = failed_changes;
    Ok(news)
}

/// Executes the template's startup code before the first execution. Returns a notice if it failed;
/// it is not retried.
pub(super) async fn run_startup(
    kernel: &mut Kernel,
    launcher: &Launcher,
) -> Result<Option<String>, ExecutionEnd> {
    let Some(code) = kernel.startup.take() else {
        return Ok(None);
    };
    let failed = run_internal(kernel, launcher, &code).await?;
    Ok(failed.map(|why| {
        let why: String = why.chars().take(200).collect();
        format!("The template's startup code failed ({why})")
    }))
}

/// Applies one change, with its fallback without `await` if it fails. Returns the error if both
/// fail.
async fn apply_change(
    kernel: &mut Kernel,
    launcher: &Launcher,
    change: &Change,
) -> Result<Option<String>, ExecutionEnd> {
    let failed = run_internal(kernel, launcher, &change.code).await?;
    match (&failed, &change.fallback) {
        (Some(_), Some(plain)) => {
            let plainly = run_internal(kernel, launcher, plain).await?;
            // If both fail, report the error of the preferred variant.
            Ok(plainly.and(failed))
        }
        _ => Ok(failed),
    }
}

/// Executes internal code. Returns the error if it failed.
async fn run_internal(
    kernel: &mut Kernel,
    launcher: &Launcher,
    code: &str,
) -> Result<Option<String>, ExecutionEnd> {
    let told = launcher
        .time
        .timeout(INTERNAL_TIMEOUT, kernel.execute_silently(code))
        .await;
    let late =
        || ExecutionEnd::KernelLost("the kernel did not apply its environment in time".to_owned());
    Ok(told.ok_or_else(late)??)
}

/// Changes that failed.
#[derive(Default)]
struct FailedChanges {
    names: Vec<String>,
    why: String,
}

impl FailedChanges {
    fn note(&mut self, name: &str, why: &str) {
        if self.names.is_empty() {
            self.why = why.chars().take(200).collect();
        }
        self.names.push(name.chars().take(80).collect());
    }

    fn notice(self) -> Option<String> {
        let count = self.names.len();
        let names: Vec<String> = self.names.into_iter().take(MAX_NAMES).collect();
        let more = match count.saturating_sub(MAX_NAMES) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let (names, why) = (names.join(", "), self.why);
        let said = "Setting environment variables or reseeding failed";
        (count > 0).then(|| format!("{said}: {names}{more} ({why})"))
    }
}

/// Updates an idle kernel, so that the next execution need not.
pub(super) async fn refresh(context: Arc<Context>, launcher: Arc<Launcher>) {
    let Some(mut slot) = context.try_acquire() else {
        return;
    };
    let Some(kernel) = slot.running(&context) else {
        return;
    };
    let wanted = wanted(kernel, &launcher, Variables::new());
    let prepared = tokio::select! {
        biased;
        () = context.end_requested() => return,
        prepared = prepare(kernel, &context, &launcher, wanted) => prepared,
    };
    store_notice(&mut slot, prepared);
}

/// Restores the global environment after an execution with its own variables.
pub(super) async fn restore(
    slot: &mut KernelSlot,
    context: &Context,
    launcher: &Launcher,
    variables: &Variables,
) {
    if variables.is_empty() {
        return;
    }
    let Ok(kernel) = slot.kernel(context, launcher).await else {
        return;
    };
    let wanted = wanted(kernel, launcher, Variables::new());
    let prepared = prepare(kernel, context, launcher, wanted).await;
    store_notice(slot, prepared);
}

/// Keeps the result of an internal update as a notice for the next execution.
fn store_notice(slot: &mut KernelSlot, prepared: Result<Option<String>, ExecutionEnd>) {
    match prepared {
        Ok(None) | Err(ExecutionEnd::Completed | ExecutionEnd::Disconnected) => {}
        Ok(Some(failed_changes)) => slot.notice = Some(failed_changes),
        Err(ExecutionEnd::KernelLost(why)) => {
            slot.end_kernel(Some(format!("The context was restarted: {why}")))
        }
    }
}

#[cfg(test)]
mod tests;
