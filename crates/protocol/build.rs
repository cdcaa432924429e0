//! Turns `proto/` into Rust, without a protobuf compiler on the machine.

use std::error::Error;
use std::path::PathBuf;

use buffa_codegen::BytesRepr;
use connectrpc_build::{CodeGenConfig, Config};

/// The files, as they name each other.
const FILES: [&str; 2] = ["process.proto", "filesystem.proto"];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let descriptors = protox::Compiler::new(["proto"])?
        .include_source_info(true)
        .include_imports(true)
        .open_files(FILES)?
        .encode_file_descriptor_set();
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("cargo did not set OUT_DIR")?);
    let set = out.join("descriptors.bin");
    std::fs::write(&set, descriptors)?;

    let mut messages = CodeGenConfig::default();
    messages.generate_json = true;
    // A reader of ours has no use for what a newer peer adds, and need not store it.
    messages.preserve_unknown_fields = false;
    // The output of a program is passed on by reference.
    messages.bytes_fields = vec![(".".to_owned(), BytesRepr::Bytes)];
    messages.emit_register_fn = false;
    Config::new()
        .buffa_config(messages)
        .gate_client_feature(true)
        .descriptor_set(set)
        .files(&FILES)
        .include_file("_connectrpc.rs")
        .compile()?;
    Ok(())
}
