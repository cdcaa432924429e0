//! All contexts, and which of them is meant when a request names none.

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

/// The most contexts. Each is a process, of which Python's has about 60 MB.
const MAX_CONTEXTS: usize = 64;

/// How long to wait for the contexts that are started with the server.
const STARTED: Duration = Duration::from_secs(60);

/// Why there is no context to execute something in.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoContext {
    /// No kernel speaks the language.
    #[error("No kernel for '{language}' is installed. Installed are: {installed}")]
    Language {
        /// What was asked for.
        language: String,
        /// What there is.
        installed: String,
    },
    /// There are as many as may be.
    #[error("There are {MAX_CONTEXTS} contexts already, which is the limit: delete some")]
    Full,
    /// No context has the id.
    #[error("Context {0} not found")]
    Unknown(String),
    /// It cannot be a place.
    #[error("The cwd cannot be used: {0}")]
    Place(#[from] path::InvalidPath),
    /// Its kernel does not start.
    #[error("The kernel cannot be started: {0}")]
    Start(#[from] StartFailure),
}

/// Why the server is not well.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unwell {
    /// Its first contexts are not there yet.
    #[error("The kernels are still starting")]
    Starting,
    /// There is none for some languages.
    #[error("These kernels did not start: {0}")]
    Failed(String),
}

/// How many contexts may be reported at once, and how often one more after that.
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
    /// How many are reported: a public sandbox lets strangers make and delete contexts.
    reported: Mutex<Rate>,
    /// One default context is made at a time, so that there is one of a language.
    making: Turn<()>,
    /// Whether those that are started with the server are there, or never will be.
    started: watch::Sender<bool>,
}

#[derive(Default)]
struct Known {
    /// In the order in which they came.
    contexts: Vec<Arc<Context>>,
    /// Those that are meant when only a language is named.
    defaults: BTreeMap<String, Arc<Context>>,
    /// The languages that should have had one from the beginning, and why they have none.
    failed: BTreeMap<String, String>,
    /// How many are being made.
    coming: usize,
}

impl Contexts {
    /// None yet.
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

    /// What kernels are started with.
    pub(super) fn launcher(&self) -> &Arc<Launcher> {
        &self.launcher
    }

    /// Starts those that are there before anybody asks: all that the template names; of the usual
    /// ones those that there are kernels for.
    pub(super) async fn start(&self) {
        let usual = || offer::START.map(ToOwned::to_owned).to_vec();
        let named = self.offer.start.is_some();
        for language in self.offer.start.clone().unwrap_or_else(usual) {
            let error = match self.default(&language).await {
                Ok(_) => continue,
                Err(NoContext::Language { .. }) if !named => continue,
                Err(error) => error.to_string(),
            };
            let entry = self.log.warn("interpreter", "no default context");
            let entry = entry.with("language", language.as_str());
            entry.with("error", error.as_str()).send();
            let language = kernelspec::language(&language);
            self.known.lock().failed.insert(language, error);
        }
        self.log.info("interpreter", "started").send();
        self.started.send_replace(true);
    }

    /// Waits until the first contexts are there, and says why if they are not all. What did not start
    /// then and was made since is no reason any more.
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

    /// Tells kernels of Python that do nothing what the control plane has said anew, so that no
    /// execution has to wait for that. Those that do something are told by the next one, and so are
    /// those of other languages: many sandboxes never use them, and what Deno executes costs it 80 MiB.
    pub(super) fn refresh(&self) {
        let known = self.known.lock();
        let python = |context: &&Arc<Context>| context.dialect() == Some(Dialect::Python);
        for context in known.contexts.iter().filter(python).cloned() {
            tokio::spawn(environment::refresh(context, Arc::clone(&self.launcher)));
        }
    }

    /// Waits until those are there. False when that takes too long.
    pub(super) async fn started(&self) -> bool {
        let mut started = self.started.subscribe();
        let started = started.wait_for(|started| *started);
        tokio::time::timeout(STARTED, started).await.is_ok()
    }

    /// All of them.
    pub(super) fn list(&self) -> Vec<Listing> {
        let known = self.known.lock();
        let listings = known.contexts.iter().map(|context| context.listing());
        listings.cloned().collect()
    }

    /// The context of an id.
    pub(super) fn find(&self, id: &str) -> Result<Arc<Context>, NoContext> {
        let known = self.known.lock();
        let found = known.contexts.iter().find(|context| context.id() == id);
        found.cloned().ok_or_else(|| NoContext::unknown(id))
    }

    /// The context that is meant when only a language is named, if it is there.
    pub(super) fn find_default(&self, asked: &str) -> Option<Arc<Context>> {
        let known = self.known.lock();
        known.defaults.get(&kernelspec::language(asked)).cloned()
    }

    /// The context that is meant when only a language is named. It is made when it is not there.
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

    /// Makes a context.
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
            let entry = self.log.info("interpreter", "context made");
            let entry = entry.with("id", context.id());
            let entry = entry.with("language", language.as_str());
            entry.suppressed(suppressed).send();
        }
        let mut known = self.known.lock();
        // Its kernel does start.
        known.failed.remove(&language);
        known.contexts.push(Arc::clone(&context));
        drop(known);
        Ok(context)
    }

    /// Starts the kernel of a context again.
    pub(super) async fn restart(&self, id: &str) -> Result<(), NoContext> {
        let context = self.find(id)?;
        match context.restart(&self.launcher).await {
            Err(StartFailure::Deleted) => Err(NoContext::unknown(id)),
            other => Ok(other?),
        }
    }

    /// Ends a context.
    pub(super) fn delete(&self, id: &str) -> Result<(), NoContext> {
        let context = self.find(id)?;
        let mut known = self.known.lock();
        known.contexts.retain(|other| other.id() != id);
        known.defaults.retain(|_, other| other.id() != id);
        drop(known);
        context.delete(&self.launcher);
        Ok(())
    }

    /// The kernel of a language, as they are installed now.
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

/// A context that is being made.
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
    fn only_so_many_contexts_come() {
        let contexts = Contexts::new(launcher(), Offer::default(), Log::none());
        let mut coming: Vec<_> = (0..MAX_CONTEXTS).map(|_| contexts.room()).collect();
        assert!(coming.iter().all(Result::is_ok));
        let full = contexts.room().err().map(|error| error.to_string());
        assert!(full.is_some_and(|text| text.contains("There are 64 contexts already")));
        coming.pop();
        assert!(contexts.room().is_ok());
    }

    /// The server of a template that says this.
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
        // The launcher of tests has no user.
        assert!(why.contains("python: The kernel cannot be started: kernels are to run as"));
        assert!(why.contains("javascript: No kernel for 'javascript' is installed"));
    }

    #[tokio::test]
    async fn of_the_usual_kernels_some_may_be_missing() {
        let contexts = of(r#"{"kernels": []}"#);
        assert!(contexts.health().now_or_never().is_none(), "not yet");
        contexts.start().await;
        assert_eq!(contexts.health().await, Ok(()));
    }
}
