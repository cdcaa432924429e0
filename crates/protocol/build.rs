//! Generates Rust code from `proto/` without a protobuf compiler.

use std::error::Error;
use std::path::PathBuf;

use buffa_codegen::BytesRepr;
use connectrpc_build::{CodeGenConfig, Config};

/// Proto files, as they import each other.
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
    // Fields added by newer peers are not used, so they need not be stored.
    messages.preserve_unknown_fields = false;
    // Process output is passed on without copying.
    messages.bytes_fields = vec![(".".to_owned(), BytesRepr::Bytes)];
    messages.emit_register_fn = false;
    Config::new()
        // They name the descriptors, which this run writes: cargo would run it again each time, and compile what depends on it.
        .emit_rerun_directives(false)
        .buffa_config(messages)
        .gate_client_feature(true)
        .descriptor_set(set)
        .files(&FILES)
        .include_file("_connectrpc.rs")
        .compile()?;
    Ok(())
}
