//! Environment and reseeding of kernels.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::json;

use super::{Interpreter, interpreter};
use crate::daemon::USER;
use crate::processes::until;

impl Interpreter {
    async fn variable(&self, name: &str) -> String {
        let code = format!("__import__('os').environ.get({name:?}, 'none')");
        self.run(&code).await.text().to_owned()
    }
}

#[tokio::test]
async fn global_variables_apply_from_the_first_execution_and_follow_changes() {
    let interpreter = interpreter!();
    assert_eq!(interpreter.get("/health").await.status, 200);
    // The kernel is already running.
    let hostile = "'\"\\\n$HOME `id` é😀";
    interpreter
        .init(&json!({"envVars": {"A": hostile, "B": "b"}}))
        .await;
    let said = interpreter.run("import os\nprint(os.environ['A'])").await;
    assert_eq!(said.printed("stdout"), format!("{hostile}\n"));
    assert_eq!(said.count(), 1, "what sets them does not count");
    interpreter.init(&json!({"envVars": {"B": "c"}})).await;
    assert_eq!(interpreter.variable("A").await, "none");
    assert_eq!(interpreter.variable("B").await, "c");
}

#[tokio::test]
async fn variables_of_an_execution_end_with_it() {
    let interpreter = interpreter!();
    interpreter.init(&json!({"envVars": {"A": "of all"}})).await;
    let variables = json!({"A": "mine", "B": "b", "": "x", "C=D": "x"});
    let code = "import os\nos.environ['A'] + os.environ['B']";
    let said = interpreter
        .execute(&json!({"code": code, "env_vars": variables}))
        .await;
    assert_eq!(said.text(), "mineb");
    assert_eq!(interpreter.variable("A").await, "of all");
    assert_eq!(interpreter.variable("B").await, "none");
    let said = interpreter
        .execute(&json!({"code": "1 / 0", "env_vars": variables}))
        .await;
    assert_eq!(said.error().0, "ZeroDivisionError");
    assert_eq!(interpreter.variable("A").await, "of all");
    assert_eq!(interpreter.variable("B").await, "none");
}

#[tokio::test]
async fn a_kernels_own_variables_are_restored_after_an_execution() {
    let interpreter = interpreter!();
    interpreter
        .init(&json!({"envVars": {"LOGNAME": "of all"}}))
        .await;
    let names = ["PATH", "HOME", "USER", "LOGNAME", "GIVEN"];
    let all = format!("import os\n'|'.join(os.environ[name] for name in {names:?})");
    let before = interpreter.run(&all).await.text().to_owned();
    assert!(before.ends_with("|of all|by the kernel"), "{before}");
    let mine: BTreeMap<_, _> = names.iter().map(|name| (name, "mine")).collect();
    let said = interpreter
        .execute(&json!({"code": all, "env_vars": mine}))
        .await;
    assert_eq!(said.text(), "mine|mine|mine|mine|mine");
    assert_eq!(interpreter.run(&all).await.text(), before);

    // A global variable overrides the kernel's own while it is set.
    interpreter
        .init(&json!({"envVars": {"GIVEN": "of all"}}))
        .await;
    assert_eq!(interpreter.variable("GIVEN").await, "of all");
    assert_eq!(interpreter.variable("LOGNAME").await, USER);
    interpreter.init(&json!({"envVars": {}})).await;
    assert_eq!(interpreter.variable("GIVEN").await, "by the kernel");
}

#[tokio::test]
async fn random_state_is_reseeded_in_a_clone_only() {
    let interpreter = interpreter!();
    let sandbox = |id: &str| json!({"envVars": {"E2B_SANDBOX_ID": id}});
    interpreter.init(&sandbox("one")).await;
    let seed = "import random\nrandom.seed(1)\na = random.random()\nrandom.seed(1)";
    interpreter.run(seed).await;
    interpreter.init(&sandbox("one")).await;
    assert_eq!(interpreter.run("random.random() == a").await.text(), "True");
    interpreter.run(seed).await;
    interpreter.init(&sandbox("two")).await;
    assert_eq!(
        interpreter.run("random.random() == a").await.text(),
        "False"
    );
}

#[tokio::test]
async fn an_idle_kernel_is_updated_at_once() {
    let interpreter = interpreter!();
    let told = interpreter.daemon.path("told");
    let code = format!(
        "import os, threading, time\ndef look():\n    while os.environ.get('A') != '1':\n        \
         time.sleep(0.01)\n    open('{told}', 'w').close()\nthreading.Thread(target=look).start()"
    );
    interpreter.run(&code).await;
    interpreter.init(&json!({"envVars": {"A": "1"}})).await;
    // No execution in between.
    until(|| Path::new(&told).exists()).await;
    assert_eq!(interpreter.variable("A").await, "1");
}

#[tokio::test]
async fn environment_and_reseeding_work_despite_shadowed_names() {
    let interpreter = interpreter!();
    let sandbox = |id: &str| json!({"envVars": {"E2B_SANDBOX_ID": id, "A": id}});
    interpreter.init(&sandbox("one")).await;
    let hide = "import random, os as mine\nrandom.seed(1); a = random.random(); random.seed(1)\n\
        __import__ = getattr = os = sys = Exception = None";
    interpreter.run(hide).await;
    interpreter.init(&sandbox("two")).await;
    let said = interpreter
        .run("(mine.environ['A'], random.random() == a, [n for n in dir() if 'shoal' in n])")
        .await;
    assert_eq!(said.text(), "('two', False, [])");
    assert_eq!(said.printed("stderr"), "");
}

#[tokio::test]
async fn a_failed_change_is_reported_once_and_retried() {
    let interpreter = interpreter!();
    // From here on, setting one variable fails.
    let refuse = "import os\nclass Some(dict):\n    def __setitem__(self, name, value):\n        \
        if name == 'B': raise ValueError('not B')\n        super().__setitem__(name, value)\n\
        whole, os.environ = os.environ, Some(os.environ)";
    interpreter.run(refuse).await;
    let variables = json!({"envVars": {"A": "a", "B": "b", "C": "c"}});
    interpreter.init(&variables).await;
    let look = "[os.environ.get(name) for name in 'ABC']";
    let said = interpreter.run(look).await;
    assert_eq!(said.text(), "['a', None, 'c']");
    let told = said.printed("stderr");
    assert!(
        told.contains("environment") && told.contains(": B (ValueError: not B)"),
        "{told}"
    );
    let said = interpreter.run("os.environ = whole").await;
    assert_eq!(said.printed("stderr"), "", "no notice expected");
    assert_eq!(interpreter.variable("B").await, "b");
}
