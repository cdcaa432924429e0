use super::*;
use serde_json::{Value, json};

fn descriptor(media_type: &str) -> Value {
    json!({"mediaType": media_type, "digest": Digest::of(b"x"), "size": 1})
}

fn document(value: &Value) -> Result<Document, Fault> {
    Document::parse(value.to_string().as_bytes())
}

fn plan(configuration: &Value, layers: usize) -> Result<Plan, Fault> {
    let blob = Blob {
        name: "layer.tar".into(),
        digest: None,
        size: 1,
    };
    let text = configuration.to_string();
    Plan::new(Digest::of(b"c"), text.as_bytes(), vec![blob; layers])
}

#[test]
fn a_manifest_is_recognised_by_its_fields() {
    let image = json!({"schemaVersion": 2, "config": descriptor("c"), "layers": []});
    assert!(matches!(document(&image), Ok(Document::Manifest(_))));
    let index = json!({"schemaVersion": 2, "manifests": []});
    assert!(matches!(document(&index), Ok(Document::Index(_))));
    let both = json!({"config": descriptor("c"), "layers": [], "manifests": []});
    for (bad, refused) in [
        (both, false),
        (json!({"schemaVersion": 2}), false),
        (json!([]), false),
        (json!({"schemaVersion": 1, "fsLayers": []}), true),
    ] {
        let fault = document(&bad).unwrap_err();
        assert_eq!(matches!(fault, Fault::Refused(_)), refused, "{bad}");
    }
}

#[test]
fn the_entry_for_this_machine_is_chosen() {
    let entry = |os: &str, arch: &str, content: &[u8]| {
        json!({
            "digest": Digest::of(content), "size": 1,
            "platform": {"os": os, "architecture": arch},
        })
    };
    let entries = |list: Vec<Value>| -> Vec<IndexEntry> {
        serde_json::from_value(Value::Array(list)).unwrap()
    };
    let all = entries(vec![
        entry("unknown", "unknown", b"attestation"),
        entry("windows", architecture(), b"windows"),
        entry("linux", "s390x", b"mainframe"),
        entry("linux", architecture(), b"here"),
    ]);
    assert_eq!(choose(&all).unwrap().digest, Digest::of(b"here"));
    assert!(matches!(
        choose(&all[..3]),
        Err(Fault::WrongArchitecture(_))
    ));
    assert!(matches!(choose(&[]), Err(Fault::WrongArchitecture(_))));
    let silent = entries(vec![descriptor("m")]);
    assert!(choose(&silent).is_ok());
}

#[test]
fn a_configuration_defines_how_processes_start() {
    let configuration = json!({
        "architecture": architecture(), "os": "linux",
        "config": {"User": "app", "Env": ["A=b"], "Cmd": ["sh"], "Entrypoint": null},
        "rootfs": {"type": "layers", "diff_ids": [Digest::of(b"l")]},
        "history": [{"empty_layer": true}],
    });
    let plan = plan(&configuration, 1).unwrap();
    assert_eq!(plan.settings.user, "app");
    assert_eq!(plan.settings.cmd, ["sh"]);
    assert!(plan.settings.entrypoint.is_empty() && plan.settings.working_dir.is_empty());
    assert_eq!(plan.layers[0].diff_id, Digest::of(b"l"));
}

#[test]
fn a_configuration_that_does_not_match_its_layers_is_refused() {
    let diff_ids = |n: usize| json!({"diff_ids": vec![Digest::of(b"l"); n]});
    let silent = json!({"config": null, "rootfs": diff_ids(1)});
    assert!(plan(&silent, 1).is_ok());
    assert!(matches!(plan(&silent, 2), Err(Fault::Corrupt(_))));
    assert!(matches!(plan(&json!({}), 1), Err(Fault::Refused(_))));
    let none = json!({"rootfs": diff_ids(0)});
    assert!(matches!(plan(&none, 0), Err(Fault::Refused(_))));
    let many = json!({"rootfs": diff_ids(128)});
    assert!(matches!(plan(&many, 128), Err(Fault::Refused(_))));
    let elsewhere = json!({"architecture": "s390x", "rootfs": diff_ids(1)});
    assert!(matches!(
        plan(&elsewhere, 1),
        Err(Fault::WrongArchitecture(_))
    ));
}

#[test]
fn foreign_and_encrypted_layers_are_refused() {
    let manifest = |media_type: &str| {
        let value = json!({"config": descriptor("c"), "layers": [descriptor(media_type)]});
        serde_json::from_value::<Manifest>(value).unwrap()
    };
    for media_type in [
        "application/vnd.oci.image.layer.v1.tar+gzip+encrypted",
        "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip",
    ] {
        let refused = manifest(media_type).blobs();
        assert!(matches!(refused, Err(Fault::Refused(_))), "{media_type}");
    }
    let layer = manifest("application/vnd.oci.image.layer.v1.tar+zstd");
    assert_eq!(layer.blobs().unwrap()[0].digest, Some(Digest::of(b"x")));
}
