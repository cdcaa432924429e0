//! All contexts of a sandbox, including the default context of each language.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, watch};

use super::config::{InitialLanguages, InterpreterConfig};
use super::context::{Context, Listing};
use super::environment;
use super::kernel::{Launcher, StartFailure};
use super::kernelspec::{self, Kernelspec};
use super::variables::Dialect;
use crate::log::Log;
use crate::log::rate::Rate;
use crate::path;

/// Limit of contexts. Each is a process; Python's uses about 60 MB.
const MAX_CONTEXTS: usize = 64;

/// Startup timeout of the initial contexts.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(60);

/// Why a context is unavailable.
#[derive(Debug, thiserror::Error)]
pub(super) enum ContextError {
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
    InvalidCwd(#[from] path::InvalidPath),
    /// The kernel did not start.
    #[error("The kernel cannot be started: {0}")]
    Start(#[from] StartFailure),
}

/// Why the health check fails.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum HealthError {
    /// The initial contexts are still starting.
    #[error("The kernels are still starting")]
    Starting,
    /// Some initial contexts did not start.
    #[error("These kernels did not start: {0}")]
    Failed(String),
}

/// Rate limit of log entries about new contexts.
const REPORT_BURST: u32 = 64;
const REPORT_INTERVAL: Duration = Duration::from_secs(60);

impl ContextError {
    fn unknown(id: &str) -> Self {
        Self::Unknown(id.chars().take(80).collect())
    }
}

/// All contexts of a sandbox.
pub(super) struct Contexts {
    launcher: Arc<Launcher>,
    config: InterpreterConfig,
    log: Log,
    table: Mutex<ContextTable>,
    /// Limits log entries: in a public sandbox anyone can create and delete contexts.
    report_limit: Mutex<Rate>,
    /// Serialises the creation of default contexts, so that there is one per language.
    creation: AsyncMutex<()>,
    /// Whether the start of the initial contexts is complete, successful or not.
    started: watch::Sender<bool>,
}

#[derive(Default)]
struct ContextTable {
    /// In order of creation.
    contexts: Vec<Arc<Context>>,
    /// Default contexts by language.
    defaults: BTreeMap<String, Arc<Context>>,
    /// Languages whose initial context failed, with the reason.
    failed: BTreeMap<String, String>,
    /// Contexts being created.
    reserved: usize,
}

impl Contexts {
    /// An empty set.
    pub(super) fn new(launcher: Launcher, config: InterpreterConfig, log: Log) -> Self {
        Self {
            launcher: Arc::new(launcher),
            config,
            log,
            table: Mutex::default(),
            report_limit: Mutex::new(Rate::new(REPORT_BURST, REPORT_INTERVAL, Instant::now())),
            creation: AsyncMutex::new(()),
            started: watch::Sender::new(false),
        }
    }

    /// Parameters for starting kernels.
    pub(super) fn launcher(&self) -> &Arc<Launcher> {
        &self.launcher
    }

    /// Creates the initial contexts, and starts the kernels of those that do not wait for their first execution.
    pub(super) async fn start(&self) {
        let InitialLanguages { languages, named } = self.config.start();
        for language in languages {
            let started = self.default(&language).await;
            self.report_initial(&language, named, started.map(drop));
        }
        let InitialLanguages { languages, named } = self.config.on_demand();
        for language in languages {
            let added = self.add_on_demand(&language).await;
            self.report_initial(&language, named, added);
        }
        self.log.info("interpreter", "started").send();
        self.started.send_replace(true);
    }

    /// Records why an initial context is missing. A language that the template does not name needs no kernel.
    fn report_initial(&self, language: &str, named: bool, result: Result<(), ContextError>) {
        let error = match result {
            Ok(()) => return,
            Err(ContextError::Language { .. }) if !named => return,
            Err(error) => error.to_string(),
        };
        let entry = self.log.warn("interpreter", "default context failed");
        let entry = entry.with("language", language);
        entry.with("error", error.as_str()).send();
        let language = kernelspec::language(language);
        self.table.lock().failed.insert(language, error);
    }

    /// Waits for the initial contexts and reports failures. A language whose context has started
    /// since is healthy.
    pub(super) async fn health(&self) -> Result<(), HealthError> {
        if !self.started().await {
            return Err(HealthError::Starting);
        }
        let table = self.table.lock();
        let failed = table.failed.iter();
        let failed: Vec<String> = failed.map(|(name, why)| format!("{name}: {why}")).collect();
        match failed.as_slice() {
            [] => Ok(()),
            failed => Err(HealthError::Failed(failed.join("; "))),
        }
    }

    /// Sends changed settings to idle Python kernels, so that no execution waits for that. Busy
    /// kernels receive them with the next execution. So do kernels of other languages: many
    /// sandboxes never use them, and executing code costs Deno 80 MiB.
    pub(super) fn refresh(&self) {
        let table = self.table.lock();
        let python = |context: &&Arc<Context>| context.dialect() == Some(Dialect::Python);
        for context in table.contexts.iter().filter(python).cloned() {
            tokio::spawn(environment::refresh(context, Arc::clone(&self.launcher)));
        }
    }

    /// Waits for the initial contexts. False on timeout.
    pub(super) async fn started(&self) -> bool {
        let mut started = self.started.subscribe();
        let started = started.wait_for(|started| *started);
        tokio::time::timeout(STARTUP_TIMEOUT, started).await.is_ok()
    }

    /// All contexts.
    pub(super) fn list(&self) -> Vec<Listing> {
        let table = self.table.lock();
        let listings = table.contexts.iter().map(|context| context.listing());
        listings.cloned().collect()
    }

    /// The context with this id.
    pub(super) fn find(&self, id: &str) -> Result<Arc<Context>, ContextError> {
        let table = self.table.lock();
        let found = table.contexts.iter().find(|context| context.id() == id);
        found.cloned().ok_or_else(|| ContextError::unknown(id))
    }

    /// The default context of a language, if it exists.
    pub(super) fn find_default(&self, requested: &str) -> Option<Arc<Context>> {
        let table = self.table.lock();
        table
            .defaults
            .get(&kernelspec::language(requested))
            .cloned()
    }

    /// The default context of a language. Created on first use.
    pub(super) async fn default(&self, requested: &str) -> Result<Arc<Context>, ContextError> {
        let _turn = self.creation.lock().await;
        if let Some(context) = self.find_default(requested) {
            return Ok(context);
        }
        let language = kernelspec::language(requested);
        let context = self.create(&language, "").await?;
        let mut table = self.table.lock();
        table.defaults.insert(language, Arc::clone(&context));
        Ok(context)
    }

    /// Creates the default context of a language, if there is none. Its first execution starts the kernel.
    async fn add_on_demand(&self, requested: &str) -> Result<(), ContextError> {
        let _turn = self.creation.lock().await;
        if self.find_default(requested).is_some() {
            return Ok(());
        }
        let language = kernelspec::language(requested);
        let spec = self.kernel(&language).await?;
        let cwd = self.resolve_cwd("")?;
        let _slot = self.reserve_slot()?;
        let context = Context::new(&spec, &language, &cwd, &self.config.cwd);
        let context = self.add(&language, context);
        let mut table = self.table.lock();
        table.defaults.insert(language, context);
        Ok(())
    }

    /// Creates a context and starts its kernel.
    pub(super) async fn create(
        &self,
        requested: &str,
        cwd: &str,
    ) -> Result<Arc<Context>, ContextError> {
        let language = kernelspec::language(requested);
        let spec = self.kernel(&language).await?;
        let cwd = self.resolve_cwd(cwd)?;
        let _slot = self.reserve_slot()?;
        let home = self.config.cwd.as_str();
        let context = Context::start(&self.launcher, &spec, &language, &cwd, home).await;
        Ok(self.add(&language, context?))
    }

    /// Lists a new context.
    fn add(&self, language: &str, context: Context) -> Arc<Context> {
        let context = Arc::new(context);
        let reported = self.report_limit.lock().allow(Instant::now());
        if let Some(suppressed) = reported {
            let entry = self.log.info("interpreter", "context created");
            let entry = entry.with("id", context.id());
            let entry = entry.with("language", language);
            entry.suppressed(suppressed).send();
        }
        let mut table = self.table.lock();
        // The language is usable, so it is healthy.
        table.failed.remove(language);
        table.contexts.push(Arc::clone(&context));
        context
    }

    /// Restarts the kernel of a context.
    pub(super) async fn restart(&self, id: &str) -> Result<(), ContextError> {
        let context = self.find(id)?;
        match context.restart(&self.launcher).await {
            Err(StartFailure::Deleted) => Err(ContextError::unknown(id)),
            other => Ok(other?),
        }
    }

    /// Deletes a context.
    pub(super) fn delete(&self, id: &str) -> Result<(), ContextError> {
        let context = self.find(id)?;
        let mut table = self.table.lock();
        table.contexts.retain(|other| other.id() != id);
        table.defaults.retain(|_, other| other.id() != id);
        drop(table);
        context.delete(&self.launcher);
        Ok(())
    }

    /// The kernel for a language among those installed now.
    async fn kernel(&self, language: &str) -> Result<Kernelspec, ContextError> {
        let directories = self.config.kernels.clone();
        let found = tokio::task::spawn_blocking(move || kernelspec::find(&directories)).await;
        let found = found.unwrap_or_default();
        kernelspec::choose(&found, language)
            .cloned()
            .ok_or_else(|| {
                let languages: BTreeSet<String> = kernelspec::languages(&found);
                let languages: Vec<String> = languages.into_iter().collect();
                ContextError::Language {
                    language: language.chars().take(80).collect(),
                    installed: if languages.is_empty() {
                        "none".to_owned()
                    } else {
                        languages.join(", ")
                    },
                }
            })
    }

    fn resolve_cwd(&self, cwd: &str) -> Result<String, ContextError> {
        let directory = self.launcher.users.directory();
        let user = directory.user(&self.config.user);
        let user = user.ok_or_else(|| StartFailure::UnknownUser(self.config.user.clone()))?;
        let cwd = path::resolve(cwd, user, Some(&self.config.cwd))?;
        Ok(cwd.to_string_lossy().into_owned())
    }

    fn reserve_slot(&self) -> Result<ContextSlot<'_>, ContextError> {
        let mut table = self.table.lock();
        if table.contexts.len() + table.reserved >= MAX_CONTEXTS {
            return Err(ContextError::Full);
        }
        table.reserved += 1;
        Ok(ContextSlot(&self.table))
    }
}

/// A reserved slot for a context being created.
struct ContextSlot<'a>(&'a Mutex<ContextTable>);

impl Drop for ContextSlot<'_> {
    fn drop(&mut self) {
        self.0.lock().reserved -= 1;
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::super::tests::fake::launcher;
    use super::*;

    #[test]
    fn the_number_of_contexts_is_bounded() {
        let contexts = Contexts::new(launcher(), InterpreterConfig::default(), Log::none());
        let mut slots: Vec<_> = (0..MAX_CONTEXTS).map(|_| contexts.reserve_slot()).collect();
        assert!(slots.iter().all(Result::is_ok));
        let full = contexts.reserve_slot().err().map(|error| error.to_string());
        assert!(full.is_some_and(|text| text.contains("Too many contexts (limit 64)")));
        slots.pop();
        assert!(contexts.reserve_slot().is_ok());
    }

    /// Contexts of a template with this configuration.
    fn of(config: &str) -> Contexts {
        let config = serde_json::from_str(config).unwrap();
        Contexts::new(launcher(), config, Log::none())
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
        let Err(HealthError::Failed(why)) = contexts.health().await else {
            panic!("expected failures");
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
