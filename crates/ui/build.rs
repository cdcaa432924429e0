//! Embeds `web/dist`, if it is built: a table of its files, with their contents.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../web/dist");
    // The directory is in the repository, so a checkout without a build compiles once only.
    println!("cargo::rerun-if-changed={}", root.display());
    let mut files = Vec::new();
    // Debug builds read the files when they are asked for, so that they can be built meanwhile.
    let embedded = env::var("PROFILE").is_ok_and(|profile| profile == "release");
    if embedded && root.join("index.html").is_file() {
        collect(&root, &mut files)?;
        files.sort();
    }
    let mut table = String::from("&[\n");
    for file in &files {
        let name = file.strip_prefix(&root).map_err(io::Error::other)?;
        let contents = fs::canonicalize(file)?;
        writeln!(table, "({name:?}, include_bytes!({contents:?})),").map_err(io::Error::other)?;
    }
    table.push(']');
    let out = env::var_os("OUT_DIR").unwrap_or_default();
    fs::write(Path::new(&out).join("files.rs"), table)
}

fn collect(directory: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.file_name().is_some_and(|name| name != ".gitignore") {
            files.push(path);
        }
    }
    Ok(())
}
