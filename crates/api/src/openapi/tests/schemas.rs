//! Schemas of the types: one generator for requests and one for responses.

use schemars::generate::{SchemaGenerator, SchemaSettings};
use serde_json::{Map, Value, json};

use super::operation::MakeSchema;

/// The schemas so far.
pub(super) struct Schemas {
    requests: SchemaGenerator,
    responses: SchemaGenerator,
}

impl Schemas {
    pub(super) fn new() -> Self {
        let settings = || {
            SchemaSettings::draft2020_12().with(|settings| {
                settings.definitions_path = "/components/schemas".into();
            })
        };
        Self {
            requests: settings().for_deserialize().into_generator(),
            responses: settings().for_serialize().into_generator(),
        }
    }

    /// The schema of a body that is read.
    pub(super) fn request(&mut self, make: MakeSchema) -> Value {
        make(&mut self.requests).to_value()
    }

    /// The schema of a body that is written.
    pub(super) fn response(&mut self, make: MakeSchema) -> Value {
        make(&mut self.responses).to_value()
    }

    /// The parameters of a query: each field of its type.
    pub(super) fn parameters(&mut self, make: MakeSchema) -> Vec<Value> {
        let mut generator = self.requests.settings().clone().into_generator();
        let reference = make(&mut generator).to_value();
        let types = generator.take_definitions(true);
        let name = reference["$ref"].as_str().unwrap().rsplit('/').next();
        let whole = types[name.unwrap()].clone();
        let required = whole["required"].as_array().cloned().unwrap_or_default();
        let fields = whole["properties"].as_object().unwrap().iter();
        fields
            .map(|(name, schema)| {
                let mut schema = resolved(schema, &types);
                let description = schema.remove("description");
                let mut parameter = json!({
                    "name": name, "in": "query", "schema": schema,
                    "required": required.contains(&json!(name)),
                });
                if let Some(description) = description {
                    parameter["description"] = plain(&description);
                }
                parameter
            })
            .collect()
    }

    /// The schemas that were referred to, by name.
    ///
    /// # Panics
    ///
    /// When two types have one name.
    pub(super) fn into_components(mut self) -> Map<String, Value> {
        let mut all = self.requests.take_definitions(true);
        for (name, schema) in self.responses.take_definitions(true) {
            // A body that is written can also be read, so the schema for reading holds for both.
            all.entry(name).or_insert(schema);
        }
        for (name, schema) in &mut all {
            assert!(
                !name.ends_with(char::is_numeric) || name.ends_with("V1") || name.ends_with("V2"),
                "two types are called {name}"
            );
            tidy(schema);
        }
        all
    }
}

/// A field's schema without references and without null: an absent parameter is not sent.
fn resolved(schema: &Value, types: &Map<String, Value>) -> Map<String, Value> {
    let mut schema = schema.as_object().cloned().unwrap_or_default();
    if let Some(choices) = schema.remove("anyOf") {
        let choices = choices.as_array().cloned().unwrap_or_default();
        let real = choices.iter().find(|choice| choice["type"] != "null");
        schema.extend(real.unwrap().as_object().unwrap().clone());
    }
    if let Some(reference) = schema.remove("$ref") {
        let name = reference.as_str().unwrap().rsplit('/').next().unwrap();
        let mut target = types[name].as_object().unwrap().clone();
        target.extend(schema);
        schema = target;
    }
    if let Some(Value::Array(kinds)) = schema.get("type") {
        let kind = kinds.iter().find(|kind| *kind != "null").cloned();
        schema.insert("type".to_owned(), kind.unwrap());
    }
    schema.remove("default");
    // A choice of constants is shown as an enumeration.
    if let Some(Value::Array(choices)) = schema.remove("oneOf") {
        let words = choices.iter().map(|choice| choice["const"].clone());
        schema.insert("enum".to_owned(), words.collect());
        schema.insert("type".to_owned(), json!("string"));
    }
    schema
}

/// Makes descriptions readable outside of Rust's documentation.
fn tidy(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            for (name, value) in fields.iter_mut() {
                if name == "description" && value.is_string() {
                    *value = plain(value);
                } else {
                    tidy(value);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(tidy),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// A description without links of Rust's documentation, on one line a paragraph.
fn plain(description: &Value) -> Value {
    let text = description.as_str().unwrap_or_default();
    let mut out = String::new();
    let mut rest = text;
    while let Some(begin) = rest.find("[`") {
        out.push_str(&rest[..begin]);
        let link = &rest[begin + 1..];
        let Some(end) = link.find("`]") else {
            out.push_str(&rest[begin..]);
            rest = "";
            break;
        };
        out.push_str(&link[..=end]);
        rest = &link[end + 2..];
        // The target of a link.
        if let Some(target) = rest.strip_prefix('(')
            && let Some(end) = target.find(')')
        {
            rest = &target[end + 1..];
        }
    }
    out.push_str(rest);
    let paragraphs = out.split("\n\n").map(|text| text.replace('\n', " "));
    json!(paragraphs.collect::<Vec<_>>().join("\n\n"))
}
