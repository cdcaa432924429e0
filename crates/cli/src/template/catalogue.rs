//! The template catalogue: apply, resolve, lint.

use std::io::Read;
use std::path::{Path, PathBuf};

use clap::Args;
use http::Method;
use serde_json::Value;
use shoal_core::catalogue::{self, BYTES_MAX, Entry};
use shoal_protocol::native::{Catalogue, ReplaceCatalogue, ResolvedTemplate};

use crate::calls::encode;
use crate::connection::Connection;
use crate::failure::{Failure, Kind};
use crate::output::{self, Table};

/// The route of the catalogue.
const ROUTE: &str = "/config/templates";

/// Shown in lists instead of the id of a catalogue entry.
pub(super) const ID: &str = "catalogue";

#[derive(Debug, Args)]
#[command(after_help = "\
The file holds the whole list of entries, in JSON:
  [{\"name\": \"python\", \"image\": \"python:3.13-slim\", \"description\": \"Python\"}]

It takes the place of the catalogue in force, as a whole or not at all.")]
pub(super) struct ApplyArgs {
    /// The file, or - for standard input.
    file: PathBuf,
    /// Apply only to this version of the catalogue, as shown by `shoal template ls --json`
    /// (`.catalogue.version`).
    #[arg(long, value_name = "NUMBER")]
    if_version: Option<u64>,
}

#[derive(Debug, Args)]
pub(super) struct LintArgs {
    /// The file, or - for standard input.
    file: PathBuf,
    /// Treat warnings as errors.
    #[arg(long)]
    strict: bool,
}

#[derive(Debug, Args)]
pub(super) struct ResolveArgs {
    /// The template in a request [default: the server's default].
    #[arg(value_name = "TEMPLATE_ID")]
    template: Option<String>,
    /// The image in the request.
    #[arg(long, value_name = "NAME")]
    image: Option<String>,
}

/// The current catalogue.
pub(super) async fn in_force(server: &Connection) -> Result<Catalogue, Failure> {
    server.native_get(ROUTE).await
}

/// The entry with this name.
pub(super) fn entry<'a>(catalogue: &'a Catalogue, name: &str) -> Option<&'a Value> {
    let called = |entry: &&Value| {
        let own = entry.get("name").and_then(Value::as_str);
        own.is_some_and(|own| own.eq_ignore_ascii_case(name))
    };
    catalogue.templates.iter().find(called)
}

/// The names of the entries.
pub(super) fn names(catalogue: &Catalogue) -> impl Iterator<Item = String> {
    let entries = catalogue.templates.iter();
    entries.filter_map(|entry| Some(entry.get("name")?.as_str()?.to_owned()))
}

/// Appends the entries to a list of templates.
pub(super) fn list(catalogue: Catalogue, table: &mut Table) {
    for value in catalogue.templates {
        // Unknown fields of newer servers are ignored.
        let text = |field: &str| {
            value
                .get(field)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        let read: Option<Entry> = serde_json::from_value(value.clone()).ok();
        let resources = read.and_then(|entry| entry.resources).unwrap_or_default();
        table.row([
            text("name"),
            String::new(),
            String::new(),
            ID.to_owned(),
            text("image"),
            resources
                .most_cpu()
                .map(|cpu| super::processors(cpu.0))
                .unwrap_or_default(),
            resources
                .most_memory()
                .map(|memory| memory.to_string())
                .unwrap_or_default(),
            String::new(),
            text("description"),
        ]);
    }
}

/// Prints an entry and, for people, the version of its catalogue.
pub(super) fn show(catalogue: &Catalogue, entry: &Value, json: bool) -> Result<(), Failure> {
    if json {
        return output::json(entry);
    }
    let Value::Object(fields) = entry else {
        return output::json(entry);
    };
    let shown = fields
        .iter()
        .map(|(name, value)| (name.as_str(), said(value)));
    let version = ("catalogue version", catalogue.version.to_string());
    output::fields(&shown.chain([version]).collect::<Vec<_>>())
}

/// Strings unchanged, other values as JSON.
fn said(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

pub(super) async fn apply(server: &Connection, args: ApplyArgs, json: bool) -> Result<(), Failure> {
    let text = read(&args.file)?;
    // Errors are found without a server.
    parse(&args.file, &text)?;
    let templates = serde_json::from_str(&text).map_err(|e| Failure::usage(e.to_string()))?;
    let body = ReplaceCatalogue {
        version: args.if_version,
        templates,
    };
    let applied: Catalogue = server.native(Method::POST, ROUTE, Some(&body)).await?;
    tell(&applied, json)
}

fn tell(applied: &Catalogue, json: bool) -> Result<(), Failure> {
    for warning in &applied.warnings {
        let (name, field) = (output::plain(&warning.name), output::plain(&warning.field));
        eprintln!(
            "warning: {name}: `{field}`: {}",
            output::plain(&warning.message)
        );
    }
    if json {
        return output::json(applied);
    }
    let count = applied.templates.len();
    output::line(&format!(
        "version {}, {count} in the catalogue",
        applied.version
    ))
}

/// Removes an entry from the catalogue, unless it changes meanwhile.
pub(super) async fn remove(
    server: &Connection,
    mut catalogue: Catalogue,
    name: &str,
) -> Result<(), Failure> {
    catalogue.templates.retain(|entry| {
        let own = entry.get("name").and_then(Value::as_str);
        !own.is_some_and(|own| own.eq_ignore_ascii_case(name))
    });
    let body = ReplaceCatalogue {
        version: Some(catalogue.version),
        templates: Value::Array(catalogue.templates),
    };
    let _: Catalogue = server.native(Method::POST, ROUTE, Some(&body)).await?;
    Ok(())
}

pub(super) async fn resolve(
    server: &Connection,
    args: ResolveArgs,
    json: bool,
) -> Result<(), Failure> {
    let said = [("templateID", &args.template), ("image", &args.image)];
    let query: Vec<String> = said
        .iter()
        .filter_map(|(name, value)| Some(format!("{name}={}", encode(value.as_ref()?))))
        .collect();
    let path = format!("{ROUTE}/resolve?{}", query.join("&"));
    let resolved: ResolvedTemplate = match server.native_get(&path).await {
        Err(failure) => {
            let asked = args.template.unwrap_or_default();
            return Err(super::with_near(server, &asked, failure).await);
        }
        Ok(resolved) => resolved,
    };
    if json {
        return output::json(&resolved);
    }
    let kind = match resolved.kind.as_str() {
        "template" => "a template",
        "snapshot" => "a snapshot",
        "entry" => "a catalogue entry",
        "dynamic" => "a dynamic catalogue entry",
        "image" => "an image only",
        other => other,
    };
    let captured = resolved
        .captured
        .map(|parts| format!("<name> is {}, <version> is {}", parts.name, parts.version));
    output::fields(&[
        ("template", resolved.name.unwrap_or_default()),
        ("which is", kind.to_owned()),
        ("pattern found", captured.unwrap_or_default()),
        ("id", resolved.template_id),
        (
            "image pulled",
            if resolved.image_here {
                "yes"
            } else {
                "no: pulled on demand"
            }
            .to_owned(),
        ),
    ])?;
    output::line("")?;
    let mut table = Table::new(&["VALUE", "IS", "FROM"]);
    for value in resolved.values {
        table.row([value.field, self::said(&value.value), value.from]);
    }
    table.print()
}

pub(super) fn lint(args: &LintArgs, json: bool) -> Result<u8, Failure> {
    let text = read(&args.file)?;
    let catalogue = parse(&args.file, &text)?;
    let warnings = catalogue.lint();
    if json {
        let lines: Vec<String> = warnings.iter().map(ToString::to_string).collect();
        output::json(&lines)?;
    } else {
        for warning in &warnings {
            output::line(&format!("warning: {}", output::plain(&warning.to_string())))?;
        }
        let count = catalogue.entries().len();
        output::line(&format!("{count} entries, {} warnings", warnings.len()))?;
    }
    Ok(u8::from(args.strict && !warnings.is_empty()))
}

fn parse(file: &Path, text: &str) -> Result<catalogue::Catalogue, Failure> {
    catalogue::Catalogue::parse(text)
        .map_err(|error| Failure::usage(format!("{}: {error}", file.display())))
}

fn read(file: &Path) -> Result<String, Failure> {
    let mut text = String::new();
    let most = BYTES_MAX as u64 + 1;
    let read = if file.as_os_str() == "-" {
        std::io::stdin().lock().take(most).read_to_string(&mut text)
    } else {
        std::fs::File::open(file).and_then(|open| open.take(most).read_to_string(&mut text))
    };
    match read {
        Ok(_) => Ok(text),
        Err(error) => {
            let message = format!("cannot read {}: {error}", file.display());
            let kind = match error.kind() {
                std::io::ErrorKind::NotFound => Kind::NotFound,
                _ => Kind::Other,
            };
            Err(Failure::new(kind, message))
        }
    }
}
