//! An image's documents from a registry or an archive: index, manifest and configuration.
//!
//! Parsing is lenient and ignores unused fields, because there are many writers. Used fields are
//! validated.

use std::collections::HashMap;

use serde::{Deserialize, Deserializer};

use super::digest::Digest;
use super::fault::Fault;

/// The longest index, manifest or configuration. Registries refuse manifests of more than 4 MiB.
/// Configurations contain the whole history, which makes them slightly longer.
pub(crate) const DOCUMENT_MAX: u64 = 8 << 20;

/// The maximum number of layers. Other tools allow as many, and one overlay mount can have them.
const LAYERS_MAX: usize = 127;

/// The supported media types of manifests.
pub(crate) const MANIFEST_TYPES: [&str; 4] = [
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.docker.distribution.manifest.v2+json",
];

/// A blob with its length.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Descriptor {
    #[serde(default)]
    pub(crate) media_type: String,
    pub(crate) digest: Digest,
    pub(crate) size: u64,
}

/// An image for one of several platforms, or with one of several names.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct IndexEntry {
    #[serde(flatten)]
    pub(crate) descriptor: Descriptor,
    pub(crate) platform: Option<Platform>,
    #[serde(default, deserialize_with = "null_is_default")]
    pub(crate) annotations: HashMap<String, String>,
}

/// The platform of an image.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
pub(crate) struct Platform {
    #[serde(default)]
    pub(crate) os: String,
    #[serde(default)]
    pub(crate) architecture: String,
}

/// A parsed index or manifest.
#[derive(Debug)]
pub(crate) enum Document {
    Index(Vec<IndexEntry>),
    Manifest(Manifest),
}

/// An image: its configuration and its layers, lowest first.
#[derive(Debug, Deserialize)]
pub(crate) struct Manifest {
    pub(crate) config: Descriptor,
    pub(crate) layers: Vec<Descriptor>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Shape {
    #[serde(default)]
    schema_version: u32,
    #[serde(default)]
    manifests: Option<Vec<IndexEntry>>,
    #[serde(default)]
    config: Option<Descriptor>,
    #[serde(default)]
    layers: Option<Vec<Descriptor>>,
}

impl Document {
    /// Parses an index or a manifest. The fields decide which one it is: its media type is optional
    /// and may be wrong.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, Fault> {
        let shape: Shape = serde_json::from_slice(bytes)
            .map_err(|e| Fault::corrupt(format!("its manifest cannot be read: {e}")))?;
        match shape {
            Shape {
                schema_version: 1, ..
            } => Err(Fault::refused(
                "its manifest is of the first schema, which has no digests",
            )),
            Shape {
                manifests: None,
                config: Some(config),
                layers: Some(layers),
                ..
            } => Ok(Self::Manifest(Manifest { config, layers })),
            Shape {
                manifests: Some(entries),
                config: None,
                layers: None,
                ..
            } => Ok(Self::Index(entries)),
            _ => Err(Fault::corrupt(
                "its manifest is neither an image nor an index",
            )),
        }
    }
}

/// The entry for this program's platform.
pub(crate) fn choose(entries: &[IndexEntry]) -> Result<&Descriptor, Fault> {
    let here = |entry: &&IndexEntry| {
        let platform = entry.platform.as_ref();
        platform.is_some_and(|p| p.os == "linux" && p.architecture == architecture())
    };
    if let Some(entry) = entries.iter().find(here) {
        return Ok(&entry.descriptor);
    }
    // A single image without a platform in its index; its configuration has one.
    match entries {
        [entry] if entry.platform.is_none() => Ok(&entry.descriptor),
        _ => Err(Fault::WrongArchitecture(architecture())),
    }
}

/// The architecture of this program, in the notation of images.
pub(crate) fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// The process settings in an image's configuration.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct Settings {
    #[serde(deserialize_with = "null_is_default")]
    pub(crate) user: String,
    #[serde(deserialize_with = "null_is_default")]
    pub(crate) working_dir: String,
    #[serde(deserialize_with = "null_is_default")]
    pub(crate) env: Vec<String>,
    #[serde(deserialize_with = "null_is_default")]
    pub(crate) entrypoint: Vec<String>,
    #[serde(deserialize_with = "null_is_default")]
    pub(crate) cmd: Vec<String>,
}

#[derive(Deserialize)]
struct Configuration {
    #[serde(flatten)]
    platform: Platform,
    #[serde(default, deserialize_with = "null_is_default")]
    config: Settings,
    rootfs: RootFs,
}

#[derive(Deserialize)]
struct RootFs {
    #[serde(default, deserialize_with = "null_is_default")]
    diff_ids: Vec<Digest>,
}

/// A planned image: everything but its layers' contents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Digest of its configuration.
    pub(crate) digest: Digest,
    pub(crate) settings: Settings,
    /// Lowest first.
    pub(crate) layers: Vec<LayerPlan>,
}

/// A layer of a planned image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LayerPlan {
    /// The blob to fetch.
    pub(crate) blob: Blob,
    /// The digest of its uncompressed archive.
    pub(crate) diff_id: Digest,
}

/// A blob in its source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Blob {
    /// Its name in the source: its digest, or its path in an archive.
    pub(crate) name: String,
    /// Its expected digest. Layers in archives of `docker save` only have a diff id.
    pub(crate) digest: Option<Digest>,
    pub(crate) size: u64,
}

impl Blob {
    /// Its name in progress reports: its short digest, if it has one.
    pub(crate) fn step(&self) -> String {
        self.digest
            .map_or_else(|| self.name.clone(), |digest| digest.short())
    }
}

impl From<&Descriptor> for Blob {
    fn from(descriptor: &Descriptor) -> Self {
        Self {
            name: descriptor.digest.to_string(),
            digest: Some(descriptor.digest),
            size: descriptor.size,
        }
    }
}

impl Manifest {
    /// The layers, lowest first, if all of them are archives that the registry serves.
    pub(crate) fn blobs(&self) -> Result<Vec<Blob>, Fault> {
        match self
            .layers
            .iter()
            .find(|layer| !is_layer(&layer.media_type))
        {
            Some(layer) => {
                let detail = format!("a layer is of the type {:?}", layer.media_type);
                Err(Fault::refused(detail))
            }
            None => Ok(self.layers.iter().map(Blob::from).collect()),
        }
    }
}

impl Plan {
    /// From a configuration whose digest was checked, and the layers in order.
    pub(crate) fn new(
        digest: Digest,
        configuration: &[u8],
        blobs: Vec<Blob>,
    ) -> Result<Self, Fault> {
        let read: Configuration = serde_json::from_slice(configuration)
            .map_err(|e| Fault::refused(format!("its configuration is not an image's: {e}")))?;
        let Platform {
            os,
            architecture: built_for,
        } = &read.platform;
        if !(os.is_empty() || os == "linux")
            || !(built_for.is_empty() || built_for == architecture())
        {
            return Err(Fault::WrongArchitecture(architecture()));
        }
        let diff_ids = read.rootfs.diff_ids;
        if diff_ids.len() != blobs.len() {
            let detail = format!("it has {} layers and names {}", blobs.len(), diff_ids.len());
            return Err(Fault::corrupt(detail));
        }
        if !(1..=LAYERS_MAX).contains(&blobs.len()) {
            return Err(Fault::refused(format!("it has {} layers", blobs.len())));
        }
        let layers = blobs
            .into_iter()
            .zip(diff_ids)
            .map(|(blob, diff_id)| LayerPlan { blob, diff_id })
            .collect();
        Ok(Self {
            digest,
            settings: read.config,
            layers,
        })
    }
}

/// Whether a blob of this media type is an archive that the registry itself serves. Encrypted and
/// foreign layers are not.
fn is_layer(media_type: &str) -> bool {
    matches!(
        media_type,
        // Archives have no media types; the contents are detected by their first bytes.
        "" | "application/vnd.oci.image.layer.v1.tar"
            | "application/vnd.oci.image.layer.v1.tar+gzip"
            | "application/vnd.oci.image.layer.v1.tar+zstd"
            | "application/vnd.docker.image.rootfs.diff.tar"
            | "application/vnd.docker.image.rootfs.diff.tar.gzip"
            | "application/vnd.docker.image.rootfs.diff.tar.zstd"
    )
}

/// Some writers write `null` for an absent value.
fn null_is_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    from: D,
) -> Result<T, D::Error> {
    Option::<T>::deserialize(from).map(Option::unwrap_or_default)
}

#[cfg(test)]
mod tests;
