//! The catalogue as the API layer sees it.

use k8s_openapi::api::core::v1::ConfigMap;
use shoal_core::BoxFuture;
use shoal_core::catalogue::{Catalogue as Entries, Warning};
use shoal_core::ports::catalogue::{
    BlueprintInForce, CatalogueError, CatalogueInForce, RefusedEdit, TemplateCatalogue,
};
use shoal_core::store::StoreError;
use std::sync::Arc;

use super::{BLUEPRINT, Catalogue, Checked, ENTRIES, Unusable};
use crate::config_map::{Change, NotWritten, text, version};
use crate::{entries, failure};

/// How to treat an invalid key beside the edited one.
const OTHER: &str = "replace it first";

impl Catalogue {
    fn check_names(&self, entries: &Entries) -> Result<(), CatalogueError> {
        for entry in entries.entries() {
            for namespace in &self.pool_namespaces {
                if !entries::has_pool(entry) {
                    continue;
                }
                let key = (namespace.clone(), entries::set_name(&entry.name));
                if self.sets.get(&key).is_some_and(|set| !set.is_of_entry()) {
                    return Err(CatalogueError::Taken(format!(
                        "the pool of template {:?} would be the SandboxSet {}/{}, which is another's: rename one of them",
                        entry.name.as_str(),
                        key.0,
                        key.1
                    )));
                }
            }
        }
        Ok(())
    }

    async fn edit(
        &self,
        key: &'static str,
        change: impl Fn(&ConfigMap) -> Result<Change, CatalogueError>,
    ) -> Result<(), CatalogueError> {
        match self.map.write(key, change).await {
            Ok(written) => {
                self.load(&written);
                Ok(())
            }
            Err(NotWritten::Unwanted(error)) => Err(error),
            Err(NotWritten::Busy) => Err(StoreError::Conflict { expected: None }.into()),
            Err(NotWritten::Failed(error)) => Err(failure::store(&error).into()),
        }
    }
}

fn refused(unusable: Unusable) -> CatalogueError {
    match unusable {
        Unusable::Entries(invalid) => CatalogueError::Invalid(invalid),
        Unusable::Unfit(invalid) => CatalogueError::Unfit(invalid.to_string()),
    }
}

impl TemplateCatalogue for Catalogue {
    fn in_force(&self) -> Arc<CatalogueInForce> {
        self.state().in_force
    }

    fn refused_edit(&self) -> Option<RefusedEdit> {
        self.state().refused
    }

    fn warnings(&self, catalogue: &Entries) -> Vec<Warning> {
        catalogue.lint_in_cluster()
    }

    fn blueprint(&self) -> Result<BlueprintInForce, CatalogueError> {
        let state = self.state();
        Ok(BlueprintInForce {
            text: state.blueprint.text().to_owned(),
            own: state.own_blueprint,
        })
    }

    fn replace_blueprint<'a>(
        &'a self,
        given: &'a str,
    ) -> BoxFuture<'a, Result<BlueprintInForce, CatalogueError>> {
        Box::pin(async move {
            // Errors in the text itself come first.
            Checked::of("", given).map_err(refused)?;
            let change = |map: &ConfigMap| match Checked::of(text(map, ENTRIES), given) {
                Ok(_) if text(map, BLUEPRINT) == given => Ok(Change::Nothing),
                Ok(_) => Ok(Change::To(given.to_owned())),
                Err(Unusable::Entries(invalid)) => Err(CatalogueError::Unfit(format!(
                    "the key {ENTRIES} of the ConfigMap is invalid: {OTHER}: {invalid}"
                ))),
                Err(unfit) => Err(refused(unfit)),
            };
            self.edit(BLUEPRINT, change).await?;
            self.blueprint()
        })
    }

    fn check(&self, json: &str) -> Result<Entries, CatalogueError> {
        let entries = Entries::parse(json)?;
        self.check_names(&entries)?;
        let state = self.state();
        Checked::of(&entries.to_json(), state.blueprint.text()).map_err(refused)?;
        Ok(entries)
    }

    fn replace<'a>(
        &'a self,
        json: &'a str,
        expected: Option<u64>,
    ) -> BoxFuture<'a, Result<Arc<CatalogueInForce>, CatalogueError>> {
        Box::pin(async move {
            let entries = Entries::parse(json).map_err(CatalogueError::Invalid)?;
            self.check_names(&entries)?;
            let written = entries.to_json();
            let change = |map: &ConfigMap| {
                let current = version(map);
                if let Some(expected) = expected.filter(|expected| *expected != current) {
                    return Err(CatalogueError::Conflict { expected, current });
                }
                Checked::of(&written, text(map, BLUEPRINT)).map_err(refused)?;
                let known = Entries::parse(text(map, ENTRIES));
                if known.is_ok_and(|known| known == entries) {
                    return Ok(Change::Nothing);
                }
                Ok(Change::To(written.clone()))
            };
            self.edit(ENTRIES, change).await?;
            Ok(self.in_force())
        })
    }
}
