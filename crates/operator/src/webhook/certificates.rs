//! The webhook's certificate and the authority that the API server trusts. All replicas share them in a
//! Secret; the first that finds it missing or old makes new ones.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::PartialObjectMeta;
use kube::{Api, Client};
use parking_lot::RwLock;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::json;
use shoal_crds::{Conversion, converted};

use super::Served;
use crate::failure::is_conflict;

/// The Secret of the reference controller.
const SECRET: &str = "agent-sandbox-webhook-certs";
/// When a replica makes the next ones.
const RENEW_AT: &str = "shoal.dev/renew-at";
/// The certificates were valid before they were made, for machines with a slow clock.
const SLOW_CLOCK: Duration = Duration::from_secs(3600);
/// How often replicas look for a certificate of another replica.
const RELOAD: Duration = Duration::from_secs(30);

/// Why the webhook has no certificate.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CertificateError {
    #[error("cannot create a certificate: {0}")]
    Create(#[from] rcgen::Error),
    #[error("cannot read or write the Secret {SECRET} or the definitions: {0}")]
    Api(#[from] kube::Error),
    #[error("the Secret {SECRET} has no usable certificate: {0}")]
    Unusable(String),
}

/// Authority, certificate and key, as PEM.
#[derive(Clone, PartialEq)]
struct Bundle {
    /// The authority, and the one before it, which other replicas may still use.
    authorities: String,
    certificate: String,
    key: String,
    renew_at: Timestamp,
}

/// Keeps the webhook's certificate.
pub(crate) struct Certificates {
    client: Client,
    namespace: String,
    conversion: Conversion,
    /// Names and addresses of the webhook.
    names: Vec<String>,
    lifetime: Duration,
}

impl Certificates {
    pub(crate) fn new(
        client: Client,
        namespace: &str,
        conversion: Conversion,
        lifetime: Duration,
    ) -> Self {
        let names = names(&conversion);
        Self {
            client,
            namespace: namespace.to_owned(),
            conversion,
            names,
            lifetime,
        }
    }

    /// Loads or makes the certificate, and configures the API server to trust it. The second result keeps both
    /// current, forever.
    ///
    /// # Errors
    /// When the first certificate cannot be had.
    pub(crate) async fn start(
        self,
    ) -> Result<(Served, impl Future<Output = ()> + Send), CertificateError> {
        let bundle = self.current().await?;
        let served: Served = Arc::new(RwLock::new(Arc::new(server_config(&bundle)?)));
        self.publish(&bundle).await?;
        let renewal = self.renew(bundle, served.clone());
        Ok((served, renewal))
    }

    async fn renew(self, mut bundle: Bundle, served: Served) {
        loop {
            tokio::time::sleep(RELOAD.min(self.lifetime / 10)).await;
            match self.refresh(&bundle).await {
                Ok(Some((config, new))) => {
                    *served.write() = Arc::new(config);
                    bundle = new;
                    tracing::info!(renew_at = %bundle.renew_at, "webhook: new certificate");
                }
                Ok(None) => {}
                Err(error) => tracing::warn!(%error, "webhook: cannot renew the certificate"),
            }
        }
    }

    /// The next bundle, if there is one. The API server trusts it before it is served.
    async fn refresh(
        &self,
        bundle: &Bundle,
    ) -> Result<Option<(ServerConfig, Bundle)>, CertificateError> {
        let new = self.current().await?;
        if new == *bundle {
            return Ok(None);
        }
        let config = server_config(&new)?;
        self.publish(&new).await?;
        Ok(Some((config, new)))
    }

    /// The bundle of the Secret, or a new one if it is missing, unreadable or old.
    async fn current(&self) -> Result<Bundle, CertificateError> {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        loop {
            let secret = api.get_opt(SECRET).await?;
            let known = secret.as_ref().and_then(read);
            if let Some(known) = &known
                && Timestamp::now() < known.renew_at
                && server_config(known).is_ok()
            {
                return Ok(known.clone());
            }
            let bundle = make(&self.names, self.lifetime, known.as_ref())?;
            let new = write(&bundle, secret.as_ref());
            let params = PostParams::default();
            let written = if secret.is_some() {
                api.replace(SECRET, &params, &new).await
            } else {
                api.create(&params, &new).await
            };
            match written {
                Ok(_) => return Ok(bundle),
                // Another replica was faster: use its certificate.
                Err(error) if is_conflict(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Puts the authorities into the definitions.
    async fn publish(&self, bundle: &Bundle) -> Result<(), CertificateError> {
        let api: Api<PartialObjectMeta<CustomResourceDefinition>> = Api::all(self.client.clone());
        let authorities = ByteString(bundle.authorities.clone().into_bytes());
        let authorities = serde_json::to_value(&authorities)
            .map_err(|error| CertificateError::Unusable(error.to_string()))?;
        let mut client_config = self.conversion.client_config(authorities.as_str());
        for other in ["url", "service"] {
            if client_config.get(other).is_none() {
                client_config[other] = serde_json::Value::Null;
            }
        }
        let patch = json!({"spec": {"conversion": {
            "strategy": "Webhook",
            "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": client_config},
        }}});
        for name in converted() {
            api.patch(&name, &PatchParams::default(), &Patch::Merge(&patch))
                .await?;
        }
        Ok(())
    }
}

/// The names under which the API server calls the webhook.
fn names(conversion: &Conversion) -> Vec<String> {
    match conversion {
        Conversion::Service { namespace, name } => vec![
            format!("{name}.{namespace}.svc"),
            format!("{name}.{namespace}"),
            name.clone(),
        ],
        Conversion::Url(url) => {
            let uri = url.parse::<http::Uri>().ok();
            let host = uri.as_ref().and_then(http::Uri::host).unwrap_or_default();
            vec![host.trim_matches(['[', ']']).to_owned()]
        }
    }
}

fn make(
    names: &[String],
    lifetime: Duration,
    before: Option<&Bundle>,
) -> Result<Bundle, CertificateError> {
    let now = std::time::SystemTime::now();
    let authority_key = KeyPair::generate()?;
    let mut authority = CertificateParams::new(Vec::<String>::new())?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    authority
        .distinguished_name
        .push(DnType::CommonName, "Shoal operator, conversion webhook");
    authority.not_before = (now - SLOW_CLOCK).into();
    authority.not_after = (now + lifetime).into();
    let authority_pem = authority.self_signed(&authority_key)?.pem();
    let issuer = Issuer::new(authority, authority_key);
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(Vec::<String>::new())?;
    for name in names {
        params.subject_alt_names.push(match name.parse::<IpAddr>() {
            Ok(address) => SanType::IpAddress(address),
            Err(_) => SanType::DnsName(name.as_str().try_into()?),
        });
    }
    params
        .distinguished_name
        .push(DnType::CommonName, "conversion webhook");
    params
        .extended_key_usages
        .push(ExtendedKeyUsagePurpose::ServerAuth);
    params.not_before = (now - SLOW_CLOCK).into();
    params.not_after = (now + lifetime).into();
    let certificate = params.signed_by(&key, &issuer)?.pem();
    let mut authorities = authority_pem;
    if let Some(before) = before {
        authorities.push_str(first(&before.authorities));
    }
    let third = jiff::SignedDuration::try_from(lifetime / 3).unwrap_or(jiff::SignedDuration::ZERO);
    let renew_at = Timestamp::now()
        .saturating_add(third + third)
        .unwrap_or(Timestamp::MAX);
    Ok(Bundle {
        authorities,
        certificate,
        key: key.serialize_pem(),
        renew_at,
    })
}

/// The first certificate of a list.
fn first(certificates: &str) -> &str {
    const END: &str = "-----END CERTIFICATE-----";
    certificates
        .find(END)
        .map_or("", |at| &certificates[..at + END.len()])
}

fn read(secret: &Secret) -> Option<Bundle> {
    let data = secret.data.as_ref()?;
    let text = |key: &str| String::from_utf8(data.get(key)?.0.clone()).ok();
    let renew_at = secret.metadata.annotations.as_ref()?.get(RENEW_AT)?;
    Some(Bundle {
        authorities: text("ca.crt")?,
        certificate: text("tls.crt")?,
        key: text("tls.key")?,
        renew_at: renew_at.parse().ok()?,
    })
}

/// The Secret with the bundle, in place of `before`, whose type cannot change.
fn write(bundle: &Bundle, before: Option<&Secret>) -> Secret {
    let bytes = |text: &str| ByteString(text.as_bytes().to_vec());
    Secret {
        metadata: ObjectMeta {
            name: Some(SECRET.to_owned()),
            annotations: Some(BTreeMap::from([(
                RENEW_AT.to_owned(),
                bundle.renew_at.to_string(),
            )])),
            resource_version: before.and_then(|before| before.metadata.resource_version.clone()),
            ..ObjectMeta::default()
        },
        type_: before.map_or(Some("kubernetes.io/tls".to_owned()), |before| {
            before.type_.clone()
        }),
        data: Some(BTreeMap::from([
            ("ca.crt".to_owned(), bytes(&bundle.authorities)),
            ("tls.crt".to_owned(), bytes(&bundle.certificate)),
            ("tls.key".to_owned(), bytes(&bundle.key)),
        ])),
        ..Secret::default()
    }
}

fn server_config(bundle: &Bundle) -> Result<ServerConfig, CertificateError> {
    let unusable = |error: &dyn std::fmt::Display| CertificateError::Unusable(error.to_string());
    let chain: Vec<CertificateDer<'static>> =
        CertificateDer::pem_slice_iter(bundle.certificate.as_bytes())
            .collect::<Result<_, _>>()
            .map_err(|error| unusable(&error))?;
    let key =
        PrivateKeyDer::from_pem_slice(bundle.key.as_bytes()).map_err(|error| unusable(&error))?;
    let mut config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|error| unusable(&error))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundle_survives_the_secret_and_can_be_served() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let names = names(&Conversion::default());
        let bundle = make(&names, Duration::from_secs(90), None).unwrap();
        assert!(bundle.renew_at > Timestamp::now());
        let known = read(&write(&bundle, None)).unwrap();
        assert!(known == bundle);
        server_config(&known).unwrap();
    }

    #[test]
    fn a_new_bundle_still_trusts_the_authority_before_it() {
        let names = names(&Conversion::Url(
            "https://127.0.0.1:9443/convert".to_owned(),
        ));
        assert_eq!(names, ["127.0.0.1"]);
        let old = make(&names, Duration::from_secs(90), None).unwrap();
        let new = make(&names, Duration::from_secs(90), Some(&old)).unwrap();
        let third = make(&names, Duration::from_secs(90), Some(&new)).unwrap();
        assert!(new.authorities.contains(first(&old.authorities)));
        assert!(
            !third.authorities.contains(first(&old.authorities)),
            "only the one before"
        );
    }
}
