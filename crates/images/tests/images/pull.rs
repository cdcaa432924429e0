#![allow(clippy::too_many_lines, reason = "a scenario reads from top to bottom")]
use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;

use serde_json::json;
use shoal_core::image::{Image, ImageError, Images, RegistryAuth};
use shoal_images::{Digest, ImageStore};
use tar::EntryType;
use tokio::net::TcpSocket;

use crate::adversary::{Adversary, Answer, Asked};
use crate::making::{
    INDEX, Packing, TestImage, file, gzip, here, image, image_of, link, noise, small, tar,
};
use crate::registry::Registry;
use crate::{Heard, NoLayerUsers, Place, name, quiet};

async fn pull(store: &ImageStore, from: &str) -> Result<Image, ImageError> {
    store.pull(name(from), None, quiet()).await
}

/// The error of an empty store for an image of an adversary.
async fn refusal(adversary: &Adversary) -> ImageError {
    let place = Place::new();
    let store = place.open();
    let error = pull(&store, &adversary.name()).await.unwrap_err();
    assert!(store.list().await.unwrap().is_empty());
    place.is_tidy().await;
    error
}

fn alice(password: &str) -> Option<RegistryAuth> {
    Some(RegistryAuth {
        username: "alice".into(),
        password: password.into(),
        aws_region: None,
    })
}

#[tokio::test]
async fn an_image_is_pulled_whole_with_its_configuration() {
    let Some(registry) = Registry::start() else {
        return;
    };
    let layers = [
        (
            tar(&[file("etc/os-release", b"one"), file("below", b"1")]),
            Packing::Gzip,
        ),
        (tar(&[file("etc/os-release", b"two")]), Packing::Zstd),
        (tar(&[file("top", b"3")]), Packing::Plain),
    ];
    let config = json!({"config": {
        "User": "1000:1000", "WorkingDir": "/work", "Env": ["PATH=/bin", "A=b"],
        "Entrypoint": ["/init"], "Cmd": ["serve", "--fast"],
    }});
    let made = image_of(&layers, &config);
    registry.push("org/app", "1", &made);
    let place = Place::new();
    let store = place.open();
    let heard = Arc::new(Heard::default());
    let from = registry.name("org/app:1");
    let pulled = store.pull(name(&from), None, heard.clone()).await.unwrap();
    assert_eq!(pulled.digest, made.config.to_string());
    assert_eq!(
        pulled.layers,
        made.diff_ids
            .iter()
            .map(Digest::to_string)
            .collect::<Vec<_>>()
    );
    assert_eq!(pulled.user.as_deref(), Some("1000:1000"));
    assert_eq!(pulled.workdir.as_deref(), Some("/work"));
    assert_eq!(pulled.env, ["PATH=/bin", "A=b"]);
    assert_eq!(
        (&*pulled.entrypoint.concat(), &*pulled.cmd.concat()),
        ("/init", "serve--fast")
    );
    assert_eq!(pulled.size_bytes, 8);
    assert_eq!(
        store.find(&name(&from)).await.unwrap(),
        Some(pulled.clone())
    );
    let dirs = store.lower_dirs(&name(&from)).unwrap();
    let read = |at: usize, path: &str| fs::read_to_string(dirs[at].join(path)).unwrap();
    assert_eq!(
        (dirs.len(), &*read(0, "top"), &*read(1, "etc/os-release")),
        (3, "3", "two")
    );
    assert_eq!(read(2, "below"), "1");
    for layer in &made.layers {
        let last = heard
            .0
            .lock()
            .iter()
            .rfind(|p| p.step == layer.short())
            .cloned()
            .unwrap();
        assert_eq!(Some(last.done), last.total);
    }
    drop(store);
    assert_eq!(place.open().list().await.unwrap(), [pulled]);
}

#[tokio::test]
async fn a_layer_in_the_store_is_not_fetched_again() {
    let base = [file("base", b"base")];
    let first = image(&[&base]);
    let second = image(&[&base, &[file("more", b"more")]]);
    let place = Place::new();
    let store = place.open();
    let one = Adversary::serving(&first, |_| None);
    let two = Adversary::serving(&second, |_| None);
    pull(&store, &one.name()).await.unwrap();
    pull(&store, &two.name()).await.unwrap();
    pull(&store, &two.name()).await.unwrap();
    assert_eq!(one.count(&first.layers[0].hex()), 1);
    assert_eq!(two.count(&first.layers[0].hex()), 0);
    assert_eq!(two.count(&second.layers[1].hex()), 1);
    assert_eq!(place.layers().len(), 2);
}

#[tokio::test]
async fn concurrent_calls_share_one_download() {
    let shared = [file("shared", &noise(300_000))];
    let first = image(&[&shared, &[file("one", b"1")]]);
    let second = image(&[&shared, &[file("two", b"2")]]);
    let one = Adversary::serving(&first, |_| None);
    let two = Adversary::serving(&second, |_| None);
    let place = Place::new();
    let store = place.open();
    let calls = (0..12).map(|n| {
        let from = if n % 3 == 0 { two.name() } else { one.name() };
        let store = store.clone();
        tokio::spawn(async move { pull(&store, &from).await })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap().unwrap();
    }
    let layer = first.layers[0].hex();
    assert_eq!(one.count(&layer) + two.count(&layer), 1);
    assert_eq!((one.count("/manifests/"), two.count("/manifests/")), (1, 1));
    assert_eq!(place.layers().len(), 3);
}

#[tokio::test]
async fn a_pull_without_waiting_callers_leaves_no_files() {
    let made = small(b"slow");
    let layer = made.layers[0].hex();
    let (reached, hold) = (
        Arc::new(tokio::sync::Notify::new()),
        std::sync::mpsc::channel::<()>(),
    );
    let (let_go, held) = (hold.0, parking_lot::Mutex::new(hold.1));
    let registry = Adversary::serving(&made, {
        let reached = Arc::clone(&reached);
        move |asked| {
            if asked.path.contains(&layer) {
                reached.notify_one();
                let _ = held.lock().recv();
            }
            None
        }
    });
    let place = Place::new();
    let store = place.open();
    let from = registry.name();
    tokio::select! {
        biased;
        _ = pull(&store, &from) => panic!("it was held"),
        () = reached.notified() => (),
    }
    drop(let_go);
    place.is_tidy().await;
    assert!(store.list().await.unwrap().is_empty());
    pull(&store, &from).await.unwrap();
}

#[tokio::test]
async fn credentials_are_required_and_checked() {
    let Some(registry) = Registry::guarded() else {
        return;
    };
    registry.push("secret", "1", &small(b"secret"));
    let place = Place::new();
    let store = place.open();
    let from = registry.name("secret:1");
    for auth in [None, alice("wrong")] {
        let error = store.pull(name(&from), auth, quiet()).await.unwrap_err();
        assert!(matches!(error, ImageError::Unauthorized(_)), "{error}");
    }
    store
        .pull(name(&from), alice("sesame"), quiet())
        .await
        .unwrap();
    // The image is present, but a caller without access to the registry may not use it.
    let error = pull(&store, &from).await.unwrap_err();
    assert!(matches!(error, ImageError::Unauthorized(_)), "{error}");
}

#[tokio::test]
async fn wrong_credentials_do_not_spoil_a_call_with_good_ones() {
    let Some(registry) = Registry::guarded() else {
        return;
    };
    registry.push("secret", "1", &small(b"secret"));
    let place = Place::new();
    let store = place.open();
    let from = registry.name("secret:1");
    let (none, wrong, good) = tokio::join!(
        store.pull(name(&from), None, quiet()),
        store.pull(name(&from), alice("wrong"), quiet()),
        store.pull(name(&from), alice("sesame"), quiet()),
    );
    assert!(none.is_err() && wrong.is_err());
    good.unwrap();
}

/// A registry that requires a token, which it issues at `/token`.
fn guarded_by_tokens(
    made: &TestImage,
    token: impl Fn(&Asked) -> Answer + Send + Sync + 'static,
) -> Adversary {
    Adversary::serving(made, move |asked| {
        if asked.path.starts_with("/token") {
            return Some(token(asked));
        }
        let realm = format!(
            "Bearer realm=\"http://{}/token\",service=\"here\"",
            asked.host
        );
        let known = asked.authorization.as_deref() == Some("Bearer t0ken");
        (!known).then(|| Answer::of(401, "{}").with("WWW-Authenticate", realm))
    })
}

#[tokio::test]
async fn a_token_is_fetched_once_for_a_pull() {
    let made = image(&[&[file("a", b"a")], &[file("b", b"b")]]);
    let registry = guarded_by_tokens(&made, |asked| {
        let alice = asked.authorization.as_deref() == Some("Basic YWxpY2U6c2VzYW1l");
        let scoped = asked.path.contains("scope=repository%3Ax%3Apull");
        if alice && scoped && asked.path.contains("service=here") {
            Answer::ok(br#"{"access_token":"t0ken"}"#)
        } else {
            Answer::of(401, "{}")
        }
    });
    let place = Place::new();
    let store = place.open();
    let pulled = store
        .pull(name(&registry.name()), alice("sesame"), quiet())
        .await;
    pulled.unwrap();
    assert_eq!(registry.count("/token"), 1);
    let from = name(&registry.name());
    for auth in [None, alice("wrong")] {
        let error = store.pull(from.clone(), auth, quiet()).await.unwrap_err();
        assert!(matches!(error, ImageError::Unauthorized(_)), "{error}");
    }
    // A token of the caller is sent as it is.
    let token = RegistryAuth {
        username: String::new(),
        password: "t0ken".into(),
        aws_region: None,
    };
    store.pull(from, Some(token), quiet()).await.unwrap();
}

#[tokio::test]
async fn keys_of_aws_are_exchanged_for_an_account_of_the_registry() {
    let Some(registry) = Registry::guarded() else {
        return;
    };
    registry.push("team/app", "1", &small(b"x"));
    // The registry accepts Alice's account, which AWS issues in this test.
    let aws = Adversary::start(|asked| {
        let signed = asked.authorization.as_deref().unwrap_or_default();
        let good = "AWS4-HMAC-SHA256 Credential=AKID/";
        let scope = "/eu-central-1/ecr/aws4_request, \
                     SignedHeaders=content-type;host;x-amz-date;x-amz-target, Signature=";
        if signed.starts_with(good) && signed.contains(scope) {
            Answer::ok(br#"{"authorizationData": [{"authorizationToken": "YWxpY2U6c2VzYW1l"}]}"#)
        } else {
            let said = r#"{"__type": "UnrecognizedClientException", "message": "it is invalid"}"#;
            Answer::of(400, said)
        }
    });
    let place = Place::new();
    let mut config = place.config();
    config.registry.aws = Some(format!("http://{}", aws.address));
    let store = ImageStore::open(config, Arc::new(NoLayerUsers)).unwrap();
    let keys = |id: &str| {
        Some(RegistryAuth {
            username: id.into(),
            password: "secret".into(),
            aws_region: Some("eu-central-1".into()),
        })
    };
    let from = name(&registry.name("team/app:1"));
    let error = store.pull(from.clone(), keys("OTHER"), quiet()).await;
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains("AWS gives no password") && error.contains("it is invalid"),
        "{error}"
    );
    store.pull(from, keys("AKID"), quiet()).await.unwrap();
}

#[tokio::test]
async fn a_missing_image_is_not_found() {
    let Some(registry) = Registry::start() else {
        return;
    };
    registry.push("there", "1", &small(b"x"));
    let place = Place::new();
    let store = place.open();
    let missing = Digest::of(b"missing");
    for from in ["elsewhere:1", "there:2", &format!("there@{missing}")] {
        let error = pull(&store, &registry.name(from)).await.unwrap_err();
        assert!(matches!(error, ImageError::NotFound(_)), "{from}: {error}");
    }
    let error = pull(&store, "UPPER/case").await.unwrap_err();
    assert!(matches!(error, ImageError::Refused { .. }), "{error}");
}

/// A closed port. The bound socket, which does not listen, reserves its number.
fn closed() -> (TcpSocket, SocketAddr) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}

#[tokio::test]
async fn a_registry_that_does_not_answer_is_unreachable() {
    let (_closed, address) = closed();
    let address = address.to_string();
    let place = Place::new();
    let store = place.open();
    match pull(&store, &format!("{address}/x")).await.unwrap_err() {
        ImageError::Unreachable { registry, detail } => {
            assert_eq!(registry, address);
            assert!(detail.contains("refused"), "{detail}");
        }
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn what_passes_is_tried_again() {
    let made = small(&noise(100_000));
    let layer = made.layers[0].hex();
    let whole = made.blobs[&made.layers[0]].clone();
    let registry = Adversary::serving(&made, move |asked| match asked.before {
        0 if asked.path.contains("/manifests/") => Some(Answer::of(503, "")),
        0 if asked.path.contains(&layer) => Some(Answer::of(429, "")),
        1 if asked.path.contains(&layer) => Some(Answer::ok(whole.clone()).cut_after(50_000)),
        _ => None,
    });
    let place = Place::new();
    let store = place.open();
    pull(&store, &registry.name()).await.unwrap();
    assert_eq!(registry.count(&made.layers[0].hex()), 3);
    place.is_tidy().await;
}

#[tokio::test]
async fn a_connection_that_always_breaks_is_given_up() {
    let made = small(&noise(100_000));
    let layer = made.layers[0];
    let whole = made.blobs[&layer].clone();
    let registry = Adversary::serving(&made, move |asked| {
        let cut = Answer::ok(whole.clone()).cut_after(50_000);
        asked.path.contains(&layer.hex()).then_some(cut)
    });
    let error = refusal(&registry).await;
    assert!(matches!(error, ImageError::Unreachable { .. }), "{error}");
    assert_eq!(registry.count(&layer.hex()), 3);
}

#[tokio::test]
async fn the_variant_for_this_machine_is_chosen_from_an_index() {
    let Some(registry) = Registry::start() else {
        return;
    };
    let (mine, other) = (small(b"mine"), small(b"other"));
    let entry = |made: &TestImage, architecture: &str| {
        let mut entry = made.entry();
        entry["platform"] = json!({"os": "linux", "architecture": architecture});
        entry
    };
    let index = |entries: &[serde_json::Value]| {
        json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": entries}).to_string()
    };
    registry.push("multi", "mine", &mine);
    registry.push("multi", "other", &other);
    let both = index(&[entry(&other, "s390x"), entry(&mine, here())]);
    registry.push_manifest("multi", "both", INDEX, both.as_bytes());
    let foreign = index(&[entry(&other, "s390x")]);
    registry.push_manifest("multi", "foreign", INDEX, foreign.as_bytes());
    let place = Place::new();
    let store = place.open();
    let pulled = pull(&store, &registry.name("multi:both")).await.unwrap();
    assert_eq!(pulled.digest, mine.config.to_string());
    let by_digest = format!("multi@{}", Digest::of(both.as_bytes()));
    pull(&store, &registry.name(&by_digest)).await.unwrap();
    let error = pull(&store, &registry.name("multi:foreign"))
        .await
        .unwrap_err();
    assert!(
        matches!(error, ImageError::WrongArchitecture(..)),
        "{error}"
    );
    let single = image_of(
        &[(tar(&[]), Packing::Gzip)],
        &json!({"architecture": "s390x"}),
    );
    registry.push("multi", "single", &single);
    let error = pull(&store, &registry.name("multi:single"))
        .await
        .unwrap_err();
    assert!(
        matches!(error, ImageError::WrongArchitecture(..)),
        "{error}"
    );
}

#[tokio::test]
async fn a_damaged_layer_in_a_real_registry_is_corrupt() {
    let Some(registry) = Registry::start() else {
        return;
    };
    let made = small(&noise(200_000));
    registry.push("x", "1", &made);
    let stored = registry.stored(&made.layers[0]);
    let whole = fs::read(&stored).unwrap();
    let mut flipped = whole.clone();
    flipped[100_000] ^= 1;
    let longer = [&whole[..], b"more"].concat();
    let place = Place::new();
    let store = place.open();
    for bytes in [&flipped[..], &whole[..150_000], b"", &longer] {
        fs::write(&stored, bytes).unwrap();
        let error = pull(&store, &registry.name("x:1")).await.unwrap_err();
        assert!(matches!(error, ImageError::Corrupt { .. }), "{error}");
        place.is_tidy().await;
        assert!(place.layers().is_empty());
    }
    fs::remove_file(&stored).unwrap();
    let error = pull(&store, &registry.name("x:1")).await.unwrap_err();
    assert!(matches!(error, ImageError::Corrupt { .. }), "{error}");
    fs::write(&stored, whole).unwrap();
    pull(&store, &registry.name("x:1")).await.unwrap();
}

#[tokio::test]
async fn every_blob_is_checked_against_its_digest() {
    let made = small(b"good");
    let other = small(b"evil");
    let evil_layer = other.blobs[&other.layers[0]].clone();
    let (config, layer) = (made.config.to_string(), made.layers[0].to_string());
    let evil_config = other.blobs[&other.config].clone();
    let with_config = Adversary::serving(&made, move |asked| {
        asked
            .path
            .ends_with(&config)
            .then(|| Answer::ok(evil_config.clone()))
    });
    let with_layer = Adversary::serving(&made, move |asked| {
        asked
            .path
            .ends_with(&layer)
            .then(|| Answer::ok(evil_layer.clone()))
    });
    for registry in [with_config, with_layer] {
        let error = refusal(&registry).await;
        assert!(matches!(error, ImageError::Corrupt { .. }), "{error}");
    }
    // The digest of the content is right, but the configuration lists another uncompressed digest.
    let mut lying = made.clone();
    let archive = tar(&[file("content", b"evil")]);
    let text = String::from_utf8(lying.blobs[&made.config].clone()).unwrap();
    let bytes = text
        .replace(&made.diff_ids[0].hex(), &Digest::of(b"else").hex())
        .into_bytes();
    assert_ne!(Digest::of(&archive), made.diff_ids[0]);
    let manifest = String::from_utf8(lying.manifest.clone()).unwrap();
    lying.manifest = manifest
        .replace(&made.config.hex(), &Digest::of(&bytes).hex())
        .into_bytes();
    lying.blobs.insert(Digest::of(&bytes), bytes);
    let error = refusal(&Adversary::serving(&lying, |_| None)).await;
    assert!(error.to_string().contains("unpacks to"), "{error}");
}

#[tokio::test]
async fn a_manifest_requested_by_digest_must_match_it() {
    let (made, other) = (small(b"good"), small(b"evil"));
    let registry = Adversary::serving(&other, |_| None);
    let place = Place::new();
    let store = place.open();
    let from = format!("{}@{}", registry.name(), made.digest());
    let error = pull(&store, &from).await.unwrap_err();
    assert!(matches!(error, ImageError::Corrupt { .. }), "{error}");
}

#[tokio::test]
async fn endless_answers_are_cut_off() {
    let made = small(b"x");
    let endless = || Answer::ok(vec![b' '; 9 << 20]);
    let with_token = guarded_by_tokens(&made, move |_| endless());
    let with = |part: &'static str| {
        Adversary::serving(&made, move |asked| asked.path.contains(part).then(endless))
    };
    for registry in [with_token, with("/manifests/"), with("/blobs/")] {
        let error = refusal(&registry).await;
        assert!(matches!(error, ImageError::Refused { .. }), "{error}");
    }
}

#[tokio::test]
async fn a_token_that_cannot_be_sent_on_is_refused() {
    let registry = guarded_by_tokens(&small(b"x"), |_| Answer::ok(br#"{"token":"a\r\nX: y"}"#));
    let error = refusal(&registry).await;
    assert!(matches!(error, ImageError::Unauthorized(_)), "{error}");
}

#[tokio::test]
async fn hostile_layers_are_refused_and_leave_no_files() {
    let devices = link(EntryType::Char, "etc/sda", "");
    let layers = [
        tar(&[file("../escaped", b"x")]),
        tar(&[
            link(EntryType::Symlink, "l", "/tmp"),
            file("l/escaped", b"x"),
        ]),
        tar(&[link(EntryType::Link, "passwd", "/etc/passwd")]),
        tar(&[link(
            EntryType::Link,
            "passwd",
            "../../../../../../etc/passwd",
        )]),
        tar(&[devices]),
        tar(&[file("bomb", &vec![0; 9 << 20])]),
    ];
    let good = (tar(&[file("good", b"x")]), Packing::Gzip);
    for layer in layers {
        let made = image_of(&[good.clone(), (layer, Packing::Gzip)], &json!({}));
        let registry = Adversary::serving(&made, |_| None);
        let place = Place::new();
        let store = place.open();
        let error = pull(&store, &registry.name()).await.unwrap_err();
        assert!(matches!(error, ImageError::Refused { .. }), "{error}");
        place.is_tidy().await;
        assert!(place.layers().is_empty(), "{error}");
    }
}

#[tokio::test]
async fn an_image_that_is_too_large_in_total_is_refused() {
    let layers: Vec<_> = (0..3_u8)
        .map(|n| {
            (
                tar(&[file("part", &[noise(5 << 20), vec![n]].concat())]),
                Packing::Gzip,
            )
        })
        .collect();
    let made = image_of(&layers, &json!({}));
    let place = Place::new();
    let store = place.open();
    let registry = Adversary::serving(&made, |_| None);
    let error = pull(&store, &registry.name()).await.unwrap_err();
    assert!(matches!(error, ImageError::Refused { .. }), "{error}");
    place.is_tidy().await;
    assert!(place.layers().is_empty());
}

#[tokio::test]
async fn a_layer_longer_than_announced_is_not_read_on() {
    let made = small(b"x");
    let layer = made.layers[0].to_string();
    let registry = Adversary::serving(&made, move |asked| {
        let longer = || Answer::ok([gzip(b"").repeat(1000), noise(1 << 20)].concat());
        asked.path.ends_with(&layer).then(longer)
    });
    let error = refusal(&registry).await;
    assert!(matches!(error, ImageError::Corrupt { .. }), "{error}");
}

#[tokio::test]
async fn a_registry_may_redirect_to_its_storage() {
    let made = small(b"moved");
    let (layer, bytes) = (
        made.layers[0].to_string(),
        made.blobs[&made.layers[0]].clone(),
    );
    let storage = Adversary::start(move |asked| {
        // Credentials are not sent along with a redirect.
        if asked.authorization.is_some() {
            Answer::of(400, "")
        } else {
            Answer::ok(bytes.clone())
        }
    });
    let elsewhere = format!("http://{}/data", storage.address);
    let registry = Adversary::serving(&made, move |asked| {
        if asked.authorization.is_none() {
            return Some(Answer::of(401, "").with("WWW-Authenticate", "Basic realm=\"x\""));
        }
        let sent = || Answer::of(307, "").with("Location", elsewhere.clone());
        asked.path.ends_with(&layer).then(sent)
    });
    let place = Place::new();
    let store = place.open();
    store
        .pull(name(&registry.name()), alice("sesame"), quiet())
        .await
        .unwrap();
    assert_eq!(storage.count("/data"), 1);
}

#[tokio::test]
async fn a_tenant_cannot_probe_listeners_on_this_machine() {
    let adversary = Adversary::start(|_| Answer::of(404, ""));
    let (_closed, address) = closed();
    let closed = address.port();
    let open = adversary.address.rsplit_once(':').unwrap().1.to_owned();
    let place = Place::new();
    let store = place.open();
    let mut told = Vec::new();
    for host in ["127.0.0.1", "localhost", "127.1", "2130706433"] {
        for port in [open.as_str(), &closed.to_string()] {
            let from = name(&format!("{host}:{port}/x"));
            let error = store.pull_public(from, None, quiet()).await.unwrap_err();
            assert!(matches!(error, ImageError::Unreachable { .. }), "{error}");
            let error = error.to_string();
            told.push(error.replace(&format!("{host}:{port}"), "HOST"));
        }
    }
    told.dedup();
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(adversary.count(""), 0);
    // Registries that the operator listed are contacted.
    let place = Place::new();
    let mut config = place.config();
    config.registry.private = vec![adversary.address.clone()];
    let store = ImageStore::open(config, Arc::new(NoLayerUsers)).unwrap();
    let from = name(&adversary.name());
    let error = store.pull_public(from, None, quiet()).await.unwrap_err();
    assert!(matches!(error, ImageError::NotFound(_)), "{error}");
    assert!(adversary.count("") > 0);
}

#[tokio::test]
async fn a_tenant_starts_no_bootstrap() {
    let place = Place::new();
    let suite = name("mmdebstrap:bookworm");
    let error = place.open().pull_public(suite, None, quiet()).await;
    let error = error.unwrap_err();
    assert!(matches!(error, ImageError::Refused { .. }), "{error}");
}
