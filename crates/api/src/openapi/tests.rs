mod document;
pub(crate) mod operation;
mod schemas;

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use self::document::{document, full_path};
use self::operation::Operation;
use crate::{e2b, native, router};

/// Writes the document instead of comparing it.
const WRITE: &str = "SHOAL_WRITE_SCHEMA";

fn operations() -> Vec<Operation> {
    let mut all = native::operations();
    all.extend(e2b::operations());
    all.extend(router::operations());
    all
}

#[test]
fn the_document_is_what_the_types_say() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("openapi.json");
    let generated = serde_json::to_string_pretty(&document(&operations())).unwrap() + "\n";
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(&file, &generated).unwrap();
        return;
    }
    let kept = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        kept == generated,
        "{} is out of date: run the test with {WRITE}=1 and read the difference",
        file.display()
    );
}

#[test]
fn every_served_path_is_documented_and_every_documented_path_is_served() {
    let documented: BTreeSet<String> = operations().iter().map(full_path).collect();
    let prefix = shoal_protocol::native::PREFIX;
    let native = [native::routes(), native::uploads()];
    let native = native.iter().flat_map(|routes| &routes.paths);
    let root = [e2b::routes(), e2b::uploads::routes(), router::open_routes()];
    let root = root.iter().flat_map(|routes| &routes.paths);
    let served: BTreeSet<String> = native
        .map(|path| format!("{prefix}{path}"))
        .chain(root.map(|path| (*path).to_owned()))
        .collect();
    assert_eq!(served, documented);
}

#[test]
fn every_reference_leads_somewhere_and_every_operation_has_its_own_name() {
    let document = document(&operations());
    let mut references = BTreeSet::new();
    collect(&document, &mut references);
    for reference in references {
        let target = document.pointer(reference.trim_start_matches('#'));
        assert!(target.is_some(), "{reference} leads nowhere");
    }
    let all = operations();
    let names: BTreeSet<&str> = all.iter().map(|operation| operation.id).collect();
    assert_eq!(names.len(), all.len());
}

fn collect(value: &Value, references: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            if let Some(Value::String(target)) = fields.get("$ref") {
                references.insert(target.clone());
            }
            fields.values().for_each(|value| collect(value, references));
        }
        Value::Array(items) => items.iter().for_each(|value| collect(value, references)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
