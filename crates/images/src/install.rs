//! Installing a planned image in the store.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::join;
use futures_util::{FutureExt, StreamExt, TryStreamExt, stream};
use shoal_core::clock::Timestamp;
use shoal_core::image::{Image, ImageName, Progress, ProgressSink};
use shoal_node::blocking;
use tokio::sync::Semaphore;

use super::ImageLimits;
use super::blob::{Blobs, Body};
use super::digest::{Digest, Hashing};
use super::disk::{LayerRecord, Stage};
use super::fault::Fault;
use super::inventory::Inventory;
use super::manifest::{LayerPlan, Plan, Settings};
use super::registry::{RegistryConfig, retry};
use super::single_flight::{Audience, SingleFlight};
use super::unpack::{decoded, unpack};

/// How many layers of one image are fetched concurrently: enough to use the bandwidth, few enough
/// not to look like an attack.
const LAYERS_AT_ONCE: usize = 4;

/// How many layers of all images are fetched concurrently. Unpacking keeps a processor and the disk
/// busy.
const LAYERS_IN_ALL: usize = 8;

/// How many bytes there are between progress reports.
const REPORT_EVERY: u64 = 256 << 10;

/// Installs images, each layer once.
pub(crate) struct Installer {
    inventory: Arc<Inventory>,
    limits: ImageLimits,
    retries: RegistryConfig,
    flights: SingleFlight<Digest, ()>,
    places: Semaphore,
}

impl Installer {
    pub(crate) fn new(
        inventory: Arc<Inventory>,
        limits: ImageLimits,
        retries: RegistryConfig,
    ) -> Arc<Self> {
        Arc::new(Self {
            inventory,
            limits,
            retries,
            flights: SingleFlight::default(),
            places: Semaphore::new(LAYERS_IN_ALL),
        })
    }

    /// Installs the image; layers that are present are not fetched.
    pub(crate) async fn install(
        self: &Arc<Self>,
        name: &ImageName,
        plan: Plan,
        from: Arc<dyn Blobs>,
        sink: Arc<dyn ProgressSink>,
    ) -> Result<Image, Fault> {
        let layers: Vec<Digest> = plan.layers.iter().map(|layer| layer.diff_id).collect();
        let pin = self.inventory.pin(layers.clone());
        let outcome = self.gather(name, plan, from, sink).await;
        drop(pin);
        // After a transient failure the completed layers are kept for the next call. Those of a
        // refused image are not.
        if outcome.as_ref().is_err_and(|fault| !fault.is_transient()) {
            let inventory = Arc::clone(&self.inventory);
            blocking(move || inventory.sweep(Some(&layers))).await?;
        }
        outcome
    }

    async fn gather(
        self: &Arc<Self>,
        name: &ImageName,
        plan: Plan,
        from: Arc<dyn Blobs>,
        sink: Arc<dyn ProgressSink>,
    ) -> Result<Image, Fault> {
        let announced = plan.layers.iter().map(|layer| layer.blob.size);
        if announced.fold(0, u64::saturating_add) > self.limits.image_bytes {
            return Err(self.too_large());
        }
        let (from, sink) = (&from, &sink);
        stream::iter(plan.layers.clone())
            .map(|layer| async move { self.layer(&layer, from, sink).await })
            .buffer_unordered(LAYERS_AT_ONCE)
            .try_fold(0_u64, |sum, record| async move {
                let sum = sum.saturating_add(record.size);
                if sum > self.limits.image_bytes {
                    Err(self.too_large())
                } else {
                    Ok(sum)
                }
            })
            .await?;
        let image = self.describe(name, &plan)?;
        let inventory = Arc::clone(&self.inventory);
        blocking(move || inventory.add_image(image.clone()).map(|()| image)).await
    }

    fn too_large(&self) -> Fault {
        Fault::refused(format!(
            "it has more than {} bytes",
            self.limits.image_bytes
        ))
    }

    /// Returns the layer, and fetches it if necessary. Concurrent callers share one download.
    async fn layer(
        self: &Arc<Self>,
        layer: &LayerPlan,
        from: &Arc<dyn Blobs>,
        sink: &Arc<dyn ProgressSink>,
    ) -> Result<LayerRecord, Fault> {
        if self.inventory.layer(&layer.diff_id).is_none() {
            let begin = |audience: Audience| {
                let (this, layer) = (Arc::clone(self), layer.clone());
                let from = Arc::clone(from);
                async move { this.fetch(&layer, &*from, Arc::new(audience)).await }.boxed()
            };
            self.flights
                .join(layer.diff_id, Arc::clone(sink), begin)
                .await?;
        } else {
            report(
                &**sink,
                &layer.blob.step(),
                layer.blob.size,
                layer.blob.size,
            );
        }
        let missing = || Fault::corrupt(format!("its layer {} is not here", layer.diff_id));
        self.inventory.layer(&layer.diff_id).ok_or_else(missing)
    }

    async fn fetch(
        &self,
        layer: &LayerPlan,
        from: &dyn Blobs,
        sink: Arc<dyn ProgressSink>,
    ) -> Result<(), Fault> {
        let place = self.places.acquire().await;
        let _place = place.map_err(|_| Fault::refused("the store is closed"))?;
        // Another call may have installed it while this one waited for a permit.
        if self.inventory.layer(&layer.diff_id).is_some() {
            return Ok(());
        }
        let (stage, record) = retry(&self.retries, || self.attempt(layer, from, &sink)).await?;
        let inventory = Arc::clone(&self.inventory);
        blocking(move || inventory.add_layer(stage, record)).await
    }

    async fn attempt(
        &self,
        layer: &LayerPlan,
        from: &dyn Blobs,
        sink: &Arc<dyn ProgressSink>,
    ) -> Result<(Stage, LayerRecord), Fault> {
        let Body { reader, pump } = from.open(&layer.blob).await?;
        let inventory = Arc::clone(&self.inventory);
        let (layer, limits) = (layer.clone(), self.limits.layer);
        let stop = StopOnDrop::default();
        let meter = Metered {
            inner: reader,
            stop: Arc::clone(&stop.0),
            sink: Arc::clone(sink),
            step: layer.blob.step(),
            total: layer.blob.size,
            read: 0,
            reported: 0,
        };
        let unpacked = blocking(move || {
            let stage = inventory.home().stage()?;
            let record = unpack_checked(meter, &layer, &stage, &limits)?;
            Ok::<_, Fault>((stage, record))
        });
        match join(pump, unpacked).await {
            // The thread only sees that the transfer ended; the pump has the cause.
            (Err(cause), Err(_)) => Err(cause),
            (_, unpacked) => unpacked,
        }
    }

    /// The record of an image whose layers are installed.
    fn describe(&self, name: &ImageName, plan: &Plan) -> Result<Image, Fault> {
        let layers: Vec<Digest> = plan.layers.iter().map(|layer| layer.diff_id).collect();
        let records: Option<Vec<LayerRecord>> = layers
            .iter()
            .map(|layer| self.inventory.layer(layer))
            .collect();
        let records = records.ok_or_else(|| Fault::corrupt("one of its layers is not here"))?;
        let size = records.iter().map(|record| record.size).sum();
        Ok(record(name, plan.digest, &layers, size, &plan.settings))
    }
}

/// The record of an image.
pub(crate) fn record(
    name: &ImageName,
    digest: Digest,
    layers: &[Digest],
    size_bytes: u64,
    settings: &Settings,
) -> Image {
    let said = |text: &String| (!text.is_empty()).then(|| text.clone());
    let since_epoch = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    Image {
        name: name.clone(),
        digest: digest.to_string(),
        layers: layers.iter().map(ToString::to_string).collect(),
        size_bytes,
        user: said(&settings.user),
        workdir: said(&settings.working_dir),
        env: settings.env.clone(),
        entrypoint: settings.entrypoint.clone(),
        cmd: settings.cmd.clone(),
        created_at: Timestamp::from_unix_millis(0) + since_epoch,
    }
}

/// Unpacks a layer while it is downloaded, and then compares its digests with the expected ones.
fn unpack_checked(
    mut arriving: Metered,
    layer: &LayerPlan,
    stage: &Stage,
    limits: &super::unpack::Limits,
) -> Result<LayerRecord, Fault> {
    let root = stage.directory("fs")?;
    let mut arrived = Hashing::new(&mut arriving);
    let mut plain = Hashing::new(
        decoded(&mut arrived)
            .map_err(|e| Fault::corrupt(format!("layer {}: {e}", layer.blob.step())))?,
    );
    let unpacked = unpack(&mut plain, &root, limits).map_err(|error| named(error.into(), layer))?;
    let (diff_id, _) = plain.finish();
    // A decoder may not read trailing data.
    io::copy(&mut arrived, &mut io::sink())
        .map_err(|e| Fault::corrupt(format!("layer {}: {e}", layer.blob.step())))?;
    let (digest, length) = arrived.finish();
    if length < layer.blob.size {
        let detail = format!("{length} bytes came of {}", layer.blob.size);
        return Err(named(Fault::Corrupt(detail), layer));
    }
    if layer.blob.digest.is_some_and(|expected| expected != digest) {
        return Err(named(
            Fault::Corrupt(format!("its digest is {digest}")),
            layer,
        ));
    }
    if diff_id != layer.diff_id {
        let detail = format!("it unpacks to {diff_id} and not to {}", layer.diff_id);
        return Err(named(Fault::Corrupt(detail), layer));
    }
    arriving.report();
    Ok(LayerRecord {
        digest,
        diff_id,
        size: unpacked.bytes,
        entries: unpacked.entries,
    })
}

/// Adds the layer's name to a fault.
fn named(fault: Fault, layer: &LayerPlan) -> Fault {
    let step = layer.blob.step();
    match fault {
        Fault::Corrupt(detail) => Fault::Corrupt(format!("layer {step}: {detail}")),
        Fault::Refused(detail) => Fault::Refused(format!("layer {step}: {detail}")),
        other => other,
    }
}

/// Tells a thread that no caller waits any more.
#[derive(Default)]
pub(crate) struct StopOnDrop(pub(crate) Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Reads a blob up to its known length and reports progress.
struct Metered {
    inner: Box<dyn Read + Send>,
    stop: Arc<AtomicBool>,
    sink: Arc<dyn ProgressSink>,
    step: String,
    total: u64,
    read: u64,
    reported: u64,
}

impl Metered {
    fn report(&self) {
        report(&*self.sink, &self.step, self.read, self.total);
    }
}

impl Read for Metered {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(io::Error::other("it was given up"));
        }
        let n = self.inner.read(into)?;
        self.read += n as u64;
        if self.read > self.total {
            return Err(io::Error::other("it is longer than its manifest says"));
        }
        if self.read - self.reported >= REPORT_EVERY {
            self.reported = self.read;
            self.report();
        }
        Ok(n)
    }
}

fn report(sink: &dyn ProgressSink, step: &str, done: u64, total: u64) {
    sink.report(Progress {
        step: step.to_owned(),
        done,
        total: Some(total),
    });
}
