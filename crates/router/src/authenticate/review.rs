//! Questions to the cluster: whose token this is, and what that user may do.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::NotAllowed;

/// How long an answer counts. A refusal counts shorter, so that a new right soon works.
const ALLOWED: Duration = Duration::from_secs(30);
const REFUSED: Duration = Duration::from_secs(5);

/// How many answers are remembered.
const MEMORY: usize = 2048;

/// How many reviews run at once. Unknown callers cannot cause more.
const AT_ONCE: usize = 32;

/// The timeout of a question.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Identifies a token and a sandbox.
type Question = [u8; 32];

/// Asks the cluster, and remembers its answers for a while.
pub(crate) struct Reviewer {
    client: Client,
    answers: Mutex<Answers>,
    places: Semaphore,
}

impl Reviewer {
    pub(crate) fn new(client: Client) -> Self {
        Self {
            client,
            answers: Mutex::default(),
            places: Semaphore::new(AT_ONCE),
        }
    }

    /// Whether the user with this token may create `sandboxes/proxy` of a sandbox.
    ///
    /// # Errors
    /// See [`NotAllowed`].
    pub(crate) async fn check(
        &self,
        token: &str,
        namespace: &str,
        id: &str,
    ) -> Result<(), NotAllowed> {
        let question = question(token, namespace, id);
        if let Some(answer) = self.answers.lock().recall(&question, Instant::now()) {
            return answer;
        }
        let asked = async {
            // Never closed.
            let _place = self.places.acquire().await;
            self.ask(token, namespace, id).await
        };
        let answer = timeout(TIMEOUT, asked)
            .await
            .unwrap_or_else(|_| Err(NotAllowed::Unknown("the API server is too slow".to_owned())));
        if let Err(NotAllowed::Unknown(error)) = &answer {
            tracing::warn!(error, "cannot check a token");
        } else {
            let mut answers = self.answers.lock();
            answers.remember(question, answer.clone(), Instant::now());
        }
        answer
    }

    async fn ask(&self, token: &str, namespace: &str, id: &str) -> Result<(), NotAllowed> {
        let unknown = |error: kube::Error| NotAllowed::Unknown(error.to_string());
        let review = TokenReview {
            spec: TokenReviewSpec {
                token: Some(token.to_owned()),
                ..TokenReviewSpec::default()
            },
            ..TokenReview::default()
        };
        let reviews: Api<TokenReview> = Api::all(self.client.clone());
        let review = reviews.create(&PostParams::default(), &review).await;
        let status = review.map_err(unknown)?.status.unwrap_or_default();
        let user = status.user.filter(|_| status.authenticated == Some(true));
        let access = access(user.ok_or(NotAllowed::Invalid)?, namespace, id);
        let reviews: Api<SubjectAccessReview> = Api::all(self.client.clone());
        let review = reviews.create(&PostParams::default(), &access).await;
        let allowed = review.map_err(unknown)?.status.map(|status| status.allowed);
        if allowed == Some(true) {
            Ok(())
        } else {
            Err(NotAllowed::Forbidden)
        }
    }
}

/// The question whether a user may use a sandbox.
fn access(user: UserInfo, namespace: &str, id: &str) -> SubjectAccessReview {
    SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: user.username,
            uid: user.uid,
            groups: user.groups,
            extra: user.extra,
            resource_attributes: Some(ResourceAttributes {
                verb: Some("create".to_owned()),
                group: Some("agents.x-k8s.io".to_owned()),
                resource: Some("sandboxes".to_owned()),
                subresource: Some("proxy".to_owned()),
                namespace: Some(namespace.to_owned()),
                name: Some(id.to_owned()),
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    }
}

fn question(token: &str, namespace: &str, id: &str) -> Question {
    let mut hash = Sha256::new();
    // Labels contain no zero byte, so different questions differ.
    for part in [namespace, id, token] {
        hash.update(part);
        hash.update([0]);
    }
    hash.finalize().into()
}

/// Remembered answers.
#[derive(Default)]
struct Answers(HashMap<Question, (Result<(), NotAllowed>, Instant)>);

impl Answers {
    fn recall(&self, question: &Question, now: Instant) -> Option<Result<(), NotAllowed>> {
        let (answer, until) = self.0.get(question)?;
        (now < *until).then(|| answer.clone())
    }

    fn remember(&mut self, question: Question, answer: Result<(), NotAllowed>, now: Instant) {
        if self.0.len() >= MEMORY {
            self.0.retain(|_, (_, until)| now < *until);
        }
        if self.0.len() >= MEMORY {
            self.0.clear();
        }
        let until = now + if answer.is_ok() { ALLOWED } else { REFUSED };
        self.0.insert(question, (answer, until));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_forgotten_after_a_while() {
        let (mut answers, now) = (Answers::default(), Instant::now());
        let (good, bad) = (question("t", "a", "b"), question("t", "a", "c"));
        answers.remember(good, Ok(()), now);
        answers.remember(bad, Err(NotAllowed::Forbidden), now);
        assert_eq!(answers.recall(&good, now), Some(Ok(())));
        assert_eq!(answers.recall(&bad, now), Some(Err(NotAllowed::Forbidden)));
        assert_eq!(answers.recall(&bad, now + REFUSED), None);
        assert_eq!(answers.recall(&good, now + REFUSED), Some(Ok(())));
        assert_eq!(answers.recall(&good, now + ALLOWED), None);
    }

    #[test]
    fn memory_is_bounded() {
        let (mut answers, now) = (Answers::default(), Instant::now());
        for number in 0..MEMORY * 2 + 1 {
            answers.remember(question(&number.to_string(), "a", "b"), Ok(()), now);
        }
        assert!(answers.0.len() <= MEMORY);
    }

    #[test]
    fn questions_differ_in_every_part() {
        let asked = question("t", "a", "b");
        for other in [
            ("u", "a", "b"),
            ("t", "ab", ""),
            ("t", "", "ab"),
            ("t", "b", "a"),
        ] {
            assert_ne!(question(other.0, other.1, other.2), asked);
        }
    }

    #[test]
    fn the_right_is_asked_for_the_whole_user() {
        let user = UserInfo {
            username: Some("system:serviceaccount:a:b".to_owned()),
            groups: Some(vec!["system:serviceaccounts".to_owned()]),
            ..UserInfo::default()
        };
        let spec = access(user, "ns", "box").spec;
        assert_eq!(spec.user.as_deref(), Some("system:serviceaccount:a:b"));
        assert_eq!(spec.groups.unwrap(), ["system:serviceaccounts"]);
        let asked = spec.resource_attributes.unwrap();
        assert_eq!(asked.resource.as_deref(), Some("sandboxes"));
        assert_eq!(asked.subresource.as_deref(), Some("proxy"));
        assert_eq!(
            (asked.namespace.as_deref(), asked.name.as_deref()),
            (Some("ns"), Some("box"))
        );
    }
}
