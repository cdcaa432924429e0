//! Adds the daemon to a pod whose image does not have it.

use serde_json::{Map, Value, json};
use shoal_checkpoint::{DAEMON_INIT, DAEMON_PLACE, DAEMON_PROGRAM, DAEMON_VOLUME};
use shoal_crds::kruise::RuntimeRef;
use shoal_crds::kruise::names::runtime::AGENT_RUNTIME;
use shoal_protocol::pass::{DIGEST_VARIABLE, InitSecret};

/// The volume that holds the daemon, and the init container that puts it there.
const VOLUME: &str = DAEMON_VOLUME;
const CONTAINER: &str = DAEMON_INIT;
/// The volume in containers, and the program in it.
const PLACE: &str = DAEMON_PLACE;
const PROGRAM: &str = DAEMON_PROGRAM;

/// When pods get the daemon, and from which image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RuntimeInjection {
    /// Whether all pods get it, and not only those of sandboxes that ask for it.
    pub(crate) always: bool,
    /// The image with the daemon. Empty if there is none.
    pub(crate) image: String,
    /// From which sandboxes have their passes.
    pub(crate) secret: Option<InitSecret>,
}

impl RuntimeInjection {
    /// Adds the daemon to the specification of a sandbox's pod, if it needs it. With `by_runtime`, the runtime starts it,
    /// in the container whose name is the result.
    pub(super) fn apply(
        &self,
        spec: &mut Map<String, Value>,
        runtimes: &[RuntimeRef],
        sandbox_uid: &str,
        by_runtime: bool,
    ) -> Result<Option<String>, String> {
        let asked = runtimes.iter().any(|runtime| runtime.name == AGENT_RUNTIME);
        if !(asked || self.always) || has_own(spec) {
            return Ok(None);
        }
        if self.image.is_empty() {
            return Err(format!(
                "the sandbox needs the runtime {AGENT_RUNTIME:?}, and its template has no init container \
                 {CONTAINER:?}; start the operator with --runtime-image"
            ));
        }
        let Some(first) = spec
            .get_mut("containers")
            .and_then(Value::as_array_mut)
            .and_then(|containers| containers.first_mut())
            .and_then(Value::as_object_mut)
        else {
            return Err("the template has no container".to_owned());
        };
        let name = first.get("name").and_then(Value::as_str);
        let name = name.filter(|_| by_runtime).map(str::to_owned);
        if !by_runtime {
            start_daemon(first)?;
        }
        if let Some(secret) = &self.secret {
            let digest = secret.pass(sandbox_uid).digest();
            set_variable(first, DIGEST_VARIABLE, &digest.to_string())?;
        }
        push(
            first,
            "volumeMounts",
            json!({"name": VOLUME, "mountPath": PLACE, "readOnly": true}),
        )?;
        let init = json!({
            "name": CONTAINER,
            "image": self.image,
            "command": ["/shoal-envd", "install", PROGRAM],
            "volumeMounts": [{"name": VOLUME, "mountPath": PLACE}],
            "resources": resources(first),
            "securityContext": {
                "allowPrivilegeEscalation": false,
                "readOnlyRootFilesystem": true,
                "capabilities": {"drop": ["ALL"]},
            },
        });
        push(spec, "initContainers", init)?;
        push(spec, "volumes", json!({"name": VOLUME, "emptyDir": {}}))?;
        Ok(name)
    }
}

/// Whether the template brings a runtime of its own.
fn has_own(spec: &Map<String, Value>) -> bool {
    let of = |list: &str| {
        spec.get(list)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
    };
    let mounts = |container: &Value| {
        let mounts = container.get("volumeMounts").and_then(Value::as_array);
        mounts
            .into_iter()
            .flatten()
            .any(|mount| mount.get("name").and_then(Value::as_str) == Some(VOLUME))
    };
    of("initContainers")
        .any(|container| container.get("name").and_then(Value::as_str) == Some(CONTAINER))
        || of("containers").any(mounts)
}

/// The daemon starts after the container. A command that the template runs then follows it.
fn start_daemon(container: &mut Map<String, Value>) -> Result<(), String> {
    let lifecycle = container.entry("lifecycle").or_insert_with(|| json!({}));
    let hook = lifecycle.get("postStart").filter(|hook| !hook.is_null());
    let mut command = vec![Value::from(PROGRAM), Value::from("start")];
    if let Some(hook) = hook {
        let before = hook.pointer("/exec/command").and_then(Value::as_array);
        let Some(before) = before else {
            return Err(
                "the runtime starts in postStart, and the template has a hook there that is no command"
                    .to_owned(),
            );
        };
        command.push("--".into());
        command.extend(before.iter().cloned());
    }
    match lifecycle.as_object_mut() {
        Some(lifecycle) => {
            lifecycle.insert(
                "postStart".to_owned(),
                json!({"exec": {"command": command}}),
            );
            Ok(())
        }
        None => Err("lifecycle of the first container is no object".to_owned()),
    }
}

/// Sets a variable of the container, in place of one of the template.
fn set_variable(container: &mut Map<String, Value>, name: &str, value: &str) -> Result<(), String> {
    if let Some(present) = container.get_mut("env").and_then(Value::as_array_mut) {
        present.retain(|variable| variable.get("name").and_then(Value::as_str) != Some(name));
    }
    push(container, "env", json!({"name": name, "value": value}))
}

/// The resources of the init container. Those of the first container keep the pod's quality of service, and
/// need no room of their own: init containers end before.
fn resources(container: &Map<String, Value>) -> Value {
    let mut resources = Map::new();
    for kind in ["requests", "limits"] {
        let given = container
            .get("resources")
            .and_then(|resources| resources.get(kind))
            .and_then(Value::as_object);
        let taken: Map<String, Value> = given
            .into_iter()
            .flatten()
            .filter(|(name, _)| ["cpu", "memory"].contains(&name.as_str()))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        if !taken.is_empty() {
            resources.insert(kind.to_owned(), taken.into());
        }
    }
    resources.into()
}

fn push(object: &mut Map<String, Value>, list: &str, entry: Value) -> Result<(), String> {
    let entries = object.entry(list).or_insert_with(|| json!([]));
    if entries.is_null() {
        *entries = json!([]);
    }
    entries
        .as_array_mut()
        .map(|entries| entries.push(entry))
        .ok_or_else(|| format!("{list} of the template is no list"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn injection(always: bool) -> RuntimeInjection {
        RuntimeInjection {
            always,
            image: "example.org/shoal:1".to_owned(),
            secret: None,
        }
    }

    fn asked() -> Vec<RuntimeRef> {
        vec![RuntimeRef {
            name: AGENT_RUNTIME.to_owned(),
        }]
    }

    fn pod(container: Value) -> Map<String, Value> {
        let Value::Object(spec) = json!({"containers": [container, {"name": "second"}]}) else {
            panic!("an object");
        };
        spec
    }

    fn injected(container: Value) -> Value {
        let mut spec = pod(container);
        injection(false)
            .apply(&mut spec, &asked(), "uid", false)
            .unwrap();
        spec.into()
    }

    #[test]
    fn the_first_container_gets_the_daemon() {
        let limits = json!({"cpu": "1", "memory": "1Gi", "example.org/gpu": 1});
        let spec = injected(json!({"name": "first", "resources": {"limits": limits}}));
        assert_eq!(
            spec["volumes"],
            json!([{"name": "shoal-runtime", "emptyDir": {}}])
        );
        let init = &spec["initContainers"][0];
        assert_eq!(init["name"], "runtime");
        assert_eq!(init["image"], "example.org/shoal:1");
        assert_eq!(
            init["command"],
            json!(["/shoal-envd", "install", "/shoal-runtime/shoal-envd"])
        );
        assert_eq!(
            init["resources"],
            json!({"limits": {"cpu": "1", "memory": "1Gi"}})
        );
        let first = &spec["containers"][0];
        assert_eq!(
            first["volumeMounts"],
            json!([{"name": "shoal-runtime", "mountPath": "/shoal-runtime", "readOnly": true}])
        );
        assert_eq!(
            first["lifecycle"]["postStart"]["exec"]["command"],
            json!(["/shoal-runtime/shoal-envd", "start"])
        );
        assert_eq!(spec["containers"][1], json!({"name": "second"}));
    }

    #[test]
    fn the_first_container_knows_the_digest_of_the_sandboxs_pass() {
        let secret = InitSecret::new([3; 32]);
        let with_secret = RuntimeInjection {
            secret: Some(secret.clone()),
            ..injection(false)
        };
        let forged =
            json!([{"name": "A", "value": "b"}, {"name": DIGEST_VARIABLE, "value": "forged"}]);
        let mut spec = pod(json!({"name": "first", "env": forged}));
        with_secret
            .apply(&mut spec, &asked(), "uid", false)
            .unwrap();
        let digest = secret.pass("uid").digest().to_string();
        assert_eq!(
            spec["containers"][0]["env"],
            json!([{"name": "A", "value": "b"}, {"name": DIGEST_VARIABLE, "value": digest}])
        );
        assert_eq!(spec["containers"][1], json!({"name": "second"}));
    }

    #[test]
    fn the_runtime_may_start_the_daemon_in_place_of_a_hook() {
        let mut spec = pod(json!({"name": "first"}));
        let started = injection(false).apply(&mut spec, &asked(), "uid", true);
        assert_eq!(started, Ok(Some("first".to_owned())));
        assert_eq!(spec["containers"][0].get("lifecycle"), None);
        assert_eq!(spec["initContainers"][0]["name"], "runtime");
    }

    #[test]
    fn a_command_of_the_template_runs_after_the_daemon_has_started() {
        let hook = json!({"postStart": {"exec": {"command": ["sh", "-c", "true"]}}, "preStop": {"sleep": {"seconds": 1}}});
        let spec = injected(json!({"name": "first", "lifecycle": hook}));
        let lifecycle = &spec["containers"][0]["lifecycle"];
        assert_eq!(
            lifecycle["postStart"]["exec"]["command"],
            json!([
                "/shoal-runtime/shoal-envd",
                "start",
                "--",
                "sh",
                "-c",
                "true"
            ])
        );
        assert_eq!(lifecycle["preStop"], json!({"sleep": {"seconds": 1}}));
    }

    #[test]
    fn another_hook_is_refused() {
        let mut spec = pod(json!({"lifecycle": {"postStart": {"httpGet": {"port": 1}}}}));
        let refused = injection(false)
            .apply(&mut spec, &asked(), "uid", false)
            .unwrap_err();
        assert!(refused.contains("postStart"), "{refused}");
    }

    #[test]
    fn only_sandboxes_that_ask_get_it_unless_all_do() {
        let untouched = pod(json!({"name": "first"}));
        let mut spec = untouched.clone();
        injection(false)
            .apply(&mut spec, &[], "uid", false)
            .unwrap();
        assert_eq!(spec, untouched);
        injection(true).apply(&mut spec, &[], "uid", false).unwrap();
        assert!(spec.contains_key("initContainers"));
    }

    #[test]
    fn a_template_with_a_runtime_stays_as_it_is() {
        let mut own = pod(json!({"name": "first"}));
        own.insert("initContainers".to_owned(), json!([{"name": "runtime"}]));
        let mounted = pod(json!({"volumeMounts": [{"name": "shoal-runtime", "mountPath": "/x"}]}));
        for untouched in [own, mounted] {
            let mut spec = untouched.clone();
            injection(true)
                .apply(&mut spec, &asked(), "uid", false)
                .unwrap();
            assert_eq!(spec, untouched);
        }
    }

    #[test]
    fn without_an_image_the_message_names_the_flag() {
        let mut spec = pod(json!({"name": "first"}));
        let refused = RuntimeInjection::default()
            .apply(&mut spec, &asked(), "uid", false)
            .unwrap_err();
        assert!(refused.contains("--runtime-image"), "{refused}");
    }
}
