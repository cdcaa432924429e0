//! Filling an entry into a blueprint.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use shoal_core::catalogue::{Entry, EntryNetwork, EntryResources, Pool};
use shoal_core::image::ImageName;
use shoal_core::resources::RequestedResources;
use shoal_crds::kruise::names::label::ALLOW_INTERNET_ACCESS;
use shoal_crds::kruise::names::label_value;
use shoal_crds::kruise::quantity::nano_of;
use shoal_crds::parts::{Pairs, PodMetadata, PodTemplate};

use super::{Blueprint, InvalidBlueprint, invalid, is_steering};

/// The objects of an entry's sandboxes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Rendered {
    /// The pod of a member of the pool.
    pub(crate) template: PodTemplate,
    /// The resources of the main container once the sandbox is in use.
    pub(crate) resources: Value,
}

impl Blueprint {
    /// The pods of an entry.
    ///
    /// # Errors
    /// When the entry asks for something that no pod here has, or does not fit into the blueprint.
    pub(crate) fn render(
        &self,
        entry: &Entry,
        image: &ImageName,
    ) -> Result<Rendered, InvalidBlueprint> {
        check(entry)?;
        let told = |InvalidBlueprint(why)| InvalidBlueprint::of(entry, &why);
        let mut pod = self.pod.clone();
        if let Some(runtime) = &entry.runtime {
            pod.insert("runtimeClassName".to_owned(), runtime.as_str().into());
        }
        let resources = {
            let containers = pod.get_mut("containers").and_then(Value::as_array_mut);
            let main = containers.and_then(|containers| containers.first_mut()?.as_object_mut());
            let Some(main) = main else {
                return invalid("the pod of the blueprint has no containers").map_err(told);
            };
            fill(main, entry, image).map_err(told)?
        };
        let mut labels = self.labels.clone();
        label(&mut labels, entry);
        Ok(Rendered {
            template: PodTemplate {
                spec: pod.into(),
                metadata: PodMetadata {
                    labels,
                    annotations: self.annotations.clone(),
                },
            },
            resources,
        })
    }
}

/// Gives the pods of an entry's pool their labels.
pub(crate) fn label(labels: &mut Pairs, entry: &Entry) {
    let name = label_value(entry.name.as_str());
    labels.insert(
        "sbx-template".to_owned(),
        name.trim_end_matches(['-', '_', '.']).to_owned(),
    );
    labels.insert("sbx-pool".to_owned(), "true".to_owned());
    let network = entry.network.as_ref();
    if network.and_then(|network| network.allow_internet_access) == Some(false) {
        labels.insert(ALLOW_INTERNET_ACCESS.to_owned(), "false".to_owned());
    }
}

/// Refuses what no pod here has.
pub(crate) fn check(entry: &Entry) -> Result<(), InvalidBlueprint> {
    if let Some(key) = entry.metadata.keys().find(|key| is_steering(key)) {
        return Err(InvalidBlueprint::of(
            entry,
            &format!("`metadata.{key}` is reserved"),
        ));
    }
    if let Some(network) = &entry.network
        && *network
            != (EntryNetwork {
                allow_internet_access: network.allow_internet_access,
                ..EntryNetwork::default()
            })
    {
        return Err(InvalidBlueprint::of(
            entry,
            "`network`: only `allowInternetAccess` is carried out in a cluster: create a NetworkPolicy or a TrafficPolicy for the rest",
        ));
    }
    Ok(())
}

/// Sets the main container's fields. Returns its resources in use; those of a waiting member are set.
fn fill(
    main: &mut Map<String, Value>,
    entry: &Entry,
    image: &ImageName,
) -> Result<Value, InvalidBlueprint> {
    let mut set = |field: &str, value: Value| drop(main.insert(field.to_owned(), value));
    set("image", image.to_string().into());
    if let Some(workdir) = &entry.workdir {
        set("workingDir", workdir.as_str().into());
    }
    let pool = entry.pool.as_ref().filter(|pool| pool.size > 0);
    let line = entry
        .start()
        .map(|start| start.command)
        .filter(|line| !line.is_empty());
    if let Some(argv) = entry.warmup_argv().filter(|_| pool.is_some()) {
        set("command", argv.into());
    } else if let Some(line) = line {
        set("command", json!(["/bin/sh", "-c", line]));
    } else if let Some(args) = &entry.args {
        // The image's own program has them.
        set("args", json!(args));
    }
    if let Some(user) = &entry.user {
        let Ok(user) = user.parse::<u32>() else {
            return invalid("`user`: a pod runs as the number of a user, as in \"1000\"");
        };
        let context = main.entry("securityContext").or_insert_with(|| json!({}));
        match context.as_object_mut() {
            Some(context) => drop(context.insert("runAsUser".to_owned(), user.into())),
            None => return invalid("`securityContext` of the blueprint is no object"),
        }
    }
    variables(main, entry)?;
    probe(main, entry, pool);
    let own = main.get("resources").cloned().unwrap_or_else(|| json!({}));
    let in_use = resources(own, entry.resources.as_ref());
    let waiting = pool.and_then(|pool| pool.resources.as_ref());
    let waiting = waiting.map_or_else(|| in_use.clone(), |said| overwritten(in_use.clone(), said));
    main.insert("resources".to_owned(), waiting);
    Ok(in_use)
}

fn variables(main: &mut Map<String, Value>, entry: &Entry) -> Result<(), InvalidBlueprint> {
    if entry.env.is_empty() {
        return Ok(());
    }
    let known = main.entry("env").or_insert_with(|| json!([]));
    let Some(known) = known.as_array_mut() else {
        return invalid("`env` of the blueprint is no list");
    };
    for (name, value) in &entry.env {
        known.retain(|one| one.get("name").is_none_or(|known| known != name));
        known.push(json!({"name": name, "value": value}));
    }
    Ok(())
}

/// A sandbox is ready when its port answers.
fn probe(main: &mut Map<String, Value>, entry: &Entry, pool: Option<&Pool>) {
    if let Some(port) = entry.port {
        main.insert(
            "ports".to_owned(),
            json!([{"containerPort": port, "name": "main"}]),
        );
    }
    let tcp = |port: u16| json!({"tcpSocket": {"port": port}});
    let warm = pool
        .and_then(|pool| pool.probe_port)
        .map(|port| tcp(port.get()));
    // Without a program of its own, a member has nothing that could answer at the service's port.
    let service = entry
        .port
        .filter(|_| pool.is_none_or(|pool| pool.warmup_cmd.is_none()));
    let service = service.filter(|_| entry.no_startup_probe != Some(true));
    let ready = entry.ready_cmd.as_ref();
    let ready = ready.map(|line| json!({"exec": {"command": ["/bin/sh", "-c", line]}}));
    let probe = warm
        .or(ready)
        .or_else(|| service.map(|port| tcp(port.get())));
    match probe {
        Some(mut probe) => {
            probe["failureThreshold"] = 600.into();
            probe["periodSeconds"] = 1.into();
            probe["timeoutSeconds"] = 3.into();
            main.insert("startupProbe".to_owned(), probe);
        }
        None if entry.no_startup_probe == Some(true) => drop(main.remove("startupProbe")),
        None => {}
    }
}

/// The resources of the blueprint, with an entry's over them.
fn resources(own: Value, entry: Option<&EntryResources>) -> Value {
    match entry {
        Some(said) => overwritten(own, said),
        None => own,
    }
}

fn overwritten(mut resources: Value, said: &EntryResources) -> Value {
    let quantity = |text: Option<String>| text.map(Value::from);
    let cpu = quantity(said.cpu.clone().map(String::from));
    let memory = quantity(said.memory.clone().map(String::from));
    let cpu_limit = quantity(said.cpu_limit.clone().map(String::from));
    let memory_limit = quantity(said.memory_limit.clone().map(String::from));
    for (kind, resource, value) in [
        ("requests", "cpu", cpu),
        ("requests", "memory", memory),
        ("limits", "cpu", cpu_limit),
        ("limits", "memory", memory_limit),
    ] {
        if let Some(value) = value {
            put(&mut resources, kind, resource, value);
        }
    }
    for resource in ["cpu", "memory"] {
        let said_limit = match resource {
            "cpu" => said.cpu_limit.is_some(),
            _ => said.memory_limit.is_some(),
        };
        keep_order(&mut resources, resource, said_limit);
    }
    resources
}

/// A request is at most the limit: the entry's value stays, and values from below follow.
fn keep_order(resources: &mut Value, resource: &str, limit_stays: bool) {
    let of = |kind: &str| resources.get(kind).and_then(|of| of.get(resource)).cloned();
    let (Some(request), Some(limit)) = (of("requests"), of("limits")) else {
        return;
    };
    if nano_of(&request) > nano_of(&limit) {
        if limit_stays {
            put(resources, "requests", resource, limit);
        } else {
            put(resources, "limits", resource, request);
        }
    }
}

fn put(resources: &mut Value, kind: &str, resource: &str, value: Value) {
    if !resources.is_object() {
        *resources = json!({});
    }
    if !resources.get(kind).is_some_and(Value::is_object) {
        resources[kind] = json!({});
    }
    resources[kind][resource] = value;
}

/// Resources in use with a request's limits over them.
pub(crate) fn requested(mut resources: Value, asked: &RequestedResources) -> Value {
    let cpu = asked.cpu.map(|cpu| Value::from(cpu.to_string()));
    let memory = asked
        .memory
        .map(|memory| Value::from(format!("{}Mi", memory.0)));
    for (resource, limit) in [("cpu", cpu), ("memory", memory)] {
        if let Some(limit) = limit {
            put(&mut resources, "limits", resource, limit);
            keep_order(&mut resources, resource, true);
        }
    }
    resources
}

/// Whether resources are the same amounts, however they are written.
pub(crate) fn is_same(one: &Value, other: &Value) -> bool {
    let amounts = |of: &Value, kind: &str| -> Option<BTreeMap<String, Option<i128>>> {
        let of = of.get(kind)?.as_object()?.iter();
        Some(
            of.map(|(name, value)| (name.clone(), nano_of(value)))
                .collect(),
        )
    };
    ["requests", "limits"].iter().all(|kind| {
        amounts(one, kind).unwrap_or_default() == amounts(other, kind).unwrap_or_default()
    })
}

/// Whether a running container can get other resources: its quality of service stays, nothing is taken away, and
/// memory does not shrink.
pub(crate) fn can_become(before: &Value, after: &Value) -> bool {
    let amount = |of: &Value, kind: &str, resource: &str| nano_of(of.get(kind)?.get(resource)?);
    let pairs = ["requests", "limits"]
        .into_iter()
        .flat_map(|kind| ["cpu", "memory"].map(|resource| (kind, resource)));
    let kept = pairs.into_iter().all(|(kind, resource)| {
        amount(before, kind, resource).is_none() || amount(after, kind, resource).is_some()
    });
    let memory = |of: &Value| amount(of, "limits", "memory");
    let grows =
        memory(before).is_none_or(|before| memory(after).is_some_and(|after| after >= before));
    kept && grows && quality(before) == quality(after)
}

/// The quality of service of a pod with this container: whether it is guaranteed, and whether it has any.
fn quality(resources: &Value) -> (bool, bool) {
    let amount = |kind: &str, resource: &str| {
        let value = resources.get(kind)?.get(resource)?;
        nano_of(value).filter(|amount| *amount != 0)
    };
    let (mut guaranteed, mut any) = (true, false);
    for resource in ["cpu", "memory"] {
        let (request, limit) = (amount("requests", resource), amount("limits", resource));
        any |= request.is_some() || limit.is_some();
        // A request of zero that is written down is no limit's equal.
        let written = resources
            .get("requests")
            .and_then(|of| of.get(resource))
            .is_some();
        guaranteed &= limit.is_some() && (!written || request == limit);
    }
    (guaranteed && any, any)
}
