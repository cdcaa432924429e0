//! `POST /sandboxes` and `POST /v2/sandboxes`.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest, Sha256};
use shoal_core::auth::Principal;
use shoal_core::ports::create::{Idempotency, SandboxRequest};
use shoal_core::sandbox::OnTimeout;

use super::network::NetworkBody;
use super::view::{Ran, Sandbox};
use super::{cpu, kruise};
use crate::audit;
use crate::backend::Backend;
use crate::body::JsonBody;
use crate::config::ApiConfig;
use crate::error::ApiError;
use crate::quantities;
use crate::texts;

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

/// The two versions differ in two defaults.
#[derive(Clone, Copy)]
struct Dialect {
    name: &'static str,
    timeout: u64,
    /// Whether a sandbox is secured by default.
    always_secure: bool,
}

const V1: Dialect = Dialect {
    name: "v1",
    timeout: 15,
    always_secure: false,
};
const V2: Dialect = Dialect {
    name: "v2",
    timeout: 300,
    always_secure: true,
};

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(super) struct NewSandboxBody {
    #[serde(default, rename = "templateID")]
    template: Option<String>,
    /// Agent-Sandbox's: an image that replaces the template's, or stands in for a template.
    #[serde(default)]
    image: Option<String>,
    /// Agent-Sandbox's, as on its own routes: overrides the template's value.
    #[serde(default)]
    cpu: Option<Value>,
    #[serde(default, alias = "cpu_limit")]
    cpu_limit: Option<Value>,
    #[serde(default)]
    memory: Option<Value>,
    #[serde(default, alias = "memory_limit")]
    memory_limit: Option<Value>,
    #[serde(default)]
    timeout: Option<i64>,
    #[serde(default)]
    auto_pause: Option<bool>,
    #[serde(default)]
    auto_pause_memory: Option<bool>,
    #[serde(default)]
    auto_resume: Option<AutoResume>,
    #[serde(default)]
    secure: Option<bool>,
    #[serde(default, rename = "allow_internet_access")]
    internet: Option<bool>,
    #[serde(default)]
    network: Option<NetworkBody>,
    #[serde(default)]
    metadata: Option<BTreeMap<String, String>>,
    #[serde(default)]
    env_vars: Option<BTreeMap<String, String>>,
    #[serde(default)]
    volume_mounts: Option<Vec<Value>>,
    #[serde(default)]
    iam: Option<Value>,
}

#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct AutoResume {
    enabled: bool,
}

pub(super) async fn v1(
    backend: State<Backend>,
    principal: Extension<Principal>,
    config: Extension<ApiConfig>,
    headers: HeaderMap,
    body: JsonBody<NewSandboxBody>,
) -> Result<Response, ApiError> {
    create(V1, backend, principal, config, headers, body).await
}

pub(super) async fn v2(
    backend: State<Backend>,
    principal: Extension<Principal>,
    config: Extension<ApiConfig>,
    headers: HeaderMap,
    body: JsonBody<NewSandboxBody>,
) -> Result<Response, ApiError> {
    create(V2, backend, principal, config, headers, body).await
}

async fn create(
    dialect: Dialect,
    State(backend): State<Backend>,
    Extension(principal): Extension<Principal>,
    Extension(config): Extension<ApiConfig>,
    headers: HeaderMap,
    body: JsonBody<NewSandboxBody>,
) -> Result<Response, ApiError> {
    // All fields are optional, so serde would accept any body.
    if body.bytes.trim_ascii_start().first() != Some(&b'{') {
        return Err(ApiError::invalid("the body: must be an object"));
    }
    let idempotency = idempotency(dialect, &headers, &body.bytes)?;
    let new = body.value.translate(dialect)?;
    let created = backend
        .sandboxes
        .create(&principal, new, idempotency)
        .await?;
    audit::target(&created.record.id);
    let view = Sandbox::of(&backend, &created.record, config.domain);
    let mut response = (StatusCode::CREATED, Json(view)).into_response();
    let timing = Ran::of(&created.record).map(|ran| ran.server_timing());
    if let Some(value) = timing.and_then(|timing| HeaderValue::from_str(&timing).ok()) {
        response.headers_mut().insert(SERVER_TIMING, value);
    }
    Ok(response)
}

fn idempotency(
    dialect: Dialect,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<Option<Idempotency>, ApiError> {
    let Some(key) = headers.get(&IDEMPOTENCY_KEY) else {
        return Ok(None);
    };
    let good = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-';
    let bytes = key.as_bytes();
    if !(1..=255).contains(&bytes.len()) || !bytes.iter().all(good) {
        return Err(ApiError::invalid(
            "Idempotency-Key: 1 to 255 of a-z, 0-9 and -",
        ));
    }
    let request = Sha256::new()
        .chain_update(dialect.name)
        .chain_update(body)
        .finalize();
    let key = String::from_utf8_lossy(bytes).into_owned();
    Ok(Some(Idempotency {
        key,
        request: request.into(),
    }))
}

impl NewSandboxBody {
    /// Refuses fields of E2B that Shoal has no equivalent for.
    fn check_supported(&self) -> Result<(), ApiError> {
        let volumes = self.volume_mounts.as_ref();
        let volumes = volumes.is_some_and(|mounts| !mounts.is_empty());
        let iam = self.iam.as_ref().is_some_and(|iam| !iam.is_null());
        for (name, asked) in [("volumeMounts", volumes), ("iam", iam)] {
            if asked {
                return Err(ApiError::invalid(format_args!("`{name}` is not supported")));
            }
        }
        Ok(())
    }

    fn translate(self, dialect: Dialect) -> Result<SandboxRequest, ApiError> {
        self.check_supported()?;
        let template = self.template.map(|name| name.parse()).transpose();
        let template = template.map_err(ApiError::invalid)?;
        let image = self.image.map(|name| name.parse()).transpose();
        let image = image.map_err(|e| ApiError::invalid(format_args!("`image`: {e}")))?;
        let timeout = match self.timeout {
            None => dialect.timeout,
            Some(seconds) => u64::try_from(seconds)
                .map_err(|_| ApiError::invalid("`timeout`: must not be negative"))?,
        };
        let secure = dialect.always_secure || self.secure.unwrap_or(false);
        let network = self.network.unwrap_or_default().asked(self.internet)?;
        if network.allow_public_traffic == Some(false) && !secure {
            return Err(ApiError::invalid(
                "`network.allowPublicTraffic`: false needs `secure`",
            ));
        }
        let auto_pause = self.auto_pause.unwrap_or(false);
        let auto_resume = self.auto_resume.is_some_and(|auto| auto.enabled);
        let keep_memory = self.auto_pause_memory.unwrap_or(true);
        if !keep_memory && (!auto_pause || auto_resume) {
            return Err(ApiError::invalid(
                "`autoPauseMemory`: false needs `autoPause` and no `autoResume`",
            ));
        }
        let metadata = self.metadata.unwrap_or_default();
        texts::check_metadata(&metadata)?;
        let kruise::Extended {
            metadata,
            labels,
            endless,
        } = kruise::read(metadata)?;
        let env = self.env_vars.unwrap_or_default();
        texts::check_env("envVars", &env)?;
        let resize = cpu::asked(&metadata)?;
        let resources =
            quantities::limits([self.cpu, self.cpu_limit], [self.memory, self.memory_limit]);
        Ok(SandboxRequest {
            template,
            image,
            resources: resources?,
            resize,
            timeout: Duration::from_secs(timeout),
            endless,
            on_timeout: if auto_pause {
                OnTimeout::Pause
            } else {
                OnTimeout::Kill
            },
            auto_resume,
            keep_memory,
            secure,
            network,
            runtime: texts::runtime(&metadata)?,
            metadata,
            labels,
            env,
            ..SandboxRequest::unnamed()
        })
    }
}
