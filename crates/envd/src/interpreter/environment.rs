//! Environment of a kernel before and after an execution, and reseeding after a clone.

use std::sync::Arc;
use std::time::Duration;

use super::context::{Context, Slot};
use super::execution::End;
use super::kernel::{Kernel, Launcher};
use super::variables::Change;
use crate::random;
use crate::settings::Variables;

/// Timeout of internal code.
pub(super) const SILENT: Duration = Duration::from_secs(10);

/// Limit of variable names in a notice.
const NAMED: usize = 8;

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
) -> Result<Option<String>, End> {
    let Some(dialect) = context.dialect() else {
        return Ok(None);
    };
    let changes = dialect.changes(&kernel.variables, &wanted);
    let sandbox = launcher.sandbox();
    let is_another = sandbox != kernel.sandbox;
    let mut chance = Vec::new();
    if is_another || !kernel.unseeded.is_empty() {
        let seed = [(); 4].map(|()| u32::from_ne_bytes(random::bytes()));
        chance = dialect.reseed(seed);
        // Generators that were reseeded belong to the user again, who may have chosen a seed.
        chance.retain(|Change { name, .. }| is_another || kernel.unseeded.contains(name));
    }
    if !changes.is_empty() || !chance.is_empty() {
        let all = || changes.iter().chain(&chance);
        let mut failed = tell(kernel, launcher, &dialect.together(all())).await?;
        if failed.is_some()
            && let Some(plain) = dialect.plainly_together(all())
        {
            failed = tell(kernel, launcher, &plain).await?;
        }
        if failed.is_some() {
            return one_by_one(kernel, launcher, &wanted, [changes, chance], sandbox).await;
        }
    }
    kernel.sandbox = sandbox;
    kernel.unseeded.clear();
    kernel.variables = wanted;
    kernel.refused = None;
    Ok(None)
}

/// Applies changes one by one after a failure, so that the others take effect.
async fn one_by_one(
    kernel: &mut Kernel,
    launcher: &Launcher,
    wanted: &Variables,
    [changes, chance]: [Vec<Change>; 2],
    sandbox: Option<String>,
) -> Result<Option<String>, End> {
    let mut refused = Refused::default();
    for change in changes {
        let failed = tell_change(kernel, launcher, &change).await?;
        let name = change.name;
        match failed {
            Some(why) => refused.note(&name, &why),
            None => match wanted.get(&name) {
                Some(value) => drop(kernel.variables.insert(name, value.clone())),
                None => drop(kernel.variables.remove(&name)),
            },
        }
    }
    let mut unseeded = Vec::new();
    for change in chance {
        if let Some(why) = tell_change(kernel, launcher, &change).await? {
            refused.note(&change.name, &why);
            unseeded.push(change.name);
        }
    }
    (kernel.sandbox, kernel.unseeded) = (sandbox, unseeded);
    let refused = refused.told();
    let news = refused.clone().filter(|_| refused != kernel.refused);
    kernel.refused = refused;
    Ok(news)
}

/// Executes the template's startup code before the first execution. Returns a notice if it failed;
/// it is not retried.
pub(super) async fn set_up(
    kernel: &mut Kernel,
    launcher: &Launcher,
) -> Result<Option<String>, End> {
    let Some(code) = kernel.startup.take() else {
        return Ok(None);
    };
    let failed = tell(kernel, launcher, &code).await?;
    Ok(failed.map(|why| {
        let why: String = why.chars().take(200).collect();
        format!("The template's startup code failed ({why})")
    }))
}

/// Applies one change, with its fallback without `await` if it fails. Returns the error if both
/// fail.
async fn tell_change(
    kernel: &mut Kernel,
    launcher: &Launcher,
    change: &Change,
) -> Result<Option<String>, End> {
    let failed = tell(kernel, launcher, &change.code).await?;
    match (&failed, &change.plain) {
        (Some(_), Some(plain)) => {
            let plainly = tell(kernel, launcher, plain).await?;
            // If both fail, report the error of the preferred variant.
            Ok(plainly.and(failed))
        }
        _ => Ok(failed),
    }
}

/// Executes internal code. Returns the error if it failed.
async fn tell(kernel: &mut Kernel, launcher: &Launcher, code: &str) -> Result<Option<String>, End> {
    let told = launcher.time.timeout(SILENT, kernel.silently(code)).await;
    let late = || End::Lost("the kernel did not apply its environment in time".to_owned());
    Ok(told.ok_or_else(late)??)
}

/// Changes that failed.
#[derive(Default)]
struct Refused {
    names: Vec<String>,
    why: String,
}

impl Refused {
    fn note(&mut self, name: &str, why: &str) {
        if self.names.is_empty() {
            self.why = why.chars().take(200).collect();
        }
        self.names.push(name.chars().take(80).collect());
    }

    fn told(self) -> Option<String> {
        let count = self.names.len();
        let names: Vec<String> = self.names.into_iter().take(NAMED).collect();
        let more = match count.saturating_sub(NAMED) {
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
    let Some(mut slot) = context.turn_now() else {
        return;
    };
    let Some(kernel) = slot.running(&context) else {
        return;
    };
    let wanted = wanted(kernel, &launcher, Variables::new());
    let prepared = tokio::select! {
        biased;
        () = context.is_to_end() => return,
        prepared = prepare(kernel, &context, &launcher, wanted) => prepared,
    };
    settle(&mut slot, prepared);
}

/// Restores the global environment after an execution with its own variables.
pub(super) async fn restore(
    slot: &mut Slot,
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
    settle(slot, prepared);
}

/// Keeps the result of an internal update as a notice for the next execution.
fn settle(slot: &mut Slot, prepared: Result<Option<String>, End>) {
    match prepared {
        Ok(None) | Err(End::Done | End::Left) => {}
        Ok(Some(refused)) => slot.notice = Some(refused),
        Err(End::Lost(why)) => slot.end_kernel(Some(format!("The context was restarted: {why}"))),
    }
}

#[cfg(test)]
mod tests;
