//! Images in files: OCI layouts and archives of `docker save`.
//!
//! Files are read in place, and checked like a registry's responses.

mod archive;
mod layout;

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use serde::Deserialize;
use shoal_core::image::ImageName;
use shoal_node::blocking;
use shoal_node::saved::open_named;

use self::archive::Archive;
use self::layout::Directory;
use super::blob::{Blobs, Body};
use super::digest::Digest;
use super::disk::Stage;
use super::fault::Fault;
use super::manifest::{
    Blob, DOCUMENT_MAX, Descriptor, Document, IndexEntry, Manifest, Plan, choose,
};
use super::registry::check;
use super::unpack::{Limits, decoded, is_compressed};

/// The annotations with an entry's name in an index.
const NAMES: [&str; 2] = [
    "org.opencontainers.image.ref.name",
    "io.containerd.image.name",
];

/// Files by their path, in a directory or an archive.
pub(crate) trait Files: Send + Sync {
    /// Opens a file and returns its length; `None` if it does not exist.
    fn open(&self, path: &str) -> Result<Option<Part>, Fault>;
}

/// An open file.
pub(crate) struct Part {
    pub(crate) size: u64,
    pub(crate) reader: Box<dyn Read + Send>,
}

/// An image in files.
pub(crate) struct Import {
    files: Arc<dyn Files>,
}

impl Import {
    /// Opens a layout or an archive. A compressed archive is first decompressed into `stage`,
    /// because its parts are not in the order in which they are needed.
    pub(crate) fn open(path: &Path, stage: Stage, limits: &Limits) -> Result<Self, Fault> {
        let failed = |e| Fault::io("read", path, e);
        let found = fs::metadata(path).map_err(failed)?;
        let files: Arc<dyn Files> = if found.is_dir() {
            Arc::new(Directory::open(path)?)
        } else if !found.is_file() {
            // Reading a pipe would block.
            return Err(Fault::refused("it is neither a file nor a directory"));
        } else {
            // The path may have been replaced meanwhile.
            let file = open_named(path).map_err(failed)?;
            Arc::new(Archive::open(
                plain(file, path, &stage, limits)?,
                Some(stage),
                limits,
            )?)
        };
        Ok(Self { files })
    }

    /// The layers to unpack for the image; `name` selects one of several images.
    pub(crate) fn plan(&self, name: &ImageName) -> Result<Plan, Fault> {
        if self.files.open("index.json")?.is_some() {
            return self.plan_oci(name);
        }
        if self.files.open("manifest.json")?.is_some() {
            return self.plan_docker(name);
        }
        Err(Fault::refused(
            "it is neither an OCI layout nor an archive of docker save",
        ))
    }

    fn plan_oci(&self, name: &ImageName) -> Result<Plan, Fault> {
        let manifest = match Document::parse(&self.document("index.json")?)? {
            Document::Manifest(manifest) => manifest,
            Document::Index(entries) => self.manifest(named(&entries, name)?)?,
        };
        let config = self.blob(&manifest.config, "configuration")?;
        Plan::new(manifest.config.digest, &config, manifest.blobs()?)
    }

    /// The manifest of a descriptor; an index on the way selects a platform.
    fn manifest(&self, descriptor: &Descriptor) -> Result<Manifest, Fault> {
        let entries = match Document::parse(&self.blob(descriptor, "manifest")?)? {
            Document::Manifest(manifest) => return Ok(manifest),
            Document::Index(entries) => entries,
        };
        match Document::parse(&self.blob(choose(&entries)?, "manifest")?)? {
            Document::Manifest(manifest) => Ok(manifest),
            Document::Index(_) => Err(Fault::refused("its index leads to another index")),
        }
    }

    fn plan_docker(&self, name: &ImageName) -> Result<Plan, Fault> {
        let images: Vec<Saved> = serde_json::from_slice(&self.document("manifest.json")?)
            .map_err(|e| Fault::corrupt(format!("its manifest cannot be read: {e}")))?;
        let image = match &images[..] {
            [image] => image,
            several => several
                .iter()
                .find(|image| image.tags().any(|tag| tag == name.as_str()))
                .ok_or_else(|| several_images(several.len()))?,
        };
        let bytes = self.document(&image.config)?;
        let digest = Digest::of(&bytes);
        // Its name usually is its digest, which then must match.
        let file = image.config.rsplit('/').next().unwrap_or_default();
        let said = Digest::from_hex(file.strip_suffix(".json").unwrap_or(file));
        check(&bytes, said, "configuration")?;
        let blobs = image.layers.iter().map(|path| {
            let part = self.files.open(path)?;
            let part = part.ok_or_else(|| Fault::corrupt(format!("it lacks {path}")))?;
            Ok(Blob {
                name: path.clone(),
                digest: None,
                size: part.size,
            })
        });
        Plan::new(digest, &bytes, blobs.collect::<Result<_, Fault>>()?)
    }

    fn blob(&self, descriptor: &Descriptor, what: &str) -> Result<Vec<u8>, Fault> {
        let bytes = self.document(&path_of(&Blob::from(descriptor)))?;
        check(&bytes, Some(descriptor.digest), what)?;
        Ok(bytes)
    }

    /// Reads a short file completely.
    fn document(&self, path: &str) -> Result<Vec<u8>, Fault> {
        let part = self.files.open(path)?;
        let part = part.ok_or_else(|| Fault::corrupt(format!("it lacks {path}")))?;
        if part.size > DOCUMENT_MAX {
            return Err(Fault::refused(format!("{path} is too long")));
        }
        let mut bytes = Vec::new();
        let mut reader = part.reader.take(DOCUMENT_MAX);
        reader
            .read_to_end(&mut bytes)
            .map_err(|e| Fault::corrupt(format!("{path}: {e}")))?;
        Ok(bytes)
    }
}

impl Blobs for Import {
    fn open<'a>(&'a self, blob: &'a Blob) -> BoxFuture<'a, Result<Body, Fault>> {
        async move {
            let (files, path) = (Arc::clone(&self.files), path_of(blob));
            let part = blocking(move || {
                let part = files.open(&path)?;
                part.ok_or_else(|| Fault::corrupt(format!("it lacks {path}")))
            })
            .await?;
            Ok(Body {
                reader: part.reader,
                pump: ready(Ok(())).boxed(),
            })
        }
        .boxed()
    }
}

/// An image in an archive of `docker save`.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Saved {
    config: String,
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

impl Saved {
    fn tags(&self) -> impl Iterator<Item = &String> {
        self.repo_tags.iter().flatten()
    }
}

/// Selects an entry: the only one, the one with this name, or the one for this machine.
fn named<'a>(entries: &'a [IndexEntry], name: &ImageName) -> Result<&'a Descriptor, Fault> {
    if let [entry] = entries {
        return Ok(&entry.descriptor);
    }
    let tag = name.as_str().rsplit(':').next();
    let called = |entry: &&IndexEntry| {
        NAMES
            .iter()
            .filter_map(|key| entry.annotations.get(*key))
            .any(|said| said == name.as_str() || Some(said.as_str()) == tag)
    };
    if let Some(entry) = entries.iter().find(called) {
        return Ok(&entry.descriptor);
    }
    if entries.iter().all(|entry| entry.platform.is_some()) {
        return choose(entries);
    }
    Err(several_images(entries.len()))
}

fn several_images(count: usize) -> Fault {
    Fault::refused(format!(
        "it contains {count} images, and none with this name"
    ))
}

fn path_of(blob: &Blob) -> String {
    match blob.name.parse::<Digest>() {
        Ok(digest) => format!("blobs/sha256/{}", digest.hex()),
        Err(_) => blob.name.clone(),
    }
}

/// The uncompressed archive.
fn plain(file: File, path: &Path, stage: &Stage, limits: &Limits) -> Result<File, Fault> {
    let failed = |e| Fault::io("read", path, e);
    let mut first = Vec::new();
    (&file).take(4).read_to_end(&mut first).map_err(failed)?;
    io::Seek::rewind(&mut &file).map_err(failed)?;
    if !is_compressed(&first) {
        return Ok(file);
    }
    let target = stage.path().join("archive.tar");
    let mut out = File::create_new(&target).map_err(|e| Fault::io("make", &target, e))?;
    let most = limits.bytes.saturating_add(DOCUMENT_MAX);
    let reader = decoded(file).map_err(|e| Fault::corrupt(e.to_string()))?;
    let written = write_out(reader.take(most.saturating_add(1)), &mut out, &target)?;
    if written > most {
        return Err(Fault::refused(format!("it has more than {most} bytes")));
    }
    File::open(&target).map_err(|e| Fault::io("read", &target, e))
}

/// Copies, and distinguishes a damaged source from a full disk.
fn write_out(mut from: impl Read, to: &mut File, target: &Path) -> Result<u64, Fault> {
    let mut buffer = vec![0; 64 * 1024];
    let mut written = 0;
    loop {
        let n = from
            .read(&mut buffer)
            .map_err(|e| Fault::corrupt(e.to_string()))?;
        if n == 0 {
            return Ok(written);
        }
        io::Write::write_all(to, &buffer[..n]).map_err(|e| Fault::io("write", target, e))?;
        written += n as u64;
    }
}
