use serde_json::json;

use super::super::tests::fake::{FakeKernel, kernel, launcher};
use super::*;

fn variables<const N: usize>(pairs: [(&str, &str); N]) -> Variables {
    let pairs = pairs.map(|(name, value)| (name.to_owned(), value.to_owned()));
    pairs.into()
}

/// Answers a request and returns its code.
async fn answer(fake: &mut FakeKernel, takes: impl Fn(&str) -> bool) -> String {
    let (id, code) = fake.asked_for_code().await;
    if takes(&code) {
        fake.replies(&id, json!({"status": "ok"})).await;
    } else {
        let error = json!({"status": "error", "ename": "TypeError", "evalue": "no"});
        fake.replies(&id, error).await;
    }
    fake.idles(&id).await;
    code
}

#[tokio::test]
async fn a_failed_change_does_not_block_others_and_is_retried() {
    let (mut kernel, mut fake) = kernel().await;
    let context = Context::of_language("bash");
    let launcher = launcher();
    let wanted = variables([("A", "1"), ("B", "2"), ("C", "3")]);
    let takes = |code: &str| !code.contains("B=");
    let answering = async {
        for _ in 0..4 {
            answer(&mut fake, takes).await;
        }
    };
    let preparing = prepare(&mut kernel, &context, &launcher, wanted.clone());
    let (prepared, ()) = tokio::join!(preparing, answering);
    let notice = prepared.ok().flatten().unwrap();
    assert!(notice.ends_with(": B (TypeError: no)"), "{notice}");
    assert_eq!(kernel.variables, variables([("A", "1"), ("C", "3")]));

    // Retried, without another notice.
    let answering = async {
        [
            answer(&mut fake, takes).await,
            answer(&mut fake, takes).await,
        ]
    };
    let preparing = prepare(&mut kernel, &context, &launcher, wanted.clone());
    let (prepared, codes) = tokio::join!(preparing, answering);
    assert!(matches!(prepared, Ok(None)));
    assert!(
        codes
            .iter()
            .all(|code| code.contains("B=") && !code.contains("A="))
    );

    // Until it succeeds.
    let preparing = prepare(&mut kernel, &context, &launcher, wanted.clone());
    let (prepared, _) = tokio::join!(preparing, answer(&mut fake, |_| true));
    assert!(matches!(prepared, Ok(None)));
    assert_eq!((&kernel.variables, &kernel.last_notice), (&wanted, &None));
}

#[tokio::test]
async fn startup_code_runs_once_and_its_failure_is_reported() {
    let launcher = launcher();
    for takes in [true, false] {
        let (mut kernel, mut fake) = kernel().await;
        assert!(matches!(
            run_startup(&mut kernel, &launcher).await,
            Ok(None)
        ));
        kernel.startup = Some("let begun = true".to_owned());
        let setting = run_startup(&mut kernel, &launcher);
        let (notice, code) = tokio::join!(setting, answer(&mut fake, |_| takes));
        assert_eq!(code, "let begun = true");
        let notice = notice.ok().flatten();
        assert_eq!(notice.is_none(), takes);
        assert!(notice.is_none_or(|notice| notice.ends_with("(TypeError: no)")));
        // It is not executed twice.
        assert!(matches!(
            run_startup(&mut kernel, &launcher).await,
            Ok(None)
        ));
    }
}

#[tokio::test]
async fn a_failed_reseed_is_retried() {
    let (mut kernel, mut fake) = kernel().await;
    let context = Context::of_language("r");
    let launcher = launcher();
    kernel.sandbox = Some("another".to_owned());
    for takes in [false, false, true] {
        let preparing = prepare(&mut kernel, &context, &launcher, Variables::new());
        let answering = async {
            let code = answer(&mut fake, |_| takes).await;
            assert!(code.contains("set.seed"));
            if !takes {
                answer(&mut fake, |_| takes).await;
            }
        };
        let (prepared, ()) = tokio::join!(preparing, answering);
        assert!(prepared.is_ok());
        assert_eq!(kernel.unseeded.is_empty(), takes);
    }
}

#[tokio::test]
async fn a_retry_skips_generators_that_were_reseeded() {
    let (mut kernel, mut fake) = kernel().await;
    let context = Context::of_language("java");
    let launcher = launcher();
    kernel.sandbox = Some("another".to_owned());
    let is_other = |code: &str| code.contains("seedUniquifier");
    let is_first = |code: &str| code.contains("RandomNumberGeneratorHolder");
    for (takes, codes) in [(false, 3), (false, 2), (true, 1)] {
        let preparing = prepare(&mut kernel, &context, &launcher, Variables::new());
        let answering = async {
            for number in 0..codes {
                let code = answer(&mut fake, |code| takes || !is_other(code)).await;
                // Everything at first, then only the rest.
                assert_eq!(is_first(&code), codes == 3 && number < 2, "{code}");
            }
        };
        let (prepared, ()) = tokio::join!(preparing, answering);
        let notice = prepared.ok().flatten();
        assert_eq!(notice.is_some(), codes == 3, "once");
        assert_eq!(kernel.unseeded.is_empty(), takes);
    }
    let prepared = prepare(&mut kernel, &context, &launcher, Variables::new());
    assert!(matches!(prepared.await, Ok(None)), "there is nothing to do");
}

#[tokio::test]
async fn a_kernel_without_await_receives_the_fallback_code() {
    let (mut kernel, mut fake) = kernel().await;
    let context = Context::of_language("javascript");
    let launcher = launcher();
    kernel.sandbox = Some("another".to_owned());
    let wanted = variables([("A", "1"), ("B", "2")]);
    let preparing = prepare(&mut kernel, &context, &launcher, wanted.clone());
    let answering = async {
        for plainly in [false, true] {
            let code = answer(&mut fake, |code| !code.contains("await")).await;
            assert_eq!(code.contains("await"), !plainly);
            assert!(code.contains(".env[\"B\"]") && code.contains("getRandomValues"));
        }
    };
    let (prepared, ()) = tokio::join!(preparing, answering);
    assert!(matches!(prepared, Ok(None)));
    assert_eq!((&kernel.variables, &kernel.sandbox), (&wanted, &None));

    // The same one by one.
    let less = variables([("B", "3")]);
    let takes = |code: &str| !code.contains("await") && !code.contains("\"A\"");
    let preparing = prepare(&mut kernel, &context, &launcher, less);
    let answering = async {
        for _ in 0..6 {
            answer(&mut fake, takes).await;
        }
    };
    let (prepared, ()) = tokio::join!(preparing, answering);
    let notice = prepared.ok().flatten().unwrap();
    assert!(notice.ends_with(": A (TypeError: no)"), "{notice}");
    assert_eq!(kernel.variables, variables([("A", "1"), ("B", "3")]));
}

#[test]
fn a_notice_names_a_limited_number_of_variables() {
    let mut failed_changes = FailedChanges::default();
    for number in 0..20 {
        failed_changes.note(&format!("V{number}"), "x");
    }
    assert!(
        failed_changes
            .notice()
            .unwrap()
            .ends_with("V6, V7 and 12 more (x)")
    );
    assert_eq!(FailedChanges::default().notice(), None);
}
