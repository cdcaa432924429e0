use serde_json::json;

use super::*;

fn read(body: serde_json::Value) -> Result<Plan, String> {
    let body = serde_json::from_value(body).unwrap();
    plan_of(body).map_err(|error| error.message().to_owned())
}

#[test]
fn what_the_sdks_send_is_a_plan_of_one_stage() {
    let plan = read(json!({
        "fromImage": "ubuntu:22.04", "force": false, "startCmd": "sleep 1", "readyCmd": "",
        "steps": [
            {"type": "COPY", "args": ["f", "/tmp/f", "", ""], "filesHash": "0".repeat(64)},
            {"type": "RUN", "args": ["echo hi"]}, {"type": "ENV", "args": ["A", "1", "B", ""]},
            {"type": "USER", "args": ["me", "true"]},
        ],
    }));
    let plan = plan.unwrap();
    assert_eq!(
        (plan.stages.len(), plan.ready, plan.start),
        (1, None, Some("sleep 1".into()))
    );
    assert_eq!(plan.stages[0].steps.len(), 4);
}

#[test]
fn an_argument_is_a_variable_and_an_addition_a_copy() {
    let plan = read(json!({"fromImage": "a", "steps": [
        {"type": "ARG", "args": ["A", "1"]},
        {"type": "ADD", "args": ["f", "/f"], "filesHash": "0".repeat(64)},
    ]}));
    let steps = &plan.unwrap().stages[0].steps;
    assert!(matches!(&steps[0].action, Action::Env(pairs) if pairs.len() == 1));
    assert!(matches!(&steps[1].action, Action::Copy { .. }));
}

#[test]
fn a_registry_is_told_what_it_understands() {
    let from = |registry| json!({"fromImage": "a", "fromImageRegistry": registry});
    let google = read(from(
        json!({"type": "gcp", "serviceAccountJson": "{\"k\": 1}"}),
    ));
    let Base::Image(_, Some(account)) = &google.unwrap().stages[0].base else {
        panic!("it is an image with an account");
    };
    assert_eq!(
        (account.username.as_str(), account.password.as_str()),
        ("_json_key", "{\"k\": 1}")
    );
    let amazon =
        json!({"type": "aws", "awsAccessKeyId": "a", "awsSecretAccessKey": "s", "awsRegion": "r"});
    let plan = read(from(amazon)).unwrap();
    let Base::Image(_, Some(keys)) = &plan.stages[0].base else {
        panic!("it is an image with an account");
    };
    assert_eq!((keys.username.as_str(), keys.password.as_str()), ("a", "s"));
    assert_eq!(keys.aws_region.as_deref(), Some("r"));
    let unset =
        json!({"type": "aws", "awsAccessKeyId": "", "awsSecretAccessKey": "s", "awsRegion": "r"});
    assert!(read(from(unset)).unwrap_err().contains("a key of AWS"));
}

#[test]
fn files_of_an_image_are_files_of_a_stage() {
    let copy = json!({"type": "COPY", "args": ["/a", "/b"], "fromImage": "busybox"});
    let from = json!({"type": "COPY", "args": ["/a", "/b"], "fromStage": 0});
    let plan = read(json!({
        "stages": [{"fromImage": "a", "steps": [copy]}],
        "fromStage": 0, "steps": [from],
    }));
    let plan = plan.unwrap();
    assert_eq!(plan.stages.len(), 3);
    assert_eq!(plan.stages[2].base, Base::Stage(1));
}

#[test]
fn what_makes_no_sense_is_named() {
    let step = |step| json!({"fromImage": "a", "steps": [step]});
    for (body, said) in [
        (json!({}), "exactly one of"),
        (
            json!({"fromImage": "a", "keepEnv": ["A", "B=1"]}),
            "`keepEnv`",
        ),
        (
            json!({"fromImage": "a", "fromTemplate": "b"}),
            "exactly one of",
        ),
        (json!({"fromImage": "../a"}), "`fromImage`"),
        (step(json!({"type": "EXPOSE"})), "`steps[0]`"),
        (
            step(json!({"type": "RUN", "args": []})),
            "RUN needs a command",
        ),
        (
            step(json!({"type": "USER", "args": ["a b"]})),
            "no name of an account",
        ),
        (
            step(json!({"type": "USER", "args": ["../x"]})),
            "no name of an account",
        ),
        (
            step(json!({"type": "ENV", "args": ["A=B", "1"]})),
            "no name of a variable",
        ),
        (
            step(json!({"type": "COPY", "args": ["a", "b"]})),
            "`filesHash` is needed",
        ),
        (
            step(
                json!({"type": "COPY", "args": ["a", "b", "", "u+s"], "filesHash": "0".repeat(64)}),
            ),
            "octal",
        ),
        (
            step(json!({"type": "COPY", "args": ["a", "b"], "filesHash": "../x"})),
            "invalid files hash",
        ),
        (
            step(json!({"type": "COPY", "args": ["a", "b"], "fromStage": 0})),
            "no stage 0",
        ),
    ] {
        let error = read(body.clone()).unwrap_err();
        assert!(error.contains(said), "{body}: {error}");
    }
}
