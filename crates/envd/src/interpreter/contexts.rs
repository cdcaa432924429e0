//! All contexts of a sandbox, including the default context of each language.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{Mutex as Turn, watch};

use super::context::{Context, Listing};
use super::environment;
use super::kernel::{Launcher, StartFailure};
use super::kernelspec::{self, Kernelspec};
use super::offer::{self, Offer};
use super::variables::Dialect;
use crate::log::Log;
use crate::log::rate::Rate;
use crate::path;

/// Limit of contexts. Each is a process; Python's uses about 60 MB.
const MAX_CONTEXTS: usize = 64;

/// Startup timeout of the initial contexts.
const STARTED: Duration = Duration::from_secs(60);

/// Why a context is unavailable.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoContext {
    /// No kernel for the language.
    #[error("No kernel for '{language}' is installed. Installed are: {installed}")]
    Language {
        /// The requested language.
        language: String,
        /// The available languages.
        installed: String,
    },
    /// The limit is reached.
    #[error("Too many contexts (limit {MAX_CONTEXTS}): delete some")]
    Full,
    /// Unknown id.
    #[error("Context {0} not found")]
    Unknown(String),
    /// Invalid working directory.
    #[error("Invalid cwd: {0}")]
    Place(#[from] path::InvalidPath),
    /// The kernel did not start.
    #[error("The kernel cannot be started: {0}")]
    Start(#[from] StartFailure),
}

/// Why the health check fails.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unwell {
    /// The initial contexts are still starting.
    #[error("The kernels are still starting")]
    Starting,
    /// Some initial contexts did not start.
    #[error("These kernels did not start: {0}")]
    Failed(String),
}

/// Rate limit of log entries about new contexts.
const REPORTED: u32 = 64;
const REPORT_INTERVAL: Duration = Duration::from_secs(60);

impl NoContext {
    fn unknown(id: &str) -> Self {
        Self::Unknown(id.chars().take(80).collect())
    }
}

/// All contexts of a sandbox.
pub(super) struct Contexts {
    launcher: Arc<Launcher>,
    offer: Offer,
    log: Log,
    known: Mutex<Known>,
    /// Limits log entries: in a public sandbox anyone can create and delete contexts.
    reported: Mutex<Rate>,
    /// Serialises the creation of default contexts, so that there is one per language.
    making: Turn<()>,
    /// Whether the start of the initial contexts is complete, successful or not.
    started: watch::Sender<bool>,
}

#[derive(Default)]
struct Known {
    /// In order of creation.
    contexts: Vec<Arc<Context>>,
    /// Default contexts by language.
    defaults: BTreeMap<String, Arc<Context>>,
    /// Languages whose initial context failed, with the reason.
    failed: BTreeMap<String, String>,
    /// Contexts being created.
    coming: usize,
}

impl Contexts {
    /// An empty set.
    pub(super) fn new(launcher: Launcher, offer: Offer, log: Log) -> Self {
        Self {
            launcher: Arc::new(launcher),
            offer,
            log,
            known: Mutex::default(),
            reported: Mutex::new(Rate::new(REPORTED, REPORT_INTERVAL, Instant::now())),
            making: Turn::new(()),
            started: watch::Sender::new(false),
        }
    }

    /// Parameters for starting kernels.
    pub(super) fn launcher(&self) -> &Arc<Launcher> {
        &self.launcher
    }

    /// Starts the initial contexts: all that the template lists, else those default languages that
    /// have a kernel.
    pub(super) async fn start(&self) {
        let usual = || offer::START.map(ToOwned::to_owned).to_vec();
        let named = self.offer.start.is_some();
        for language in self.offer.start.clone().unwrap_or_else(usual) {
            let error = match self.default(&language).await {
                Ok(_) => continue,
                Err(NoContext::Language { .. }) if !named => continue,
                Err(error) => error.to_string(),
            };
            let entry = self.log.warn("interpreter", "default context failed");
            let entry = entry.with("language", language.as_str());
            entry.with("error", error.as_str()).send();
            let language = kernelspec::language(&language);
            self.known.lock().failed.insert(language, error);
        }
        self.log.info("interpreter", "started").send();
        self.started.send_replace(true);
    }

    /// Waits for the initial contexts and reports failures. A language whose context has started
    /// since is healthy.
    pub(super) async fn health(&self) -> Result<(), Unwell> {
        if !self.started().await {
            return Err(Unwell::Starting);
        }
        let known = self.known.lock();
        let failed = known.failed.iter();
        let failed: Vec<String> = failed.map(|(name, why)| format!("{name}: {why}")).collect();
        match failed.as_slice() {
            [] => Ok(()),
            failed => Err(Unwell::Failed(failed.join("; "))),
        }
    }

    /// Sends changed settings to idle Python kernels, so that no execution waits for that. Busy
    /// kernels receive them with the next execution. So do kernels of other languages: many
    /// sandboxes never use them, and executing code costs Deno 80 MiB.
    pub(super) fn refresh(&self) {
        let known = self.known.lock();
        let python = |context: &&Arc<Context>| context.dialect() == Some(Dialect::Python);
        for context in known.contexts.iter().filter(python).cloned() {
            tokio::spawn(environment::refresh(context, Arc::clone(&self.launcher)));
        }
    }

    /// Waits for the initial contexts. False on timeout.
    pub(super) async fn started(&self) -> bool {
        let mut started = self.started.subscribe();
        let started = started.wait_for(|started| *started);
        tokio::time::timeout(STARTED, started).await.is_ok()
    }

    /// All contexts.
    pub(super) fn list(&self) -> Vec<Listing> {
        let known = self.known.lock();
        let listings = known.contexts.iter().map(|context| context.listing());
        listings.cloned().collect()
    }

    /// The context with this id.
    pub(super) fn find(&self, id: &str) -> Result<Arc<Context>, NoContext> {
        let known = self.known.lock();
        let found = known.contexts.iter().find(|context| context.id() == id);
        found.cloned().ok_or_else(|| NoContext::unknown(id))
    }

    /// The default context of a language, if it exists.
    pub(super) fn find_default(&self, asked: &str) -> Option<Arc<Context>> {
        let known = self.known.lock();
        known.defaults.get(&kernelspec::language(asked)).cloned()
    }

    /// The default context of a language. Created on first use.
    pub(super) async fn default(&self, asked: &str) -> Result<Arc<Context>, NoContext> {
        let _turn = self.making.lock().await;
        if let Some(context) = self.find_default(asked) {
            return Ok(context);
        }
        let language = kernelspec::language(asked);
        let context = self.create(&language, "").await?;
        let mut known = self.known.lock();
        known.defaults.insert(language, Arc::clone(&context));
        Ok(context)
    }

    /// Creates a context.
    pub(super) async fn create(&self, asked: &str, cwd: &str) -> Result<Arc<Context>, NoContext> {
        let language = kernelspec::language(asked);
        let spec = self.kernel(&language).await?;
        let cwd = self.place(cwd)?;
        let _coming = self.room()?;
        let home = self.offer.cwd.as_str();
        let context = Context::start(&self.launcher, &spec, &language, &cwd, home).await;
        let context = Arc::new(context?);
        let reported = self.reported.lock().allow(Instant::now());
        if let Some(suppressed) = reported {
            let entry = self.log.info("interpreter", "context created");
            let entry = entry.with("id", context.id());
            let entry = entry.with("language", language.as_str());
            entry.suppressed(suppressed).send();
        }
        let mut known = self.known.lock();
        // Its kernel can start, so the language is healthy.
        known.failed.remove(&language);
        known.contexts.push(Arc::clone(&context));
        drop(known);
        Ok(context)
    }

    /// Restarts the kernel of a context.
    pub(super) async fn restart(&self, id: &str) -> Result<(), NoContext> {
        let context = self.find(id)?;
        match context.restart(&self.launcher).await {
            Err(StartFailure::Deleted) => Err(NoContext::unknown(id)),
            other => Ok(other?),
        }
    }

    /// Deletes a context.
    pub(super) fn delete(&self, id: &str) -> Result<(), NoContext> {
        let context = self.find(id)?;
        let mut known = self.known.lock();
        known.contexts.retain(|other| other.id() != id);
        known.defaults.retain(|_, other| other.id() != id);
        drop(known);
        context.delete(&self.launcher);
        Ok(())
    }

    /// The kernel for a language among those installed now.
    async fn kernel(&self, language: &str) -> Result<Kernelspec, NoContext> {
        let directories = self.offer.kernels.clone();
        let found = tokio::task::spawn_blocking(move || kernelspec::find(&directories)).await;
        let found = found.unwrap_or_default();
        kernelspec::choose(&found, language)
            .cloned()
            .ok_or_else(|| {
                let languages: BTreeSet<String> = kernelspec::languages(&found);
                let languages: Vec<String> = languages.into_iter().collect();
                NoContext::Language {
                    language: language.chars().take(80).collect(),
                    installed: if languages.is_empty() {
                        "none".to_owned()
                    } else {
                        languages.join(", ")
                    },
                }
            })
    }

    fn place(&self, cwd: &str) -> Result<String, NoContext> {
        let directory = self.launcher.users.directory();
        let user = directory.user(&self.offer.user);
        let user = user.ok_or_else(|| StartFailure::NoUser(self.offer.user.clone()))?;
        let place = path::resolve(cwd, user, Some(&self.offer.cwd))?;
        Ok(place.to_string_lossy().into_owned())
    }

    fn room(&self) -> Result<Coming<'_>, NoContext> {
        let mut known = self.known.lock();
        if known.contexts.len() + known.coming >= MAX_CONTEXTS {
            return Err(NoContext::Full);
        }
        known.coming += 1;
        Ok(Coming(&self.known))
    }
}

/// A reserved slot for a context being created.
struct Coming<'a>(&'a Mutex<Known>);

impl Drop for Coming<'_> {
    fn drop(&mut self) {
        self.0.lock().coming -= 1;
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::super::fake::launcher;
    use super::*;

    #[test]
    fn the_number_of_contexts_is_bounded() {
        let contexts = Contexts::new(launcher(), Offer::default(), Log::none());
        let mut coming: Vec<_> = (0..MAX_CONTEXTS).map(|_| contexts.room()).collect();
        assert!(coming.iter().all(Result::is_ok));
        let full = contexts.room().err().map(|error| error.to_string());
        assert!(full.is_some_and(|text| text.contains("Too many contexts (limit 64)")));
        coming.pop();
        assert!(contexts.room().is_ok());
    }

    /// Contexts of a template with this configuration.
    fn of(offer: &str) -> Contexts {
        let offer = serde_json::from_str(offer).unwrap();
        Contexts::new(launcher(), offer, Log::none())
    }

    #[tokio::test]
    async fn a_kernel_that_does_not_start_is_named_with_its_reason() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("k")).unwrap();
        let kernel = r#"{"argv": ["x"], "language": "python"}"#;
        std::fs::write(directory.path().join("k/kernel.json"), kernel).unwrap();
        let named = serde_json::json!({"kernels": [directory.path()], "start": ["python", "js"]});
        let contexts = of(&named.to_string());
        contexts.start().await;
        let Err(Unwell::Failed(why)) = contexts.health().await else {
            panic!("nothing of it can start");
        };
        // The test launcher's user does not exist.
        assert!(why.contains("python: The kernel cannot be started: the kernels' user"));
        assert!(why.contains("javascript: No kernel for 'javascript' is installed"));
    }

    #[tokio::test]
    async fn default_kernels_may_be_missing() {
        let contexts = of(r#"{"kernels": []}"#);
        assert!(contexts.health().now_or_never().is_none(), "not yet");
        contexts.start().await;
        assert_eq!(contexts.health().await, Ok(()));
    }
}
