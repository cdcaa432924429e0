//! The environment of a kernel, before and after an execution, and chance of its own once its memory
//! was copied.

use std::sync::Arc;
use std::time::Duration;

use super::context::{Context, Slot};
use super::execution::End;
use super::kernel::{Kernel, Launcher};
use super::variables::Change;
use crate::random;
use crate::settings::Variables;

/// How long code of ours may take.
pub(super) const SILENT: Duration = Duration::from_secs(10);

/// The most names that are told.
const NAMED: usize = 8;

/// The environment that a kernel should have: what an execution is given wins over what all have,
/// and that over what it was started with.
pub(super) fn wanted(kernel: &Kernel, launcher: &Launcher, own: Variables) -> Variables {
    let mut wanted = kernel.inherited.clone();
    wanted.extend((*launcher.settings.environment()).clone());
    wanted.extend(own);
    wanted
}

/// Gives a kernel the environment that it should have, and chance of its own after its memory was
/// copied. Gives what it did not take, in words for its client, if that is news; it is tried again
/// before the next execution.
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
        // What was seeded is the user's again, who may have chosen a seed.
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

/// The same, where some of it fails: that keeps nothing else from being done.
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

/// Has a kernel execute what its template wants before its first execution. Gives what failed, in words
/// for its client; it is not tried again.
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
        format!("This kernel could not execute what its template begins with ({why})")
    }))
}

/// Tells one thing, plainly where it is not taken otherwise, and gives why it failed if it did.
async fn tell_change(
    kernel: &mut Kernel,
    launcher: &Launcher,
    change: &Change,
) -> Result<Option<String>, End> {
    let failed = tell(kernel, launcher, &change.code).await?;
    match (&failed, &change.plain) {
        (Some(_), Some(plain)) => {
            let plainly = tell(kernel, launcher, plain).await?;
            // Where both fail, the first one was meant for most kernels.
            Ok(plainly.and(failed))
        }
        _ => Ok(failed),
    }
}

/// Has code executed, and gives why it failed if it did.
async fn tell(kernel: &mut Kernel, launcher: &Launcher, code: &str) -> Result<Option<String>, End> {
    let told = launcher.time.timeout(SILENT, kernel.silently(code)).await;
    let late = || End::Lost("the kernel did not take its environment".to_owned());
    Ok(told.ok_or_else(late)??)
}

/// What a kernel did not take.
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
        let said = "This kernel could not be told its environment or seeded anew";
        (count > 0).then(|| format!("{said}: {names}{more} ({why})"))
    }
}

/// Gives a kernel that does nothing what an execution would be the first to give it.
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

/// Takes the variables of one execution away, or gives them the values that they have for all.
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

/// What the next execution is told of what was done for none.
fn settle(slot: &mut Slot, prepared: Result<Option<String>, End>) {
    match prepared {
        Ok(None) | Err(End::Done | End::Left) => {}
        Ok(Some(refused)) => slot.notice = Some(refused),
        Err(End::Lost(why)) => slot.end_kernel(Some(format!("The context was restarted: {why}"))),
    }
}

#[cfg(test)]
mod tests;
