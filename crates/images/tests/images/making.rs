//! Test images in every format.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;

use serde_json::{Value, json};
use shoal_images::Digest;
use tar::{EntryType, Header};

/// One member of a layer.
pub(crate) struct Member {
    pub(crate) kind: EntryType,
    pub(crate) path: &'static str,
    pub(crate) link: &'static str,
    pub(crate) data: Vec<u8>,
}

pub(crate) fn file(path: &'static str, data: &[u8]) -> Member {
    Member {
        kind: EntryType::Regular,
        path,
        link: "",
        data: data.to_vec(),
    }
}

pub(crate) fn link(kind: EntryType, path: &'static str, link: &'static str) -> Member {
    Member {
        kind,
        path,
        link,
        data: Vec::new(),
    }
}

/// The archive of a layer, with any names.
pub(crate) fn tar(members: &[Member]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for member in members {
        let mut header = Header::new_ustar();
        let (path, link) = (member.path.as_bytes(), member.link.as_bytes());
        header.as_mut_bytes()[..path.len()].copy_from_slice(path);
        header.as_mut_bytes()[157..157 + link.len()].copy_from_slice(link);
        header.set_entry_type(member.kind);
        header.set_mode(0o755);
        header.set_uid(nix::unistd::geteuid().as_raw().into());
        header.set_gid(nix::unistd::getegid().as_raw().into());
        header.set_mtime(1);
        header.set_size(member.data.len() as u64);
        header.set_cksum();
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend_from_slice(&member.data);
        bytes.resize(bytes.len().next_multiple_of(512), 0);
    }
    bytes.resize(bytes.len() + 1024, 0);
    bytes
}

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

pub(crate) fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 3).unwrap()
}

/// Incompressible bytes.
pub(crate) fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let step = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[0]
    };
    std::iter::repeat_with(step).take(length).collect()
}

const GZIP_LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
const ZSTD_LAYER: &str = "application/vnd.oci.image.layer.v1.tar+zstd";
const PLAIN_LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
pub(crate) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub(crate) const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// An image: its blobs by digest, and its manifest.
#[derive(Clone)]
pub(crate) struct TestImage {
    pub(crate) blobs: BTreeMap<Digest, Vec<u8>>,
    pub(crate) manifest: Vec<u8>,
    pub(crate) config: Digest,
    /// Compressed, lowest first.
    pub(crate) layers: Vec<Digest>,
    pub(crate) diff_ids: Vec<Digest>,
}

/// The compression of a layer.
#[derive(Clone, Copy)]
pub(crate) enum Packing {
    Gzip,
    Zstd,
    Plain,
}

/// An image of these layers, each with its compression.
pub(crate) fn image_of(layers: &[(Vec<u8>, Packing)], config: &Value) -> TestImage {
    let mut blobs = BTreeMap::new();
    let (mut digests, mut diff_ids, mut descriptors) = (Vec::new(), Vec::new(), Vec::new());
    for (archive, packing) in layers {
        let (blob, media_type) = match packing {
            Packing::Gzip => (gzip(archive), GZIP_LAYER),
            Packing::Zstd => (zstd(archive), ZSTD_LAYER),
            Packing::Plain => (archive.clone(), PLAIN_LAYER),
        };
        let digest = Digest::of(&blob);
        descriptors.push(json!({"mediaType": media_type, "digest": digest, "size": blob.len()}));
        digests.push(digest);
        diff_ids.push(Digest::of(archive));
        blobs.insert(digest, blob);
    }
    let mut whole = json!({
        "architecture": here(), "os": "linux",
        "rootfs": {"type": "layers", "diff_ids": diff_ids},
    });
    for (key, value) in config.as_object().unwrap() {
        whole[key] = value.clone();
    }
    let config_bytes = whole.to_string().into_bytes();
    let config = Digest::of(&config_bytes);
    let manifest = json!({
        "schemaVersion": 2, "mediaType": MANIFEST,
        "config": {
            "mediaType": "application/vnd.oci.image.config.v1+json",
            "digest": config, "size": config_bytes.len(),
        },
        "layers": descriptors,
    });
    blobs.insert(config, config_bytes);
    TestImage {
        blobs,
        manifest: manifest.to_string().into_bytes(),
        config,
        layers: digests,
        diff_ids,
    }
}

/// An image of gzipped layers.
pub(crate) fn image(layers: &[&[Member]]) -> TestImage {
    let layers: Vec<_> = layers
        .iter()
        .map(|layer| (tar(layer), Packing::Gzip))
        .collect();
    image_of(&layers, &json!({}))
}

/// An image with arbitrary contents.
pub(crate) fn small(content: &[u8]) -> TestImage {
    image(&[&[file("content", content)]])
}

/// The architecture of this machine, in the notation of images.
pub(crate) fn here() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

impl TestImage {
    pub(crate) fn digest(&self) -> Digest {
        Digest::of(&self.manifest)
    }

    /// The descriptor of its manifest, in an index.
    pub(crate) fn entry(&self) -> Value {
        json!({"mediaType": MANIFEST, "digest": self.digest(), "size": self.manifest.len()})
    }

    /// The files of an OCI layout with this image.
    pub(crate) fn layout(&self, name: Option<&str>) -> Vec<(String, Vec<u8>)> {
        let mut entry = self.entry();
        if let Some(name) = name {
            entry["annotations"] = json!({"org.opencontainers.image.ref.name": name});
        }
        self.layout_of(&json!({"schemaVersion": 2, "manifests": [entry]}))
    }

    pub(crate) fn layout_of(&self, index: &Value) -> Vec<(String, Vec<u8>)> {
        let blob = |digest: &Digest, bytes: &Vec<u8>| {
            (format!("blobs/sha256/{}", digest.hex()), bytes.clone())
        };
        let mut files: Vec<_> = self.blobs.iter().map(|(d, b)| blob(d, b)).collect();
        files.push(blob(&self.digest(), &self.manifest));
        files.push((
            "oci-layout".into(),
            br#"{"imageLayoutVersion":"1.0.0"}"#.to_vec(),
        ));
        files.push(("index.json".into(), index.to_string().into_bytes()));
        files
    }
}

/// An archive in the former format of `docker save`, without an OCI layout.
pub(crate) fn saved(images: &[(&str, &TestImage)]) -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    let mut manifest = Vec::new();
    for (tag, made) in images {
        let mut layers = Vec::new();
        for (at, digest) in made.layers.iter().enumerate() {
            let path = format!("{}/layer.tar", made.diff_ids[at].hex());
            let mut archive = Vec::new();
            let blob = &made.blobs[digest][..];
            std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(blob), &mut archive)
                .unwrap();
            files.push((path.clone(), archive));
            layers.push(path);
        }
        let config = format!("{}.json", made.config.hex());
        files.push((config.clone(), made.blobs[&made.config].clone()));
        manifest.push(json!({"Config": config, "RepoTags": [tag], "Layers": layers}));
    }
    files.push((
        "manifest.json".into(),
        Value::Array(manifest).to_string().into_bytes(),
    ));
    files
}

/// An archive of files.
pub(crate) fn archive(files: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (path, bytes) in files {
        let mut header = Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        builder.append_data(&mut header, path, &bytes[..]).unwrap();
    }
    builder.into_inner().unwrap()
}

/// Writes files below a directory.
pub(crate) fn write_all(directory: &Path, files: &[(String, Vec<u8>)]) {
    for (path, bytes) in files {
        let path = directory.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}
