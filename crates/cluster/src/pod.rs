//! The properties of sandboxes that follow from their pod template.

use std::num::NonZeroU16;

use serde_json::{Map, Value};
use shoal_core::driver::Isolation;
use shoal_core::image::ImageName;
use shoal_core::quantity;
use shoal_core::quota::Amount;
use shoal_core::resources::{MilliCpu, Resources};
use shoal_core::template::RuntimeName;
use shoal_crds::kruise::quantity::nano_of;
use shoal_crds::parts::PodTemplate;

/// The name of an image that is not known: the template is a reference that was not resolved.
const UNKNOWN: &str = "unknown";

/// The main container, which is the first.
fn container(template: Option<&PodTemplate>) -> Option<&Map<String, Value>> {
    template?
        .spec
        .get("containers")?
        .as_array()?
        .first()?
        .as_object()
}

/// The image of the main container.
pub(crate) fn image(template: Option<&PodTemplate>) -> ImageName {
    let image = container(template).and_then(|container| container.get("image")?.as_str());
    let Some(image) = image.and_then(|image| image.parse().ok()) else {
        return unknown_image();
    };
    image
}

fn unknown_image() -> ImageName {
    let Ok(unknown) = UNKNOWN.parse() else {
        unreachable!("the name is valid")
    };
    unknown
}

/// The limits of the main container, its requests where it has no limits.
pub(crate) fn resources(template: Option<&PodTemplate>) -> Resources {
    let of = |name: &str| {
        let resources = container(template)?.get("resources")?;
        let limit = text(resources.get("limits"), name);
        limit.or_else(|| text(resources.get("requests"), name))
    };
    let usual = Resources::default();
    Resources {
        cpu: of("cpu")
            .and_then(|cpu| quantity::cpu(&cpu))
            .unwrap_or(usual.cpu),
        memory: of("memory")
            .and_then(|memory| quantity::memory(&memory))
            .unwrap_or(usual.memory),
        disk: of("ephemeral-storage")
            .and_then(|disk| quantity::memory(&disk))
            .unwrap_or(usual.disk),
        pids: usual.pids,
    }
}

fn text(quantities: Option<&Value>, name: &str) -> Option<String> {
    match quantities?.get(name)? {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// The pod's share of a quota: the limits of its containers, or their requests where they have no limits.
pub(crate) fn amount(template: Option<&PodTemplate>) -> Amount {
    let of = |field: &str| {
        let list = template.and_then(|template| template.spec.get(field)?.as_array());
        list.into_iter().flatten()
    };
    let stays = |container: &&Value| {
        container.get("restartPolicy").and_then(Value::as_str) == Some("Always")
    };
    let mut amount = Amount {
        sandboxes: 1,
        ..Amount::default()
    };
    for container in of("containers").chain(of("initContainers").filter(stays)) {
        amount += Amount {
            sandboxes: 0,
            cpu: rounded_up(quota_of(container, "cpu"), THOUSANDTH),
            memory: rounded_up(quota_of(container, "memory"), MEBIBYTE),
        };
    }
    amount
}

/// In the billionths of [`nano_of`].
const THOUSANDTH: i128 = 1_000_000;
const MEBIBYTE: i128 = 1_000_000_000 << 20;

fn quota_of(container: &Value, name: &str) -> i128 {
    let resources = container.get("resources");
    let value = |kind: &str| nano_of(resources?.get(kind)?.get(name)?);
    value("limits").or_else(|| value("requests")).unwrap_or(0)
}

fn rounded_up(nano: i128, unit: i128) -> u64 {
    let whole = nano.max(0).saturating_add(unit - 1) / unit;
    u64::try_from(whole).unwrap_or(u64::MAX)
}

/// The processor time that the main container requests and is limited to.
pub(crate) fn cpu(template: &PodTemplate) -> [Option<MilliCpu>; 2] {
    ["requests", "limits"].map(|kind| {
        let resources = container(Some(template))?.get("resources")?;
        quantity::cpu(&text(resources.get(kind), "cpu")?)
    })
}

/// Sets the processor time that the main container requests and is limited to, where it has such.
pub(crate) fn set_cpu(template: &mut PodTemplate, cpu: [Option<MilliCpu>; 2]) {
    let containers = template.spec.get_mut("containers");
    let container = containers.and_then(|containers| containers.get_mut(0));
    let Some(resources) = container.and_then(|container| container.get_mut("resources")) else {
        return;
    };
    for (kind, cpu) in ["requests", "limits"].into_iter().zip(cpu) {
        if let (Some(cpu), Some(known)) = (cpu, resources.get_mut(kind))
            && known.get("cpu").is_some()
        {
            known["cpu"] = cpu.to_string().into();
        }
    }
}

/// The first port of the main container.
pub(crate) fn port(template: Option<&PodTemplate>) -> Option<NonZeroU16> {
    let ports = container(template)?.get("ports")?.as_array()?;
    let port = ports.first()?.get("containerPort")?.as_u64()?;
    NonZeroU16::new(u16::try_from(port).ok()?)
}

/// The resources of the main container.
pub(crate) fn container_resources(template: Option<&PodTemplate>) -> Value {
    let resources = container(template).and_then(|container| container.get("resources"));
    resources.cloned().unwrap_or(Value::Null)
}

/// Sets the resources of the main container.
pub(crate) fn set_resources(template: &mut PodTemplate, resources: &Value) {
    let containers = template.spec.get_mut("containers");
    let container = containers.and_then(|containers| containers.get_mut(0)?.as_object_mut());
    if let Some(container) = container {
        container.insert("resources".to_owned(), resources.clone());
    }
}

/// The runtime class of the pod, or the name of the cluster's default.
pub(crate) fn runtime(template: Option<&PodTemplate>) -> RuntimeName {
    let class = template.and_then(|template| template.spec.get("runtimeClassName")?.as_str());
    let class = class.and_then(|class| class.parse().ok());
    class.unwrap_or_else(default_runtime)
}

/// The isolation of a runtime class, judged by its name: only nodes know the handler.
pub(crate) fn isolation(runtime: &RuntimeName) -> Isolation {
    match runtime.as_str() {
        "gvisor" | "runsc" | "shoal" => Isolation::UserspaceKernel,
        name if name.starts_with("kata") => Isolation::VirtualMachine,
        _ => Isolation::Namespaces,
    }
}

/// The runtime of pods that name none.
pub(crate) fn default_runtime() -> RuntimeName {
    let Ok(name) = "kubernetes".parse() else {
        unreachable!("the name is valid")
    };
    name
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use shoal_core::resources::Mib;

    use super::*;

    fn template(container: &Value) -> PodTemplate {
        serde_json::from_value(json!({"spec": {
            "runtimeClassName": "gvisor",
            "containers": [container, {"name": "other", "image": "other"}],
        }}))
        .unwrap()
    }

    #[test]
    fn the_first_container_is_what_a_sandbox_has() {
        let template = template(&json!({
            "name": "main", "image": "registry.example/app:1",
            "resources": {"requests": {"cpu": "250m", "memory": "64Mi"}, "limits": {"cpu": 2}},
        }));
        assert_eq!(image(Some(&template)).to_string(), "registry.example/app:1");
        let resources = resources(Some(&template));
        assert_eq!((resources.cpu, resources.memory), (MilliCpu(2000), Mib(64)));
        assert_eq!(runtime(Some(&template)).as_str(), "gvisor");
        assert_eq!(runtime(None).as_str(), "kubernetes");
        assert_eq!(image(None), unknown_image());
    }

    #[test]
    fn a_quota_counts_all_containers_that_stay() {
        let template: PodTemplate = serde_json::from_value(json!({"spec": {
            "containers": [
                {"resources": {"limits": {"cpu": "1.5", "memory": "1Gi"}, "requests": {"cpu": 1}}},
                {"resources": {"requests": {"cpu": "100m", "memory": 1}}},
                {"name": "unbounded"},
            ],
            "initContainers": [
                {"restartPolicy": "Always", "resources": {"limits": {"cpu": "50m"}}},
                {"resources": {"limits": {"cpu": "64"}}},
            ],
        }}))
        .unwrap();
        let amount = amount(Some(&template));
        assert_eq!(
            (amount.sandboxes, amount.cpu, amount.memory),
            (1, 1650, 1025)
        );
        assert_eq!(super::amount(None).cpu, 0);
    }

    #[test]
    fn only_processor_time_that_is_there_changes() {
        let mut template = template(&json!({
            "name": "main", "resources": {"requests": {"cpu": "250m"}, "limits": {"memory": "1Gi"}},
        }));
        assert_eq!(cpu(&template), [Some(MilliCpu(250)), None]);
        set_cpu(&mut template, [Some(MilliCpu(500)), Some(MilliCpu(900))]);
        assert_eq!(cpu(&template), [Some(MilliCpu(500)), None]);
    }
}
