//! The built files by name.

use std::fs;
use std::path::{Component, Path};

use bytes::Bytes;

/// Files by name; empty in a debug build, and if the UI was not built.
static EMBEDDED: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/files.rs"));

/// The directory from which a debug build reads them.
const BUILT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../web/dist");

/// The contents of a file.
pub(crate) fn read(name: &str) -> Option<Bytes> {
    if cfg!(debug_assertions) {
        return from(Path::new(BUILT), name);
    }
    let found = EMBEDDED.iter().find(|(other, _)| *other == name);
    found.map(|(_, contents)| Bytes::from_static(contents))
}

/// Reads a file below a directory. The name comes from a client and must not lead out of it.
pub(crate) fn from(directory: &Path, name: &str) -> Option<Bytes> {
    let inside = |part| matches!(part, Component::Normal(_));
    if !Path::new(name).components().all(inside) {
        return None;
    }
    fs::read(directory.join(name)).ok().map(Bytes::from)
}
