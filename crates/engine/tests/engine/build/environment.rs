//! The variables that a build leaves to its sandboxes.

use std::collections::BTreeMap;

use super::*;

impl Fixture {
    /// Builds `made` with two variables, and returns the environment of a sandbox of it.
    async fn environment(&self, keep_env: &[&str]) -> BTreeMap<String, String> {
        let set = Step {
            action: Action::Env(vec![
                ("KEPT".to_owned(), "kept".to_owned()),
                ("BUILD_ONLY".to_owned(), "gone".to_owned()),
            ]),
            line: None,
            force: false,
        };
        let mut plan = plan(&[]);
        plan.stages[0].steps.push(set);
        plan.keep_env = keep_env.iter().map(|name| (*name).to_owned()).collect();
        let build = self.announce("made").await;
        self.begin(&build, plan).await.unwrap();
        let build = self.built(&build).await;
        assert_eq!(build.status, BuildStatus::Ready, "{:?}", build.failure);
        let new = SandboxRequest::of("made".parse::<TemplateKey>().unwrap());
        let made = self.engine.create(&self.me, new, None).await.unwrap();
        made.record.spec.env.clone()
    }
}

#[tokio::test]
async fn sandboxes_get_the_variables_that_a_build_keeps() {
    let fixture = fixture().await;
    // E2B's clients keep none: their variables end with the build.
    let env = fixture.environment(&[]).await;
    assert!(!env.contains_key("KEPT") && !env.contains_key("BUILD_ONLY"));
    // The steps come from the cache, and the kept settings may still change.
    let env = fixture.environment(&["KEPT", "NEVER_SET"]).await;
    assert_eq!(env.get("KEPT").map(String::as_str), Some("kept"));
    assert!(!env.contains_key("BUILD_ONLY") && !env.contains_key("NEVER_SET"));
}
