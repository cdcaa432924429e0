//! Templates of the installation that are built when they are first asked for.
//!
//! They are nobody's: their builds are carried out in the name of a team of their own, which has no
//! key. So what a tenant has sent, built or named can never become part of what all tenants use.

use std::sync::Arc;
use std::time::Duration;

use shoal_core::auth::Principal;
use shoal_core::build::{BuildRecord, BuildStatus, Part, Plan};
use shoal_core::id::BuildId;
pub use shoal_core::ports::builds::StockError;
use shoal_core::template::{DEFAULT_TAG, TemplateName, TemplateRef};
use tokio::sync::Mutex;

use crate::access::INSTALLATION;
use crate::build_records::Build;
use crate::config::BuildOnDemand;
use crate::create::CreateError;
use crate::engine::Engine;
use crate::entropy::{self};
use crate::templates::{BuiltinDefinition, BuiltinTemplate, PreparedBuiltin, TemplateError};

/// How long a create waits for a build that is about to end: less than a client waits for it.
const WAIT: Duration = Duration::from_secs(40);

/// How long a failure is told before another create tries the build again.
const FAILURE_STANDS: Duration = Duration::from_secs(60);

/// The builds of builtin templates.
#[derive(Default)]
pub(crate) struct Stock {
    /// Held while a caller checks for a running build and begins one.
    beginning: Mutex<()>,
}

impl Engine {
    /// Lets a template be built when it is first asked for. Before [`Engine::recover`], which finishes
    /// builds of the last server.
    pub fn register_builtin(&self, template: BuiltinTemplate) {
        self.shared.templates.builtin().register(template);
    }

    /// Builds a stock template, for the first time or anew. A build that is under way is joined.
    /// It goes on by itself; [`Engine::build`] says how far it is. `force`, and another try right after
    /// a failure, are for admins.
    ///
    /// # Errors
    /// See [`StockError`].
    pub async fn build_stock(
        &self,
        principal: &Principal,
        name: &TemplateName,
        force: bool,
    ) -> Result<Arc<BuildRecord>, StockError> {
        let stock = &self.shared.stock;
        let builtin = self.shared.templates.builtin();
        let offer = builtin.find(name).ok_or_else(|| StockError::Unknown {
            name: name.clone(),
            known: builtin.names(),
        })?;
        let _beginning = stock.beginning.lock().await;
        if let Some(build) = self.latest(&offer, BuildStatus::Building) {
            return Ok(build.record());
        }
        if principal.admin {
            return Ok(self.begin_stock(&offer, force).await?.record());
        }
        if self.shared.templates.has(&offer.id) {
            return Err(StockError::Forbidden(name.clone()));
        }
        if let Some(reason) = self.failed_lately(&offer) {
            return Err(StockError::NotBuilt(name.clone(), reason));
        }
        self.may_begin_stock(principal, name)?;
        // What was done for the installation is done again when an admin says so.
        Ok(self.begin_stock(&offer, false).await?.record())
    }

    /// Whether a request of `principal` may take the minutes of a build of the installation's own. The
    /// installation's requests are those of pools, of which the operator's catalogue speaks.
    fn may_begin_stock(
        &self,
        principal: &Principal,
        name: &TemplateName,
    ) -> Result<(), StockError> {
        let everyone = self.shared.config.build_on_demand == BuildOnDemand::Everyone;
        if everyone || principal.admin || principal.team == INSTALLATION.team {
            return Ok(());
        }
        Err(StockError::AdminsOnly(name.clone()))
    }

    async fn begin_stock(
        &self,
        offer: &Arc<BuiltinTemplate>,
        force: bool,
    ) -> Result<Arc<Build>, StockError> {
        let files = |error| StockError::Files(offer.name.clone(), error);
        let (engine, definition) = (self.clone(), offer.definition.clone());
        let prepared = tokio::task::spawn_blocking(move || engine.prepare_stock(&*definition));
        let prepared = prepared
            .await
            .map_err(|e| files(std::io::Error::other(e)))?;
        let plan = Plan {
            force,
            ..prepared.map_err(files)?
        };
        let now = self.shared.clock.now();
        let record = BuildRecord {
            id: BuildId::from_entropy(entropy::bytes()?),
            template: offer.id.clone(),
            team: INSTALLATION.team,
            name: offer.name.clone(),
            tags: vec![DEFAULT_TAG.to_owned()],
            resources: self
                .shared
                .access
                .bounds(INSTALLATION.team)
                .nearest(offer.resources),
            public: false,
            status: BuildStatus::Building,
            failure: None,
            made: None,
            stock: true,
            created_at: now,
            updated_at: now,
            finished_at: None,
        };
        let build = self.shared.builds.insert(record).await?;
        let (engine, begun) = (self.clone(), build.clone());
        let carried_out = async move { engine.carry_out(&INSTALLATION, &begun, plan).await };
        self.shared.work.spawn(carried_out);
        Ok(build)
    }

    /// Puts the files of a definition to where steps find them.
    fn prepare_stock(&self, definition: &dyn BuiltinDefinition) -> std::io::Result<Plan> {
        let PreparedBuiltin { plan, files } = definition.prepare()?;
        for (hash, archive) in files {
            let uploads = &self.shared.uploads;
            let file = uploads.temporary()?;
            std::fs::write(&file, archive)?;
            let kept = uploads.keep(INSTALLATION.team, &hash, file);
            kept.map_err(std::io::Error::other)?;
        }
        Ok(plan)
    }

    /// The newest build of a stock template, when it is at this status.
    fn latest(&self, offer: &BuiltinTemplate, status: BuildStatus) -> Option<Arc<Build>> {
        let newest = self
            .shared
            .builds
            .of_template(&offer.id)
            .into_iter()
            .next()?;
        let found = (newest.status == status).then_some(newest.id)?;
        self.shared.builds.get(found)
    }

    /// Why the newest build of a stock template failed, for a while after it did.
    fn failed_lately(&self, offer: &BuiltinTemplate) -> Option<String> {
        let record = self.latest(offer, BuildStatus::Error)?.record();
        let stands = record.updated_at + FAILURE_STANDS > self.shared.clock.now();
        stands.then(|| reason(&record))
    }

    /// Waits for a stock template that a create names and that is not there, when it is nearly
    /// there; begins its build when nobody has and `principal` may.
    ///
    /// # Errors
    /// That it is no stock template, is being built, or could not be built.
    pub(crate) async fn await_stock(
        &self,
        principal: &Principal,
        name: &str,
    ) -> Result<(), CreateError> {
        let missing = || TemplateError::NotFound(name.to_owned());
        let plain = |reference: &TemplateRef| {
            let tag = reference.tag.as_deref();
            reference.namespace.is_none() && tag.is_none_or(|tag| tag == DEFAULT_TAG)
        };
        let reference = name.parse().ok().filter(plain).ok_or_else(missing)?;
        let offer = self.shared.templates.builtin().find(&reference.name);
        let offer = offer.ok_or_else(missing)?;
        let Some(build) = self.stock_under_way(principal, &offer).await? else {
            return Ok(());
        };
        if build.last_part() == Some(Part::Finalize) {
            let clock = &self.shared.clock;
            tokio::select! {
                () = build.ended() => {}
                () = clock.sleep_until(clock.now() + WAIT) => {}
            }
        }
        let record = build.record();
        match record.status {
            BuildStatus::Ready => Ok(()),
            BuildStatus::Error => Err(CreateError::NotBuilt {
                template: offer.name.clone(),
                reason: reason(&record),
            }),
            BuildStatus::Building | BuildStatus::Waiting => Err(CreateError::BeingBuilt {
                template: offer.name.clone(),
                build: format!("{}/{}", record.template, record.id),
            }),
        }
    }

    /// The build of a template that is not there, begun when nobody has; none when it is there by now.
    async fn stock_under_way(
        &self,
        principal: &Principal,
        offer: &Arc<BuiltinTemplate>,
    ) -> Result<Option<Arc<Build>>, CreateError> {
        let _beginning = self.shared.stock.beginning.lock().await;
        if self.shared.templates.has(&offer.id) {
            return Ok(None);
        }
        if let Some(build) = self.latest(offer, BuildStatus::Building) {
            return Ok(Some(build));
        }
        if let Some(reason) = self.failed_lately(offer) {
            let template = offer.name.clone();
            return Err(CreateError::NotBuilt { template, reason });
        }
        self.may_begin_stock(principal, &offer.name)?;
        tracing::info!(template = %offer.name, "building a template that was asked for");
        Ok(Some(self.begin_stock(offer, false).await?))
    }
}

/// Why a build failed.
fn reason(record: &BuildRecord) -> String {
    let failure = record.failure.as_ref();
    failure.map_or_else(String::new, |failure| failure.message.clone())
}

#[cfg(test)]
mod tests {
    use shoal_core::id::TemplateId;
    use shoal_core::resources::Resources;
    use shoal_core::template::Template;

    use super::*;
    use crate::test_util;

    struct Broken;

    impl BuiltinDefinition for Broken {
        fn prepare(&self) -> std::io::Result<PreparedBuiltin> {
            Err(std::io::Error::other("nobody builds it"))
        }
    }

    #[tokio::test]
    async fn what_has_become_ready_before_it_is_waited_for_is_not_built_again() {
        let directory = tempfile::tempdir().unwrap();
        let engine = test_util::open(test_util::parts(directory.path())).await;
        let id = TemplateId::from_entropy([9; 16]);
        engine.register_builtin(BuiltinTemplate {
            id: id.clone(),
            name: "made".parse().unwrap(),
            description: String::new(),
            resources: Resources::default(),
            definition: Arc::new(Broken),
        });
        let missing = engine.await_stock(&INSTALLATION, "made").await;
        assert!(matches!(missing, Err(CreateError::Stock(_))), "{missing:?}");
        let build = BuildId::from_entropy([1; 16]);
        let image = "test/image:1".parse().unwrap();
        let template = Template {
            names: vec!["made".parse().unwrap()],
            public: true,
            ..Template::over(id, build, image, engine.now())
        };
        engine.put_template(template).await.unwrap();
        engine.await_stock(&INSTALLATION, "made").await.unwrap();
    }
}
