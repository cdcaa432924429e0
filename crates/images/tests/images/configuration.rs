//! Image configurations, read without a pull.

use serde_json::json;
use shoal_core::image::{ImageConfig, ImageConfigs, ImageError, Images, Reach, RegistryAuth};
use shoal_images::{Digest, RegistryConfig, RemoteConfigs};

use crate::adversary::{Adversary, Answer};
use crate::making::{Packing, file, image_of, small, tar};
use crate::registry::Registry;
use crate::{Place, name, quiet};

async fn read(from: &str, reach: Reach) -> Result<ImageConfig, ImageError> {
    let remote = RemoteConfigs::new(RegistryConfig {
        attempts: 1,
        ..RegistryConfig::default()
    });
    remote.read_config(name(from), None, reach).await
}

#[tokio::test]
async fn a_configuration_is_read_from_a_registry_without_its_layers() {
    let Some(registry) = Registry::start() else {
        return;
    };
    let layers = [
        (tar(&[file("below", b"1")]), Packing::Gzip),
        (tar(&[file("top", b"2")]), Packing::Plain),
    ];
    let settings = json!({"config": {
        "User": "1000:1000", "WorkingDir": "/work", "Env": ["PATH=/bin", "A=b"],
        "Entrypoint": ["/init"], "Cmd": ["serve", "--fast"],
    }});
    let made = image_of(&layers, &settings);
    registry.push("org/app", "1", &made);
    let from = registry.name("org/app:1");
    let config = read(&from, Reach::Anywhere).await.unwrap();
    let sizes = made.layers.iter().map(|layer| made.blobs[layer].len());
    let expected = ImageConfig {
        digest: made.config.to_string(),
        layers: made.diff_ids.iter().map(Digest::to_string).collect(),
        download_bytes: sizes.sum::<usize>() as u64,
        user: Some("1000:1000".to_owned()),
        workdir: Some("/work".to_owned()),
        env: vec!["PATH=/bin".to_owned(), "A=b".to_owned()],
        entrypoint: vec!["/init".to_owned()],
        cmd: vec!["serve".to_owned(), "--fast".to_owned()],
    };
    assert_eq!(config, expected);

    // The store reads the same, and a pull brings what the configuration says.
    let place = Place::new();
    let store = place.open();
    let of_store = store.read_config(name(&from), None, Reach::Anywhere).await;
    assert_eq!(of_store.unwrap(), expected);
    assert!(store.list().await.unwrap().is_empty(), "nothing is stored");
    let pulled = store.pull(name(&from), None, quiet()).await.unwrap();
    assert_eq!(
        (pulled.digest, pulled.layers),
        (expected.digest, expected.layers)
    );
    let missing = read(&registry.name("org/other:1"), Reach::Anywhere).await;
    assert!(
        matches!(missing, Err(ImageError::NotFound(_))),
        "{missing:?}"
    );
}

#[tokio::test]
async fn no_layer_is_requested_and_every_document_is_checked() {
    let made = small(b"content");
    let honest = Adversary::serving(&made, |_| None);
    let config = read(&honest.name(), Reach::Anywhere).await.unwrap();
    assert_eq!(config.digest, made.config.to_string());
    for layer in &made.layers {
        assert_eq!(honest.count(&layer.hex()), 0, "layers stay in the registry");
    }
    let digest = made.config.hex();
    let liar = Adversary::serving(&made, move |asked| {
        let is_config = asked.path.ends_with(&digest);
        is_config.then(|| Answer::ok(br#"{"config":{"User":"root"}}"#.to_vec()))
    });
    let refused = read(&liar.name(), Reach::Anywhere).await;
    assert!(
        matches!(refused, Err(ImageError::Corrupt { .. })),
        "{refused:?}"
    );
}

#[tokio::test]
async fn a_tenant_reads_no_configuration_from_an_address_of_this_network() {
    let made = small(b"content");
    let inside = Adversary::serving(&made, |_| None);
    let refused = read(&inside.name(), Reach::Public).await.unwrap_err();
    assert!(
        matches!(refused, ImageError::Unreachable { .. }),
        "{refused}"
    );
    assert_eq!(inside.count("/"), 0, "no request is sent");
    let listed = RemoteConfigs::new(RegistryConfig {
        private: vec![inside.address.clone()],
        ..RegistryConfig::default()
    });
    let read = listed.read_config(name(&inside.name()), None, Reach::Public);
    assert!(read.await.is_ok(), "unless the operator lists it");
}

#[tokio::test]
async fn credentials_are_needed_where_the_registry_wants_them() {
    let Some(registry) = Registry::guarded() else {
        return;
    };
    registry.push("secret", "1", &small(b"secret"));
    let remote = RemoteConfigs::default();
    let with = async |password: Option<&str>| {
        let auth = password.map(|password| RegistryAuth {
            username: "alice".to_owned(),
            password: password.to_owned(),
            aws_region: None,
        });
        let from = name(&registry.name("secret:1"));
        remote.read_config(from, auth, Reach::Anywhere).await
    };
    for password in [None, Some("wrong")] {
        let refused = with(password).await;
        assert!(
            matches!(refused, Err(ImageError::Unauthorized(_))),
            "{refused:?}"
        );
    }
    assert!(with(Some("sesame")).await.is_ok());
}

#[tokio::test]
async fn an_image_of_packages_has_no_configuration_to_read() {
    let refused = read("mmdebstrap:bookworm", Reach::Anywhere).await;
    assert!(
        matches!(refused, Err(ImageError::Refused { .. })),
        "{refused:?}"
    );
}
