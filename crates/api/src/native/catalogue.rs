//! The template catalogue: the operator's list of templates.

use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::header::{ETAG, IF_MATCH};
use http::{HeaderMap, HeaderValue};
use serde::Deserialize;
use serde_json::{Value, json};
use shoal_core::auth::Principal;
use shoal_core::catalogue::merge::Row;
use shoal_core::catalogue::{Entry, PORT};
use shoal_core::image::ImageName;
use shoal_core::ports::catalogue::{
    BlueprintInForce, CatalogueError, CatalogueInForce, RefusedEdit,
};
use shoal_core::ports::resolve::{Explained, Meaning, Resolved};
use shoal_core::template::TemplateKey;
use shoal_protocol::native::{
    Blueprint, CapturedParts, Catalogue, CatalogueWarning, RefusedCatalogue, ReplaceBlueprint,
    ReplaceCatalogue, ResolvedTemplate, ResolvedValue,
};

use super::admin::Admin;
use super::answer::Answer;
use crate::backend::Backend;
use crate::body::{AnyJson, TextBody};
use crate::error::ApiError;
use crate::query::Query;

fn view(backend: &Backend, in_force: &CatalogueInForce, refused: Option<RefusedEdit>) -> Catalogue {
    let entries = in_force.catalogue.entries();
    let warnings = backend.catalogue.warnings(&in_force.catalogue).into_iter();
    Catalogue {
        version: in_force.version,
        updated_at: in_force.updated_at.map(|at| at.to_string()),
        templates: entries.iter().map(|entry| json!(entry.as_ref())).collect(),
        warnings: warnings
            .map(|warning| CatalogueWarning {
                name: warning.name,
                field: warning.field.to_owned(),
                message: warning.message,
            })
            .collect(),
        last_error: refused.map(|refused| RefusedCatalogue {
            at: refused.at.to_string(),
            source: refused.source,
            message: refused.message,
        }),
    }
}

/// The response, with the version in the `ETag` header for caches and `If-Match`.
fn answer(catalogue: Catalogue) -> Response {
    let tag = HeaderValue::try_from(format!("\"{}\"", catalogue.version));
    let mut response = Answer::ok(catalogue).into_response();
    if let Ok(tag) = tag {
        response.headers_mut().insert(ETAG, tag);
    }
    response
}

/// `GET /config/templates`: the current catalogue. Every key may read it, because it lists the
/// available templates. Only admins see the path of a refused file.
pub(super) async fn get(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
) -> Response {
    let refused = backend
        .catalogue
        .refused_edit()
        .map(|refused| match principal.admin {
            true => refused,
            false => RefusedEdit {
                source: "the file of the catalogue".to_owned(),
                ..refused
            },
        });
    answer(view(&backend, &backend.catalogue.in_force(), refused))
}

/// Options of [`replace`].
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ReplaceQuery {
    /// Whether to check the catalogue only. The answer has its entries and warnings, and the version in force.
    #[serde(default)]
    dry_run: bool,
}

/// `POST /config/templates`: replaces the catalogue atomically, or checks it.
pub(super) async fn replace(
    State(backend): State<Backend>,
    Admin(_): Admin,
    Query(query): Query<ReplaceQuery>,
    headers: HeaderMap,
    AnyJson(body): AnyJson,
) -> Result<Response, ApiError> {
    let (templates, version) = match body {
        list @ Value::Array(_) => (list, None),
        other => {
            let body: ReplaceCatalogue = serde_json::from_value(other)
                .map_err(|e| ApiError::invalid(format_args!("the body: {e}")))?;
            (body.templates, body.version)
        }
    };
    let expected = expected(&headers, version)?;
    let templates = templates.to_string();
    if query.dry_run {
        return check(&backend, &templates, expected);
    }
    let in_force = backend.catalogue.replace(&templates, expected).await?;
    let refused = backend.catalogue.refused_edit();
    Ok(answer(view(&backend, &in_force, refused)))
}

fn check(backend: &Backend, templates: &str, expected: Option<u64>) -> Result<Response, ApiError> {
    let in_force = backend.catalogue.in_force();
    let current = in_force.version;
    if let Some(expected) = expected.filter(|expected| *expected != current) {
        return Err(CatalogueError::Conflict { expected, current }.into());
    }
    let checked = CatalogueInForce {
        catalogue: backend.catalogue.check(templates)?,
        ..CatalogueInForce::clone(&in_force)
    };
    Ok(answer(view(backend, &checked, None)))
}

/// `GET /config/blueprint`: what entries are filled into.
pub(super) async fn blueprint(
    State(backend): State<Backend>,
    Admin(_): Admin,
) -> Result<Answer<Blueprint>, ApiError> {
    Ok(Answer::ok(shown_blueprint(backend.catalogue.blueprint()?)))
}

/// `POST /config/blueprint`: replaces it. The body is the YAML itself, as in Agent-Sandbox, or an object with it.
pub(super) async fn replace_blueprint(
    State(backend): State<Backend>,
    Admin(_): Admin,
    TextBody(body): TextBody,
) -> Result<Answer<Blueprint>, ApiError> {
    let text = serde_json::from_str::<ReplaceBlueprint>(&body).map_or(body, |said| said.blueprint);
    let replaced = backend.catalogue.replace_blueprint(&text).await?;
    Ok(Answer::ok(shown_blueprint(replaced)))
}

fn shown_blueprint(in_force: BlueprintInForce) -> Blueprint {
    let BlueprintInForce { text, own } = in_force;
    Blueprint {
        blueprint: text,
        own,
    }
}

/// The version that the edit is based on, from the header or the body.
fn expected(headers: &HeaderMap, version: Option<u64>) -> Result<Option<u64>, ApiError> {
    let Some(tag) = headers.get(IF_MATCH) else {
        return Ok(version);
    };
    let tag = tag.to_str().unwrap_or_default().trim();
    if tag == "*" {
        return Ok(version);
    }
    let bare = tag.strip_prefix("W/").unwrap_or(tag).trim_matches('"');
    let named = bare
        .parse()
        .map_err(|_| ApiError::invalid("If-Match: the version that was read, as in \"3\""))?;
    match version {
        Some(version) if version != named => Err(ApiError::invalid(
            "If-Match and `version` name two versions: leave one out",
        )),
        _ => Ok(Some(named)),
    }
}

/// The query of [`resolve`].
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct ResolveQuery {
    /// Template reference.
    #[serde(default, rename = "templateID")]
    template: Option<String>,
    /// Image that overrides the one of the template.
    #[serde(default)]
    image: Option<String>,
}

/// `GET /config/templates/resolve`: the settings that a request with this template and image would
/// get, with the source of each value.
pub(super) async fn resolve(
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    Query(asked): Query<ResolveQuery>,
) -> Result<Answer<ResolvedTemplate>, ApiError> {
    let said = |text: Option<String>| text.filter(|text| !text.is_empty());
    let (template, image) = (said(asked.template), said(asked.image));
    let key: Option<TemplateKey> = template
        .as_deref()
        .map(str::parse)
        .transpose()
        .map_err(|e| ApiError::invalid(format_args!("`templateID`: {e}")))?;
    let image: Option<ImageName> = image
        .as_deref()
        .map(str::parse)
        .transpose()
        .map_err(|e| ApiError::invalid(format_args!("`image`: {e}")))?;
    let explained = backend
        .templates
        .explain(&principal, key.as_ref(), image.as_ref())
        .await?;
    Ok(Answer::ok(explanation(template, explained)))
}

fn explanation(asked: Option<String>, explained: Explained) -> ResolvedTemplate {
    let Explained {
        resolved,
        image_here,
        merged,
    } = explained;
    let mut values = vec![Row {
        field: "image".to_owned(),
        value: json!(resolved.image),
        from: resolved.image_from,
    }];
    values.extend(merged.rows());
    if let Some(entry) = resolved.entry() {
        values.extend(kept(entry));
    }
    let (kind, captured) = kind(&resolved);
    ResolvedTemplate {
        asked,
        kind: kind.to_owned(),
        captured,
        image_here,
        values: values.into_iter().map(shown).collect(),
        entry: resolved.entry().map(|entry| json!(entry.as_ref())),
        template_id: resolved
            .key
            .clone()
            .unwrap_or_else(|| resolved.id.to_string()),
        name: resolved.name,
    }
}

fn shown(row: Row) -> ResolvedValue {
    ResolvedValue {
        field: row.field,
        value: row.value,
        from: row.from.to_string(),
    }
}

fn kind(resolved: &Resolved) -> (&'static str, Option<CapturedParts>) {
    match &resolved.meaning {
        Meaning::Template(_) => ("template", None),
        Meaning::Snapshot(_) => ("snapshot", None),
        Meaning::Image => ("image", None),
        Meaning::Entry { found, .. } => match &found.captured {
            None => ("entry", None),
            Some(captured) => {
                let parts = CapturedParts {
                    name: captured.name.clone(),
                    version: captured.version.clone(),
                };
                ("dynamic", Some(parts))
            }
        },
    }
}

/// The entry's settings for its service, which no request can change.
fn kept(entry: &Entry) -> Vec<Row> {
    use shoal_core::catalogue::merge::Source::{Default, Template};

    let port = entry.port.map(std::num::NonZeroU16::get);
    let rows = [
        (
            "template",
            entry.template.as_ref().map(|base| json!(base)),
            true,
        ),
        ("port", Some(json!(port.unwrap_or(PORT))), port.is_some()),
        ("args", entry.args.as_ref().map(|args| json!(args)), true),
        (
            "startCmd",
            entry.start_cmd.as_ref().map(|cmd| json!(cmd)),
            true,
        ),
        (
            "readyCmd",
            entry.ready_cmd.as_ref().map(|cmd| json!(cmd)),
            true,
        ),
        (
            "noStartupProbe",
            entry.no_startup_probe.map(|no| json!(no)),
            true,
        ),
    ];
    let rows = rows.into_iter().filter_map(|(field, value, said)| {
        Some(Row {
            field: field.to_owned(),
            value: value?,
            from: if said { Template } else { Default },
        })
    });
    rows.collect()
}
