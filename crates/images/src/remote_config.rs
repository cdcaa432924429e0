//! The configuration of an image, read from its registry without its layers.

use futures_util::FutureExt;
use shoal_core::BoxFuture;
use shoal_core::image::{ImageConfig, ImageConfigs, ImageError, ImageName, Reach, RegistryAuth};

use super::ImageStore;
use super::fault::Fault;
use super::manifest::Plan;
use super::reference::Reference;
use super::registry::{RegistryConfig, Repository};

/// Reads image configurations from registries. It needs no directory, so a program without an image
/// store can use it.
#[derive(Debug, Clone, Default)]
pub struct RemoteConfigs {
    registry: RegistryConfig,
}

impl RemoteConfigs {
    /// A reader with these settings for registries.
    #[must_use]
    pub fn new(registry: RegistryConfig) -> Self {
        Self { registry }
    }
}

impl ImageConfigs for RemoteConfigs {
    fn read_config(
        &self,
        name: ImageName,
        auth: Option<RegistryAuth>,
        reach: Reach,
    ) -> BoxFuture<'_, Result<ImageConfig, ImageError>> {
        async move {
            let read = read(&name, auth, reach, &self.registry).await;
            let read = read.map_err(|fault| match reach {
                Reach::Anywhere => fault,
                Reach::Public => fault.without_details(),
            });
            read.map_err(|fault| fault.of(&name))
        }
        .boxed()
    }
}

impl ImageConfigs for ImageStore {
    fn read_config(
        &self,
        name: ImageName,
        auth: Option<RegistryAuth>,
        reach: Reach,
    ) -> BoxFuture<'_, Result<ImageConfig, ImageError>> {
        let remote = RemoteConfigs::new(self.shared.config.registry.clone());
        async move { remote.read_config(name, auth, reach).await }.boxed()
    }
}

async fn read(
    name: &ImageName,
    auth: Option<RegistryAuth>,
    reach: Reach,
    config: &RegistryConfig,
) -> Result<ImageConfig, Fault> {
    if name.mmdebstrap_suite().is_some() {
        return Err(Fault::refused(
            "it is made from packages, and no registry has its configuration",
        ));
    }
    let reference = Reference::parse(name)?;
    let from = Repository::new(reference, auth, reach, config)?;
    Ok(from.plan().await?.into())
}

impl From<Plan> for ImageConfig {
    fn from(plan: Plan) -> Self {
        let named = |text: String| (!text.is_empty()).then_some(text);
        let sizes = plan.layers.iter().map(|layer| layer.blob.size);
        Self {
            digest: plan.digest.to_string(),
            download_bytes: sizes.fold(0, u64::saturating_add),
            layers: plan
                .layers
                .iter()
                .map(|layer| layer.diff_id.to_string())
                .collect(),
            user: named(plan.settings.user),
            workdir: named(plan.settings.working_dir),
            env: plan.settings.env,
            entrypoint: plan.settings.entrypoint,
            cmd: plan.settings.cmd,
        }
    }
}
