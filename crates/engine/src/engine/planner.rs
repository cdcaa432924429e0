//! Plans the sandboxes of builds with the use cases of create.

use std::sync::{Arc, Weak};

use shoal_core::BoxFuture;
use shoal_core::auth::Principal;
use shoal_core::driver::RuntimeInfo;
use shoal_core::image::{Image, ImageName};
use shoal_core::sandbox::SandboxSpec;
use shoal_core::store::StoreError;

use super::{Engine, Shared};
use crate::builds::{Planned, Planner};
use crate::create::{CreateError, NewSandbox, Specified};
use crate::resolve::Resolved;

/// The engine as a planner. It does not keep the engine alive, which owns the builds.
pub(super) struct EnginePlanner(Weak<Shared>);

impl EnginePlanner {
    pub(super) fn new(shared: Weak<Shared>) -> Arc<Self> {
        Arc::new(Self(shared))
    }

    fn engine(&self) -> Option<Engine> {
        let shared = self.0.upgrade()?;
        Some(Engine { shared })
    }

    fn running(&self) -> Result<Engine, StoreError> {
        let stopped = || StoreError::failed("the engine has stopped".to_owned());
        self.engine().ok_or_else(stopped)
    }
}

impl From<Specified> for Planned {
    fn from(specified: Specified) -> Self {
        Self {
            spec: specified.spec,
            resolved: specified.resolved,
            image: specified.image,
        }
    }
}

impl Planner for EnginePlanner {
    fn plan<'a>(
        &'a self,
        principal: &'a Principal,
        new: NewSandbox,
        image: Option<Image>,
    ) -> BoxFuture<'a, Result<Planned, CreateError>> {
        Box::pin(async move {
            let specified = self.running()?.specified(principal, new, image).await;
            Ok(specified?.into())
        })
    }

    fn plan_resolved<'a>(
        &'a self,
        principal: &'a Principal,
        resolved: Resolved,
        new: NewSandbox,
    ) -> BoxFuture<'a, Result<Planned, CreateError>> {
        Box::pin(async move {
            let engine = self.running()?;
            let specified = engine.specified_as(principal, resolved, new, None).await;
            Ok(specified?.into())
        })
    }

    fn check_image(&self, principal: &Principal, image: &ImageName) -> Result<(), CreateError> {
        self.running()?.resolve(principal, None, Some(image))?;
        Ok(())
    }

    fn memory_runtime(&self, spec: &SandboxSpec) -> Option<RuntimeInfo> {
        self.engine()?.memory_runtime(spec)
    }
}
