//! A registry client for pulls.
//!
//! A tenant who may name an image may name a hostile registry. Its responses are therefore bounded
//! in length and time, credentials are sent only over TLS or within this machine, and every blob is
//! checked against its digest.

mod authorization;
mod aws;
mod guard;
mod http;
mod retry;

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use ipnet::IpNet;
use parking_lot::Mutex;
use reqwest::{Response, StatusCode, Url, header};
use shoal_core::image::{Reach, RegistryAuth};

pub(super) use self::authorization::fingerprint;
use self::authorization::{Authorization, Challenge};
use self::guard::Guard;
pub(crate) use self::retry::retry;
use super::blob::{Blobs, Body};
use super::digest::Digest;
use super::fault::Fault;
use super::manifest::{
    Blob, DOCUMENT_MAX, Descriptor, Document, MANIFEST_TYPES, Manifest, Plan, choose,
};
use super::reference::Reference;

/// The total time for a manifest, a configuration or a token.
const DOCUMENT_DEADLINE: Duration = Duration::from_secs(60);

/// The total time for a layer: ten GiB at two megabytes per second. It stops a registry that sends
/// slowly forever.
const LAYER_DEADLINE: Duration = Duration::from_secs(2 * 60 * 60);

/// Settings for registries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegistryConfig {
    /// Registries (host, and port if any) that are used without TLS. Those on this machine always
    /// are.
    pub plain_http: Vec<String>,
    /// The endpoint that exchanges AWS keys for credentials, as `scheme://host`; AWS by default.
    pub aws: Option<String>,
    /// Registries (host, and port if any) that tenants may use although their addresses are not
    /// public, together with their redirects.
    pub private: Vec<String>,
    /// Addresses that tenants' registries may not have, in addition to non-public ones: those of
    /// sandboxes.
    pub denied: Vec<IpNet>,
    /// How often a request is tried after transient failures.
    pub attempts: u32,
    /// The delay before the second try; it doubles for each further one.
    pub first_delay: Duration,
    /// The time for establishing a connection.
    pub connect_timeout: Duration,
    /// How long a registry may send nothing.
    pub idle_timeout: Duration,
}

impl Default for RegistryConfig {
    fn default() -> Self {
        Self {
            plain_http: Vec::new(),
            aws: None,
            private: Vec::new(),
            denied: Vec::new(),
            attempts: 4,
            first_delay: Duration::from_millis(300),
            connect_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(30),
        }
    }
}

/// One repository of a registry, with the authorization to read it.
pub(crate) struct Repository {
    client: reqwest::Client,
    reference: Reference,
    plain: bool,
    auth: Option<RegistryAuth>,
    /// Restricts the addresses, when a tenant named the image.
    guard: Option<Guard>,
    /// The authorization that the registry last accepted.
    accepted: Mutex<Option<Authorization>>,
    config: RegistryConfig,
}

impl Repository {
    pub(crate) fn new(
        reference: Reference,
        auth: Option<RegistryAuth>,
        reach: Reach,
        config: &RegistryConfig,
    ) -> Result<Self, Fault> {
        let listed = config.private.contains(&reference.registry);
        let guarded = reach == Reach::Public && !listed;
        let guard = guarded.then(|| Guard::new(&config.denied));
        let plain = reference.is_loopback() || config.plain_http.contains(&reference.registry);
        let client = http::client(&reference, plain, guard.as_ref(), config)?;
        Ok(Self {
            client,
            reference,
            plain,
            auth,
            guard,
            accepted: Mutex::new(None),
            config: config.clone(),
        })
    }

    /// The layers to fetch for the image.
    pub(crate) async fn plan(&self) -> Result<Plan, Fault> {
        let manifest = self.manifest().await?;
        let blob = Blob::from(&manifest.config);
        if blob.size > DOCUMENT_MAX {
            return Err(Fault::refused("its configuration is too long"));
        }
        let path = format!("blobs/{}", manifest.config.digest);
        let bytes = self.document(&path, None).await.map_err(lacks(&blob))?;
        check(&bytes, Some(manifest.config.digest), "configuration")?;
        Plan::new(manifest.config.digest, &bytes, manifest.blobs()?)
    }

    async fn manifest(&self) -> Result<Manifest, Fault> {
        let bytes = self
            .manifest_bytes(&self.reference.wanted(), self.reference.digest)
            .await?;
        let entries = match Document::parse(&bytes)? {
            Document::Manifest(manifest) => return Ok(manifest),
            Document::Index(entries) => entries,
        };
        let Descriptor { digest, .. } = choose(&entries)?;
        let bytes = self
            .manifest_bytes(&digest.to_string(), Some(*digest))
            .await?;
        match Document::parse(&bytes)? {
            Document::Manifest(manifest) => Ok(manifest),
            Document::Index(_) => Err(Fault::refused("its index leads to another index")),
        }
    }

    async fn manifest_bytes(&self, by: &str, digest: Option<Digest>) -> Result<Vec<u8>, Fault> {
        let path = format!("manifests/{by}");
        let bytes = self
            .document(&path, Some(&MANIFEST_TYPES.join(", ")))
            .await?;
        check(&bytes, digest, "manifest")?;
        Ok(bytes)
    }

    /// Fetches a short document completely.
    async fn document(&self, path: &str, accept: Option<&str>) -> Result<Vec<u8>, Fault> {
        retry(&self.config, || async {
            let read = async {
                let response = self.get(path, accept).await?;
                http::read(response, DOCUMENT_MAX, &self.reference.registry).await
            };
            within(DOCUMENT_DEADLINE, &self.reference.registry, read).await
        })
        .await
    }

    /// Requests `path` in the repository, with the authorization that the registry requires.
    async fn get(&self, path: &str, accept: Option<&str>) -> Result<Response, Fault> {
        let scheme = if self.plain { "http" } else { "https" };
        let Reference {
            registry,
            repository,
            ..
        } = &self.reference;
        let text = format!("{scheme}://{registry}/v2/{repository}/{path}");
        let url = Url::parse(&text).map_err(|e| Fault::refused(format!("{text}: {e}")))?;
        let accepted = self.accepted.lock().clone();
        let first = self.send(url.clone(), accept, accepted.as_ref()).await?;
        if first.status() != StatusCode::UNAUTHORIZED {
            return self.judge(first);
        }
        // No authorization yet, or it has expired.
        let authorization = self.authorize(&first).await?;
        let second = self.send(url, accept, Some(&authorization)).await?;
        *self.accepted.lock() = Some(authorization);
        self.judge(second)
    }

    async fn send(
        &self,
        url: Url,
        accept: Option<&str>,
        authorization: Option<&Authorization>,
    ) -> Result<Response, Fault> {
        if self
            .guard
            .as_ref()
            .is_some_and(|guard| !guard.permits_url(&url))
        {
            return Err(Fault::Unreachable {
                registry: self.reference.registry.clone(),
                detail: "it may not be asked".to_owned(),
            });
        }
        let mut request = self.client.get(url);
        if let Some(accept) = accept {
            request = request.header(header::ACCEPT, accept);
        }
        if let Some(authorization) = authorization {
            request = authorization.on(request);
        }
        request
            .send()
            .await
            .map_err(|e| http::unreachable(&self.reference.registry, e))
    }

    /// The authorization that the registry requires, as far as the caller's credentials allow.
    async fn authorize(&self, refusal: &Response) -> Result<Authorization, Fault> {
        let refused = || Fault::Unauthorized(self.reference.registry.clone());
        match Challenge::find(refusal.headers()).ok_or_else(refused)? {
            Challenge::Basic => {
                let auth = self.account().await?.ok_or_else(refused)?;
                Ok(Authorization::Basic(auth))
            }
            Challenge::Bearer { realm, service } => {
                let is_token =
                    |auth: &&RegistryAuth| auth.username.is_empty() && auth.aws_region.is_none();
                if let Some(token) = self.auth.as_ref().filter(is_token) {
                    return Authorization::bearer(&token.password).ok_or_else(refused);
                }
                let url = authorization::token_url(&realm, service, &self.reference.repository)
                    .filter(|url| url.scheme() == "https" || self.plain)
                    .ok_or_else(refused)?;
                let basic = self.account().await?.map(Authorization::Basic);
                let response = self.send(url, None, basic.as_ref()).await?;
                let response = self.judge(response).map_err(|fault| match fault {
                    Fault::Unreachable { .. } => fault,
                    _ => refused(),
                })?;
                let body = http::read(response, authorization::TOKEN_MAX, &self.reference.registry)
                    .await?;
                authorization::token(&body).ok_or_else(refused)
            }
        }
    }

    /// The caller's credentials for the registry.
    async fn account(&self) -> Result<Option<RegistryAuth>, Fault> {
        let Some(auth) = &self.auth else {
            return Ok(None);
        };
        let Some(region) = auth.aws_region.as_deref() else {
            return Ok(Some(auth.clone()));
        };
        let endpoint = self.config.aws.as_deref();
        let registry = &self.reference.registry;
        // The exchanged credentials are valid for other AWS registries too, so only AWS may see
        // them.
        if endpoint.is_none() && !aws::is_registry(registry, region) {
            return Err(Fault::refused(format!(
                "AWS keys are for the registries of AWS in {region:?}, and {registry} is not one"
            )));
        }
        let exchanged = aws::exchange(&self.client, auth, region, endpoint);
        let within = within(DOCUMENT_DEADLINE, &self.reference.registry, exchanged);
        within.await.map(Some)
    }

    /// Turns an error status into a fault.
    fn judge(&self, response: Response) -> Result<Response, Fault> {
        let registry = &self.reference.registry;
        match response.status() {
            StatusCode::OK => Ok(response),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                Err(Fault::Unauthorized(registry.clone()))
            }
            StatusCode::NOT_FOUND => Err(Fault::NotFound),
            status if http::may_pass(status) => Err(Fault::Unreachable {
                registry: registry.clone(),
                detail: format!("it answered {status}"),
            }),
            status => Err(Fault::refused(format!("the registry answered {status}"))),
        }
    }
}

impl Blobs for Repository {
    fn open<'a>(&'a self, blob: &'a Blob) -> BoxFuture<'a, Result<Body, Fault>> {
        async move {
            let path = format!("blobs/{}", blob.name);
            let asked = self.get(&path, None);
            let response = within(DOCUMENT_DEADLINE, &self.reference.registry, asked)
                .await
                .map_err(lacks(blob))?;
            let registry = self.reference.registry.clone();
            let Body { reader, pump } = http::body(response, registry.clone());
            let pump = async move { within(LAYER_DEADLINE, &registry, pump).await }.boxed();
            Ok(Body { reader, pump })
        }
        .boxed()
    }
}

/// Waits for `work`, up to a deadline.
async fn within<T>(
    deadline: Duration,
    registry: &str,
    work: impl Future<Output = Result<T, Fault>>,
) -> Result<T, Fault> {
    tokio::time::timeout(deadline, work)
        .await
        .unwrap_or_else(|_| {
            Err(Fault::Unreachable {
                registry: registry.to_owned(),
                detail: format!("it took more than {} s", deadline.as_secs()),
            })
        })
}

/// The image exists, but one of its blobs is missing.
fn lacks(blob: &Blob) -> impl FnOnce(Fault) -> Fault {
    let name = blob.name.clone();
    move |fault| match fault {
        Fault::NotFound => Fault::corrupt(format!("the registry lacks {name}")),
        other => other,
    }
}

/// Checks that `bytes` have the expected digest.
pub(crate) fn check(bytes: &[u8], digest: Option<Digest>, what: &str) -> Result<(), Fault> {
    let found = Digest::of(bytes);
    match digest {
        Some(digest) if digest != found => Err(Fault::corrupt(format!(
            "its {what} is {found} and not {digest}"
        ))),
        _ => Ok(()),
    }
}
