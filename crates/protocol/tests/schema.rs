//! Freezes the wire protocol: existing sandboxes keep the schema they were created with.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::fmt::Write as _;
use std::path::Path;

use protox::prost_reflect::{DescriptorPool, EnumDescriptor, Kind, MessageDescriptor};

/// The frozen schema. After an intentional change, run the tests with `SHOAL_WRITE_SCHEMA=1`.
const FROZEN: &str = "schema/envd.txt";

fn pool() -> DescriptorPool {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut compiler = protox::Compiler::new([root.join("proto")]).unwrap();
    compiler
        .include_imports(true)
        .open_files(["process.proto", "filesystem.proto"])
        .unwrap();
    compiler.descriptor_pool()
}

fn kind(kind: &Kind) -> String {
    match kind {
        Kind::Message(message) => message.full_name().to_owned(),
        Kind::Enum(values) => values.full_name().to_owned(),
        scalar => format!("{scalar:?}").to_lowercase(),
    }
}

fn render_message(out: &mut String, message: &MessageDescriptor) {
    writeln!(out, "message {}", message.full_name()).unwrap();
    let mut fields: Vec<_> = message.fields().collect();
    fields.sort_by_key(protox::prost_reflect::FieldDescriptor::number);
    for field in fields {
        let label = if field.is_list() {
            "repeated "
        } else if field.is_map() {
            "map "
        } else if let Some(oneof) = field
            .containing_oneof()
            .filter(|oneof| !oneof.is_synthetic())
        {
            &format!("oneof({}) ", oneof.name())
        } else if field.field_descriptor_proto().proto3_optional() {
            "optional "
        } else {
            ""
        };
        writeln!(
            out,
            "  {} {label}{} {} ({})",
            field.number(),
            kind(&field.kind()),
            field.name(),
            field.json_name()
        )
        .unwrap();
    }
    for child in message
        .child_messages()
        .filter(|child| !child.is_map_entry())
    {
        render_message(out, &child);
    }
}

fn render_enum(out: &mut String, values: &EnumDescriptor) {
    writeln!(out, "enum {}", values.full_name()).unwrap();
    for value in values.values() {
        writeln!(out, "  {} {}", value.number(), value.name()).unwrap();
    }
}

fn render() -> String {
    let mut out = String::new();
    for file in pool().files() {
        if file.package_name().starts_with("google") {
            continue;
        }
        for service in file.services() {
            writeln!(out, "service {}", service.full_name()).unwrap();
            for method in service.methods() {
                let stream = |is: bool| if is { "stream " } else { "" };
                writeln!(
                    out,
                    "  {}({}{}) -> {}{}",
                    method.name(),
                    stream(method.is_client_streaming()),
                    method.input().full_name(),
                    stream(method.is_server_streaming()),
                    method.output().full_name()
                )
                .unwrap();
            }
        }
        for message in file.messages() {
            render_message(&mut out, &message);
        }
        for values in file.enums() {
            render_enum(&mut out, &values);
        }
    }
    out
}

#[test]
fn the_wire_is_what_the_frozen_schema_says() {
    let frozen = Path::new(env!("CARGO_MANIFEST_DIR")).join(FROZEN);
    let rendered = render();
    if std::env::var_os("SHOAL_WRITE_SCHEMA").is_some() {
        std::fs::create_dir_all(frozen.parent().unwrap()).unwrap();
        std::fs::write(&frozen, &rendered).unwrap();
    }
    let expected = std::fs::read_to_string(&frozen).unwrap_or_default();
    assert!(
        expected == rendered,
        "the wire differs from {FROZEN}; it now is\n{rendered}"
    );
}
