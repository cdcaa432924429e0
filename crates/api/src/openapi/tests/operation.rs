//! One operation of the document: a method of a path, its parameters and its responses.

use std::collections::BTreeSet;

use schemars::{JsonSchema, Schema, SchemaGenerator};

/// Makes the schema of a type, or a reference to it.
pub(crate) type MakeSchema = fn(&mut SchemaGenerator) -> Schema;

/// Any of the port's errors of an existing sandbox (`SandboxError`), including the driver's.
pub(crate) const SANDBOX: &[u16] = &[400, 403, 404, 409, 429, 502, 503, 504, 507];
/// Errors of creating a sandbox (`CreateError`).
pub(crate) const CREATE: &[u16] = &[400, 403, 404, 409, 422, 429, 502, 503, 504, 507];
/// Errors of work inside a sandbox (`InsideError`), and of reaching it.
pub(crate) const INSIDE: &[u16] = &[400, 403, 404, 409, 422, 429, 502, 503, 504, 507];
/// Errors of snapshots (`SnapshotError`).
pub(crate) const SNAPSHOT: &[u16] = &[400, 403, 404, 409, 429, 503, 504, 507];
/// Errors of templates and their tags (`TemplateError`, `TagError`).
pub(crate) const TEMPLATE: &[u16] = &[400, 403, 404, 409, 507];
/// Errors of builds (`BuildError`).
pub(crate) const BUILD: &[u16] = &[400, 403, 404, 409, 429, 507];
/// Errors of API keys (`KeyError`) and teams (`TeamError`).
pub(crate) const KEYS: &[u16] = &[400, 403, 404, 409, 507];
/// Errors of images on the server's machine (`ImageError`).
pub(crate) const IMAGE: &[u16] = &[403, 404, 409, 422, 502, 507];

/// The two dialects, which differ in the bodies of successes and errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// E2B's: a bare body.
    E2b,
    /// The native API's: an envelope.
    Native,
    /// Neither: routes of the server itself.
    Server,
}

/// The callers that are allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Any API key.
    Key,
    /// An API key of an admin; other keys are refused with 403.
    Admin,
    /// Anyone.
    Open,
}

/// The body of a request.
#[derive(Clone, Copy)]
pub(crate) enum Payload {
    /// No body.
    None,
    /// A JSON object. `required` refuses an empty body; otherwise that is `{}`.
    Json { make: MakeSchema, required: bool },
    /// A form with the part `file`.
    Form,
    /// A tar archive.
    Archive,
}

/// The body of a success.
#[derive(Clone, Copy)]
pub(crate) enum Content {
    /// No body.
    None,
    /// JSON, in the envelope of its dialect.
    Json(MakeSchema),
    /// A line of JSON for each event.
    Lines(MakeSchema),
    /// Server-sent events: the data of each is such a JSON object.
    Events(MakeSchema),
    /// Bytes as they are.
    Bytes,
    /// A JSON object of any content.
    Object,
}

/// A success.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) content: Content,
    /// Names of `components.headers`.
    pub(crate) headers: &'static [&'static str],
}

/// A header that a request may have.
pub(crate) struct RequestHeader(pub(crate) &'static str, pub(crate) &'static str);

/// One operation.
pub(crate) struct Operation {
    pub(crate) dialect: Dialect,
    pub(crate) method: &'static str,
    /// The path below the dialect's prefix.
    pub(crate) path: &'static str,
    /// A name for generated clients, unique in the document.
    pub(crate) id: &'static str,
    pub(crate) tag: &'static str,
    pub(crate) summary: &'static str,
    pub(crate) description: Option<&'static str>,
    pub(crate) access: Access,
    pub(crate) deprecated: bool,
    pub(crate) query: Option<MakeSchema>,
    pub(crate) headers: &'static [RequestHeader],
    pub(crate) payload: Payload,
    pub(crate) answers: Vec<Answer>,
    pub(crate) failures: BTreeSet<u16>,
}

/// The operations of one tag.
#[derive(Clone, Copy)]
pub(crate) struct Group(pub(crate) Dialect, pub(crate) &'static str);

impl Group {
    /// An operation for every key.
    pub(crate) fn op(
        self,
        method: &'static str,
        path: &'static str,
        id: &'static str,
        summary: &'static str,
    ) -> Operation {
        let Self(dialect, tag) = self;
        Operation {
            dialect,
            method,
            path,
            id,
            tag,
            summary,
            description: None,
            access: Access::Key,
            deprecated: false,
            query: None,
            headers: &[],
            payload: Payload::None,
            answers: Vec::new(),
            failures: BTreeSet::new(),
        }
    }
}

impl Operation {
    pub(crate) fn about(mut self, description: &'static str) -> Self {
        self.description = Some(description);
        self
    }

    pub(crate) fn admin(mut self) -> Self {
        self.access = Access::Admin;
        self
    }

    pub(crate) fn open(mut self) -> Self {
        self.access = Access::Open;
        self
    }

    pub(crate) fn deprecated(mut self) -> Self {
        self.deprecated = true;
        self
    }

    pub(crate) fn query<T: JsonSchema>(mut self) -> Self {
        self.query = Some(|generator| generator.subschema_for::<T>());
        self
    }

    pub(crate) fn headers(mut self, headers: &'static [RequestHeader]) -> Self {
        self.headers = headers;
        self
    }

    pub(crate) fn body<T: JsonSchema>(self) -> Self {
        self.json::<T>(false)
    }

    pub(crate) fn required_body<T: JsonSchema>(self) -> Self {
        self.json::<T>(true)
    }

    fn json<T: JsonSchema>(mut self, required: bool) -> Self {
        self.payload = Payload::Json {
            make: |generator| generator.subschema_for::<T>(),
            required,
        };
        self
    }

    pub(crate) fn form(mut self) -> Self {
        self.payload = Payload::Form;
        self
    }

    pub(crate) fn archive(mut self) -> Self {
        self.payload = Payload::Archive;
        self
    }

    pub(crate) fn answers<T: JsonSchema>(self, status: u16) -> Self {
        self.answer(
            status,
            Content::Json(|generator| generator.subschema_for::<T>()),
            &[],
        )
    }

    pub(crate) fn lists<T: JsonSchema>(self, headers: &'static [&'static str]) -> Self {
        let make: MakeSchema = |generator| generator.subschema_for::<Vec<T>>();
        self.answer(200, Content::Json(make), headers)
    }

    pub(crate) fn lines<T: JsonSchema>(self) -> Self {
        let make: MakeSchema = |generator| generator.subschema_for::<T>();
        self.answer(200, Content::Lines(make), &[])
    }

    pub(crate) fn events<T: JsonSchema>(self) -> Self {
        let make: MakeSchema = |generator| generator.subschema_for::<T>();
        self.answer(200, Content::Events(make), &[])
    }

    pub(crate) fn empty(self, status: u16) -> Self {
        self.answer(status, Content::None, &[])
    }

    pub(crate) fn answer(
        mut self,
        status: u16,
        content: Content,
        headers: &'static [&'static str],
    ) -> Self {
        self.answers.push(Answer {
            status,
            content,
            headers,
        });
        self
    }

    pub(crate) fn fails(mut self, statuses: &[u16]) -> Self {
        self.failures.extend(statuses);
        self
    }

    /// The documented failures: its own, and those that every such route has.
    pub(crate) fn all_failures(&self) -> BTreeSet<u16> {
        let mut failures = self.failures.clone();
        // Every route is refused while the server stops.
        failures.extend([500, 503]);
        if self.access != Access::Open {
            // The key, the rates and the calls in flight, the time of a call.
            failures.extend([401, 429, 504]);
        }
        if self.access == Access::Admin {
            failures.insert(403);
        }
        if self.path.contains('{') || self.query.is_some() {
            failures.insert(400);
        }
        if !matches!(self.payload, Payload::None) {
            failures.extend([400, 413]);
        }
        failures
    }
}
