//! Puts the services together, in the order of their dependencies.

use std::sync::{Arc, Weak};

use super::{EngineParts, OpenEngineError, Shared};
use crate::access::Access;
use crate::build_records::BuildRecords;
use crate::builds::{BuildParts, Builds};
use crate::catalogue::Catalogues;
use crate::create::{Creator, CreatorParts};
use crate::drivers::Drivers;
use crate::images::NodeImages;
use crate::plan::Planner;
use crate::pool::{PoolMembers, PoolParts, Pools};
use crate::random;
use crate::resolve::{Resolver, ResolverParts};
use crate::sandboxes::{SandboxParts, Sandboxes};
use crate::snapshots::Snapshots;
use crate::snapshotter::{Snapshotter, SnapshotterParts};
use crate::telemetry::Telemetry;
use crate::templates::{TemplateParts, Templates};
use crate::uploads::Uploads;
use crate::work::Work;

/// The services that keep records and depend on no sandbox.
struct Records {
    telemetry: Arc<Telemetry>,
    access: Arc<Access>,
    catalogues: Arc<Catalogues>,
    images: Arc<NodeImages>,
    build_records: Arc<BuildRecords>,
    snapshots: Arc<Snapshots>,
    uploads: Arc<Uploads>,
    drivers: Arc<Drivers>,
    work: Work,
}

impl Records {
    async fn load(parts: &EngineParts) -> Result<Self, OpenEngineError> {
        let (config, store, clock) = (&parts.config, &parts.store, &parts.clock);
        let drivers = Arc::new(Drivers::new(parts.drivers.clone())?);
        let work = Work::default();
        let telemetry = Telemetry::open(config.logs.clone(), config.logs_per_team)
            .map_err(OpenEngineError::Logs)?;
        let seed = store.token_seed(random::bytes()?).await?;
        let machine = drivers.capabilities().clone();
        let (keys, teams) = (store.clone(), store.clone());
        let access = Access::load(
            keys,
            teams,
            clock.clone(),
            config,
            machine,
            seed,
            work.clone(),
        );
        let access = Arc::new(access.await?);
        let catalogues = Catalogues::load(store.clone(), clock.clone(), work.clone()).await?;
        let images = NodeImages::load(parts.images.clone(), store.clone(), work.clone()).await?;
        let build_records = BuildRecords::load(store.clone(), drivers.clone(), clock.clone());
        let build_records = Arc::new(build_records.await?);
        let snapshots = Snapshots::load(
            store.clone(),
            drivers.clone(),
            clock.clone(),
            access.clone(),
            work.clone(),
        );
        let snapshots = snapshots.await?;
        let uploads = Uploads::open(config, access.clone(), build_records.clone());
        Ok(Self {
            telemetry: Arc::new(telemetry),
            access,
            catalogues: Arc::new(catalogues),
            images: Arc::new(images),
            build_records,
            snapshots: Arc::new(snapshots),
            uploads: Arc::new(uploads.map_err(OpenEngineError::Uploads)?),
            drivers,
            work,
        })
    }

    fn sandboxes(&self, parts: &EngineParts, members: &Arc<PoolMembers>) -> Sandboxes {
        let services = SandboxParts {
            store: parts.store.clone(),
            drivers: self.drivers.clone(),
            guest: parts.guest.clone(),
            clock: parts.clock.clone(),
            telemetry: self.telemetry.clone(),
            access: self.access.clone(),
            catalogues: self.catalogues.clone(),
            snapshots: self.snapshots.clone(),
            listener: members.clone(),
            work: self.work.clone(),
        };
        Sandboxes::new(&parts.config, services)
    }
}

/// The services that planning a sandbox takes.
struct Planning {
    sandboxes: Arc<Sandboxes>,
    templates: Arc<Templates>,
    planner: Arc<Planner>,
    resolver: Arc<Resolver>,
    builds: Arc<Builds>,
}

impl Planning {
    async fn load(
        parts: &EngineParts,
        records: &Records,
        sandboxes: Arc<Sandboxes>,
    ) -> Result<Self, OpenEngineError> {
        let machine = records.drivers.capabilities().clone();
        let templates = Templates::load(TemplateParts {
            store: parts.store.clone(),
            clock: parts.clock.clone(),
            machine: machine.clone(),
            access: records.access.clone(),
            build_records: records.build_records.clone(),
            images: records.images.clone(),
            snapshots: records.snapshots.clone(),
            sandboxes: sandboxes.clone(),
        });
        let templates = Arc::new(templates.await?);
        let planner = Arc::new(Planner::new(
            records.access.clone(),
            records.drivers.clone(),
            parts.config.privileged,
        ));
        // A build resolves its base, and resolving may begin the build of a builtin template.
        let builds = Arc::new_cyclic(|builds: &Weak<Builds>| {
            let resolver = ResolverParts {
                catalogues: records.catalogues.clone(),
                images: records.images.clone(),
                snapshots: records.snapshots.clone(),
                clock: parts.clock.clone(),
                templates: builds.clone(),
            };
            let services = BuildParts {
                clock: parts.clock.clone(),
                guest: parts.guest.clone(),
                machine,
                access: records.access.clone(),
                records: records.build_records.clone(),
                images: records.images.clone(),
                sandboxes: sandboxes.clone(),
                templates: templates.clone(),
                uploads: records.uploads.clone(),
                resolver: Arc::new(Resolver::new(&parts.config, resolver)),
                planner: planner.clone(),
                work: records.work.clone(),
            };
            Builds::new(&parts.config, services)
        });
        Ok(Self {
            resolver: builds.resolver().clone(),
            sandboxes,
            templates,
            planner,
            builds,
        })
    }

    fn pools(&self, parts: &EngineParts, records: &Records, members: Arc<PoolMembers>) -> Pools {
        Pools::new(PoolParts {
            store: parts.store.clone(),
            drivers: records.drivers.clone(),
            guest: parts.guest.clone(),
            clock: parts.clock.clone(),
            telemetry: records.telemetry.clone(),
            access: records.access.clone(),
            catalogues: records.catalogues.clone(),
            images: records.images.clone(),
            sandboxes: self.sandboxes.clone(),
            resolver: self.resolver.clone(),
            planner: self.planner.clone(),
            members,
            work: records.work.clone(),
        })
    }

    fn creator(&self, parts: &EngineParts, records: &Records, pools: &Arc<Pools>) -> Creator {
        let services = CreatorParts {
            store: parts.store.clone(),
            drivers: records.drivers.clone(),
            clock: parts.clock.clone(),
            access: records.access.clone(),
            builds: records.build_records.clone(),
            sandboxes: self.sandboxes.clone(),
            resolver: self.resolver.clone(),
            planner: self.planner.clone(),
            pools: pools.clone(),
            work: records.work.clone(),
        };
        Creator::new(&parts.config, services)
    }

    fn snapshotter(&self, parts: &EngineParts, records: &Records) -> Snapshotter {
        let services = SnapshotterParts {
            drivers: records.drivers.clone(),
            clock: parts.clock.clone(),
            access: records.access.clone(),
            snapshots: records.snapshots.clone(),
            sandboxes: self.sandboxes.clone(),
            templates: self.templates.clone(),
            work: records.work.clone(),
        };
        Snapshotter::new(&parts.config, services)
    }
}

/// Loads all services.
pub(super) async fn assemble(parts: EngineParts) -> Result<Shared, OpenEngineError> {
    let records = Records::load(&parts).await?;
    let members = Arc::new(PoolMembers::default());
    let sandboxes = Arc::new(records.sandboxes(&parts, &members));
    let planning = Planning::load(&parts, &records, sandboxes).await?;
    let pools = Arc::new(planning.pools(&parts, &records, members));
    let creator = planning.creator(&parts, &records, &pools);
    let snapshotter = planning.snapshotter(&parts, &records);
    Ok(Shared {
        config: parts.config,
        store: parts.store,
        drivers: records.drivers,
        clock: parts.clock,
        telemetry: records.telemetry,
        access: records.access,
        catalogues: records.catalogues,
        images: records.images,
        build_records: records.build_records,
        snapshots: records.snapshots,
        uploads: records.uploads,
        sandboxes: planning.sandboxes,
        templates: planning.templates,
        resolver: planning.resolver,
        builds: planning.builds,
        creator: Arc::new(creator),
        snapshotter: Arc::new(snapshotter),
        pools,
        work: records.work,
    })
}
