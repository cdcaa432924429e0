//! The API server, as the user's kubeconfig reaches it.

use http::StatusCode;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, ObjectList};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use shoal_core::similar::nearest;
use shoal_crds::{kruise, v1beta1};

use super::Family;
use super::sandbox::Sandbox;
use crate::failure::{Failure, Kind};

/// A cluster and one of its namespaces.
pub(crate) struct Cluster {
    client: Client,
    namespace: String,
    /// The API that the user chose.
    family: Option<Family>,
}

impl Cluster {
    /// Reads the kubeconfig. No request is sent.
    pub(super) async fn connect(
        context: Option<&str>,
        namespace: Option<&str>,
        family: Option<Family>,
    ) -> Result<Self, Failure> {
        let config = configuration(context).await?;
        let namespace = namespace.unwrap_or(&config.default_namespace).to_owned();
        // The program has one provider; another part of it may have installed it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::try_from(config).map_err(failure)?;
        Ok(Self {
            client,
            namespace,
            family,
        })
    }

    pub(super) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Whether the user wants to see an API.
    pub(super) fn has(&self, family: Family) -> bool {
        self.family.is_none_or(|chosen| chosen == family)
    }

    /// A kind in the namespace.
    pub(super) fn kind<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// The sandboxes of both APIs, by name. An API that the cluster does not have has none.
    pub(super) async fn sandboxes(&self, everywhere: bool) -> Result<Vec<Sandbox>, Failure> {
        let mut answers = Vec::new();
        if self.has(Family::Community) {
            let api: Api<v1beta1::Sandbox> = self.listed(everywhere);
            let list = present(api.list(&ListParams::default()).await);
            let seen = |list: ObjectList<_>| list.items.iter().map(Sandbox::of_community).collect();
            answers.push(list.map(|list| list.map(seen)));
        }
        if self.has(Family::Kruise) {
            let api: Api<kruise::Sandbox> = self.listed(everywhere);
            let list = present(api.list(&ListParams::default()).await);
            let seen = |list: ObjectList<_>| list.items.iter().map(Sandbox::of_kruise).collect();
            answers.push(list.map(|list| list.map(seen)));
        }
        let answers: Vec<Option<Vec<Sandbox>>> = readable(answers)?;
        if answers.iter().all(Option::is_none) {
            return Err(Failure::not_found("the cluster does not know sandboxes")
                .with_hint("install the chart: kubectl apply -f deploy/kubernetes/shoal.yaml"));
        }
        let mut found: Vec<Sandbox> = answers.into_iter().flatten().flatten().collect();
        found.sort_by(|one, other| {
            (&one.namespace, &one.name).cmp(&(&other.namespace, &other.name))
        });
        Ok(found)
    }

    fn listed<K>(&self, everywhere: bool) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        if everywhere {
            return Api::all(self.client.clone());
        }
        self.kind()
    }

    /// A sandbox by its name.
    pub(super) async fn sandbox(&self, name: &str) -> Result<Sandbox, Failure> {
        let mut answers = Vec::new();
        if self.has(Family::Community) {
            let api: Api<v1beta1::Sandbox> = self.kind();
            let found = one(api.get_opt(name).await);
            answers.push(found.map(|found| found.as_ref().map(Sandbox::of_community)));
        }
        if self.has(Family::Kruise) {
            let api: Api<kruise::Sandbox> = self.kind();
            let found = one(api.get_opt(name).await);
            answers.push(found.map(|found| found.as_ref().map(Sandbox::of_kruise)));
        }
        let mut found: Vec<Sandbox> = readable(answers)?.into_iter().flatten().collect();
        match found.len() {
            1 => Ok(found.remove(0)),
            0 => Err(self.unknown(name).await),
            _ => Err(Failure::usage(format!("both APIs have a sandbox {name}"))
                .with_hint("say which: --api agents.x-k8s.io or --api agents.kruise.io")),
        }
    }

    async fn unknown(&self, name: &str) -> Failure {
        let failure = Failure::not_found(format!(
            "there is no sandbox {name} in the namespace {}",
            self.namespace
        ));
        // It is a hint: a list that fails gives none.
        let known = self.sandboxes(false).await.unwrap_or_default();
        match nearest(name, known.iter().map(|known| known.name.as_str())) {
            Some(near) => failure.with_hint(format!("did you mean {near}?")),
            None => failure,
        }
    }

    /// The pods of the namespace.
    pub(super) fn pods(&self) -> Api<Pod> {
        self.kind()
    }
}

async fn configuration(context: Option<&str>) -> Result<Config, Failure> {
    let unusable = |error: String| {
        Failure::usage(format!("cannot use the kubeconfig: {error}"))
            .with_hint("KUBECONFIG names the file; ~/.kube/config is the default")
    };
    let Some(context) = context else {
        return Config::infer()
            .await
            .map_err(|error| unusable(error.to_string()));
    };
    let file = Kubeconfig::read().map_err(|error| unusable(error.to_string()))?;
    let names: Vec<String> = file
        .contexts
        .iter()
        .map(|known| known.name.clone())
        .collect();
    if !names.iter().any(|name| name == context) {
        let failure = Failure::usage(format!("the kubeconfig has no context {context}"));
        return Err(failure.with_hint(format!("it has: {}", names.join(", "))));
    }
    let options = KubeConfigOptions {
        context: Some(context.to_owned()),
        ..KubeConfigOptions::default()
    };
    let config = Config::from_custom_kubeconfig(file, &options).await;
    config.map_err(|error| unusable(error.to_string()))
}

/// The answers of both APIs. One that the user may not read has none, unless the other has none either.
pub(super) fn readable<T>(answers: Vec<Result<T, Failure>>) -> Result<Vec<T>, Failure> {
    let (mut found, mut refused) = (Vec::new(), None);
    for answer in answers {
        match answer {
            Ok(answer) => found.push(answer),
            Err(failure) if failure.kind() == Kind::Refused => refused = Some(failure),
            Err(failure) => return Err(failure),
        }
    }
    match refused {
        Some(refused) if found.is_empty() => Err(refused),
        _ => Ok(found),
    }
}

/// A list, or none where the cluster does not have the kind.
fn present<T>(listed: kube::Result<T>) -> Result<Option<T>, Failure> {
    match listed {
        Ok(listed) => Ok(Some(listed)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(failure(error)),
    }
}

/// An object, or none where the cluster does not have the object or its kind.
pub(super) fn one<T>(found: kube::Result<Option<T>>) -> Result<Option<T>, Failure> {
    Ok(present(found)?.flatten())
}

/// The answer of the API server, or of a proxy before it.
pub(super) fn failure(error: kube::Error) -> Failure {
    match error {
        kube::Error::Api(status) => {
            let code =
                StatusCode::from_u16(status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            Failure::of_status(code, format!("the API server refused: {}", status.message))
        }
        kube::Error::Service(_) | kube::Error::HyperError(_) => Failure::new(
            Kind::Unreachable,
            format!("cannot reach the API server: {}", causes(&error)),
        ),
        kube::Error::Auth(_) => Failure::new(
            Kind::Refused,
            format!("cannot sign in to the API server: {}", causes(&error)),
        ),
        error => Failure::other(causes(&error)),
    }
}

/// An error and what caused it, without repetitions.
fn causes(error: &dyn std::error::Error) -> String {
    let mut told = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_told = cause.to_string();
        if !told.contains(&cause_told) {
            told = format!("{told}: {cause_told}");
        }
        next = cause.source();
    }
    told
}
