//! The interpreter as this project's own client uses it.

use futures_util::StreamExt;
use shoal_core::ports::inside::SandboxClient;
use shoal_protocol::client::{Code, CodeEvent, EnvdClient, Execution, InterpreterClient};

use super::interpreter;
use crate::sandbox_client::{self, Only};

async fn events(mut execution: Execution) -> Vec<CodeEvent> {
    let mut events = Vec::new();
    while let Some(event) = execution.next().await.unwrap() {
        events.push(event);
    }
    events
}

#[tokio::test]
async fn run_code_returns_output_results_and_errors() {
    let interpreter = interpreter!();
    let client = InterpreterClient::new(EnvdClient::at(interpreter.address));
    let code = Code::new("import os\nprint('out', os.environ['A'])\n6 * 7").with_env("A", "b");
    let seen = events(client.run_code(&code).await.unwrap()).await;
    assert_eq!(seen[0], CodeEvent::Count(1));
    assert_eq!(seen[1], CodeEvent::Stdout("out b\n".to_owned()));
    let [_, _, CodeEvent::Result(result)] = seen.as_slice() else {
        panic!("{seen:?}");
    };
    assert!(result.is_main_result);
    assert_eq!(result.formats["text"], "42");

    let failing = Code::new("raise ValueError('no')");
    let seen = events(client.run_code(&failing).await.unwrap()).await;
    let [_, CodeEvent::Error(error)] = seen.as_slice() else {
        panic!("{seen:?}");
    };
    assert_eq!(
        (error.name.as_str(), error.value.as_str()),
        ("ValueError", "no")
    );
    assert!(error.traceback.contains("ValueError"));
}

#[tokio::test]
async fn contexts_are_created_listed_restarted_and_deleted() {
    let interpreter = interpreter!();
    let client = InterpreterClient::new(EnvdClient::at(interpreter.address));
    let context = client.create_context(None, Some("/usr")).await.unwrap();
    assert_eq!(context.cwd, "/usr");
    assert!(client.contexts().await.unwrap().contains(&context));
    let run = async |code: &str| {
        let code = Code::new(code).in_context(&context.id);
        events(client.run_code(&code).await.unwrap()).await
    };
    run("x = 1").await;
    client.restart_context(&context.id).await.unwrap();
    let seen = run("x").await;
    assert!(
        matches!(seen.last(), Some(CodeEvent::Error(error)) if error.name == "NameError"),
        "{seen:?}"
    );
    client.delete_context(&context.id).await.unwrap();
    let gone = client.delete_context(&context.id).await.unwrap_err();
    assert!(gone.is_not_found(), "{gone}");
}

#[tokio::test]
async fn the_client_of_a_sandbox_runs_code() {
    let interpreter = interpreter!();
    let client = sandbox_client::client(Only(interpreter.address), None);
    let events = client.run_code(Code::new("print(6 * 7)")).await.unwrap();
    let events: Vec<_> = events.map(Result::unwrap).collect().await;
    let printed = CodeEvent::Stdout("42\n".to_owned());
    assert_eq!(events, [CodeEvent::Count(1), printed]);
}
