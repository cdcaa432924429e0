//! The contents of a checkpoint, and the requirements of a restore from it.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// Tells a manifest from other files.
const FORMAT: &str = "shoal-checkpoint";
/// The version that this program writes, and the only one that it reads.
const VERSION: u32 = 1;

/// The contents of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Contents {
    /// The processes of all containers, and the files that they have written.
    Memory,
    /// The files that they have written, alone.
    Files,
}

/// A container of the saved pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedContainer {
    /// Its name.
    pub name: String,
    /// The digest of its image, as the kubelet reports it.
    pub image: String,
    /// The image, as the pod's template names it.
    #[serde(default)]
    pub named: String,
    /// The unpacked layers below its root.
    pub layers: Vec<String>,
}

/// A file of the checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedFile {
    /// Its name: a plain one, in the checkpoint's directory or in a directory of it.
    pub name: String,
    /// Its size in bytes.
    pub size: u64,
    /// The BLAKE3 digest of its contents, in hexadecimal digits.
    pub digest: String,
}

/// The manifest of a checkpoint: a file beside its contents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    format: String,
    version: u32,
    /// The namespace of the pod. Only its pods are restored from it.
    pub namespace: String,
    /// The name of the pod.
    pub pod: String,
    /// The UID of the pod.
    pub pod_uid: String,
    /// Its contents.
    pub contents: Contents,
    /// The digest of the runtime that the pod ran in.
    pub runtime: String,
    /// The features of the processor.
    pub features: BTreeSet<String>,
    /// The containers.
    pub containers: Vec<SavedContainer>,
    /// The volumes that it contains.
    pub volumes: BTreeSet<String>,
    /// Whether its containers have the token of a service account, which is a mount that a clone must have, too.
    pub service_account_token: bool,
    /// The files.
    pub files: Vec<SavedFile>,
}

/// Why a checkpoint does not fit a pod.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It is no manifest, or one of another version.
    #[error("its manifest cannot be read: {0}")]
    Unreadable(String),
    /// It belongs to others.
    #[error("it is of another namespace")]
    Namespace,
    /// The memory of one build is unreadable to another.
    #[error("it was saved with another build of runsc than this node has: save it again")]
    Runtime,
    /// Its programs may use features that this processor lacks.
    #[error("this node's processor lacks features of the one that it was saved on: {0}")]
    Features(String),
    /// The pod has a container that was not saved.
    #[error("it has no container {0:?}: the containers of both pods must be the same")]
    Container(String),
    /// The container has another image.
    #[error(
        "container {name:?} has another image than the saved one ({saved}), or that image was unpacked again"
    )]
    Image {
        /// The container.
        name: String,
        /// The image that it was saved with.
        saved: String,
    },
    /// The volumes of the pod are different.
    #[error("its volumes are {saved:?}, and those of the pod {asked:?}")]
    Volumes {
        /// Those of the checkpoint.
        saved: BTreeSet<String>,
        /// Those of the pod.
        asked: BTreeSet<String>,
    },
}

/// A pod that asks to be restored, before any of its containers.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// Its namespace.
    pub namespace: &'a str,
    /// The digest of the node's runtime.
    pub runtime: &'a str,
    /// The features of the node's processor.
    pub features: &'a BTreeSet<String>,
    /// The volumes that its sandbox keeps inside.
    pub volumes: &'a BTreeSet<String>,
}

impl Manifest {
    /// A manifest of this version.
    #[must_use]
    pub fn new(namespace: String, pod: String, pod_uid: String, contents: Contents) -> Self {
        Self {
            format: FORMAT.to_owned(),
            version: VERSION,
            namespace,
            pod,
            pod_uid,
            contents,
            runtime: String::new(),
            features: BTreeSet::new(),
            containers: Vec::new(),
            volumes: BTreeSet::new(),
            service_account_token: false,
            files: Vec::new(),
        }
    }

    /// Reads a manifest.
    ///
    /// # Errors
    /// When it is none, or names files elsewhere.
    pub fn parse(bytes: &[u8]) -> Result<Self, Refusal> {
        let unreadable = |why: &dyn std::fmt::Display| Refusal::Unreadable(why.to_string());
        let read: Self = serde_json::from_slice(bytes).map_err(|error| unreadable(&error))?;
        if read.format != FORMAT {
            return Err(unreadable(&"it is of another program"));
        }
        if read.version != VERSION {
            return Err(unreadable(&format!("version {}", read.version)));
        }
        match read.files.iter().find(|file| !is_plain(&file.name)) {
            Some(file) => Err(unreadable(&format!("file name {:?}", file.name))),
            None => Ok(read),
        }
    }

    /// The manifest as its file has it.
    ///
    /// # Errors
    /// None that its fields can cause; the serializer's signature has them.
    pub fn to_bytes(&self) -> serde_json::Result<Vec<u8>> {
        serde_json::to_vec_pretty(self)
    }

    /// Checks whether a pod may be restored from it.
    ///
    /// # Errors
    /// When it may not: why.
    pub fn admits(&self, pod: &Candidate<'_>) -> Result<(), Refusal> {
        if self.namespace != pod.namespace {
            return Err(Refusal::Namespace);
        }
        // Files alone are read by any build and any processor.
        if self.contents == Contents::Memory {
            if self.runtime != pod.runtime {
                return Err(Refusal::Runtime);
            }
            let missing: Vec<&str> = self
                .features
                .difference(pod.features)
                .map(String::as_str)
                .collect();
            if !missing.is_empty() {
                return Err(Refusal::Features(missing.join(", ")));
            }
        }
        if self.volumes != *pod.volumes {
            return Err(Refusal::Volumes {
                saved: self.volumes.clone(),
                asked: pod.volumes.clone(),
            });
        }
        Ok(())
    }

    /// The bytes of all files.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.files.iter().map(|file| file.size).sum()
    }
}

impl SavedContainer {
    /// The digest of its image, if it came from a registry: an image of this digest is the same on every node.
    #[must_use]
    pub fn image_digest(&self) -> Option<&str> {
        let (_, digest) = self.image.split_once('@')?;
        let (algorithm, digits) = digest.split_once(':')?;
        (algorithm == "sha256" && digits.len() == 64).then_some(digest)
    }

    /// Finds a container by its name, and checks that its image is the saved one: by the unpacked layers on the node that
    /// saved it, and elsewhere by the digest by which the pod names it.
    ///
    /// # Errors
    /// When there is no such container, or it has another image.
    pub fn admits(
        all: &[Self],
        name: &str,
        layers: &[String],
        digest: Option<&str>,
    ) -> Result<(), Refusal> {
        let saved = all.iter().find(|saved| saved.name == name);
        let saved = saved.ok_or_else(|| Refusal::Container(name.to_owned()))?;
        let named = digest.is_some() && saved.image_digest() == digest;
        // Without layers, images cannot be distinguished.
        if layers.is_empty() || saved.layers != layers && !named {
            return Err(Refusal::Image {
                name: name.to_owned(),
                saved: saved.image.clone(),
            });
        }
        Ok(())
    }
}

/// Whether a name leads to a file of the directory, or of a directory in it.
fn is_plain(name: &str) -> bool {
    let plain = |part: &str| {
        !part.is_empty()
            && !part.starts_with('.')
            && part
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
    };
    name.len() <= 255 && name.split('/').count() <= 2 && name.split('/').all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(of: &[&str]) -> BTreeSet<String> {
        of.iter().map(|one| (*one).to_owned()).collect()
    }

    fn manifest() -> Manifest {
        Manifest {
            runtime: "build".to_owned(),
            features: set(&["avx"]),
            containers: vec![SavedContainer {
                name: "main".to_owned(),
                image: "sha256:1".to_owned(),
                named: "agent:1".to_owned(),
                layers: vec!["1".to_owned()],
            }],
            volumes: set(&["work"]),
            ..Manifest::new(
                "ns".to_owned(),
                "p".to_owned(),
                "u".to_owned(),
                Contents::Memory,
            )
        }
    }

    #[test]
    fn a_pod_is_admitted_by_namespace_runtime_processor_and_volumes() {
        let (all, volumes, none) = (set(&["avx", "sse"]), set(&["work"]), set(&[]));
        let fits = Candidate {
            namespace: "ns",
            runtime: "build",
            features: &all,
            volumes: &volumes,
        };
        let saved = manifest();
        assert_eq!(saved.admits(&fits), Ok(()));
        let of = |candidate: Candidate<'_>| saved.admits(&candidate).unwrap_err();
        assert_eq!(
            of(Candidate {
                namespace: "other",
                ..fits
            }),
            Refusal::Namespace
        );
        assert_eq!(
            of(Candidate {
                runtime: "other",
                ..fits
            }),
            Refusal::Runtime
        );
        let lacks = of(Candidate {
            features: &none,
            ..fits
        });
        assert_eq!(lacks, Refusal::Features("avx".to_owned()));
        let volumes = of(Candidate {
            volumes: &none,
            ..fits
        });
        assert!(matches!(volumes, Refusal::Volumes { .. }));
        // Files alone need neither runtime nor processor.
        let files = Manifest {
            contents: Contents::Files,
            ..manifest()
        };
        assert_eq!(
            files.admits(&Candidate {
                runtime: "other",
                features: &none,
                ..fits
            }),
            Ok(())
        );
    }

    #[test]
    fn a_container_is_admitted_by_name_and_layers() {
        let all = manifest().containers;
        let of = |name: &str, layer: &str| {
            SavedContainer::admits(&all, name, &[layer.to_owned()], Some("sha256:1"))
        };
        assert_eq!(of("main", "1"), Ok(()));
        let unknown = Refusal::Container("side".to_owned());
        assert_eq!(of("side", "1"), Err(unknown));
        // A digest that the image did not come from a registry with is none.
        assert!(matches!(of("main", "2"), Err(Refusal::Image { .. })));
    }

    #[test]
    fn a_container_of_another_node_is_admitted_by_the_digest_of_its_image() {
        let digest = format!("sha256:{}", "a".repeat(64));
        let mut all = manifest().containers;
        all[0].image = format!("example.org/agent@{digest}");
        assert_eq!(all[0].image_digest(), Some(&*digest));
        let elsewhere = ["9".to_owned()];
        let of = |digest, layers| SavedContainer::admits(&all, "main", layers, digest);
        assert_eq!(of(Some(&digest), &elsewhere), Ok(()));
        let other = format!("sha256:{}", "b".repeat(64));
        for (digest, layers) in [
            (None, &elsewhere[..]),
            (Some(&*other), &elsewhere),
            (Some(&*digest), &[]),
        ] {
            assert!(matches!(of(digest, layers), Err(Refusal::Image { .. })));
        }
    }

    #[test]
    fn a_manifest_reads_back_and_names_no_files_elsewhere() {
        let mut written = manifest();
        written.files = vec![SavedFile {
            name: "memory/pages.img".to_owned(),
            size: 3,
            digest: String::new(),
        }];
        assert_eq!(
            Manifest::parse(&written.to_bytes().unwrap()),
            Ok(written.clone())
        );
        assert_eq!(written.size(), 3);
        for bad in [
            "../pages.img",
            "/etc/passwd",
            "a/b/c",
            ".hidden",
            "",
            "a//b",
            "a/..",
        ] {
            bad.clone_into(&mut written.files[0].name);
            let read = Manifest::parse(&written.to_bytes().unwrap());
            assert!(matches!(read, Err(Refusal::Unreadable(_))), "{bad}");
        }
        written.files.clear();
        written.version = 2;
        assert!(Manifest::parse(&written.to_bytes().unwrap()).is_err());
        assert!(Manifest::parse(b"{}").is_err());
    }
}
