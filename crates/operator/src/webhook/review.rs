//! Answers a `ConversionReview`.

use kube::core::conversion::{ConversionRequest, ConversionResponse, ConversionReview};
use kube::core::response::Status;
use serde_json::Value;
use shoal_crds::convert::{ConversionError, convert};

/// The answer as JSON. An object that cannot be converted fails the review, not the call.
///
/// # Errors
/// When the body is no review.
pub(super) fn answer(body: &[u8]) -> Result<Vec<u8>, String> {
    let review: ConversionReview =
        serde_json::from_slice(body).map_err(|error| error.to_string())?;
    let mut request = ConversionRequest::from_review(review).map_err(|error| error.to_string())?;
    let objects = std::mem::take(&mut request.objects);
    let desired = request.desired_api_version.clone();
    let converted: Result<Vec<Value>, ConversionError> = objects
        .into_iter()
        .map(|object| convert(object, &desired))
        .collect();
    let response = ConversionResponse::for_request(request);
    let response = match converted {
        Ok(objects) => response.success(objects),
        Err(error) => {
            tracing::warn!(%error, desired, "cannot convert an object");
            response.failure(Status::failure(&error.to_string(), "InvalidRequest"))
        }
    };
    serde_json::to_vec(&response.into_review()).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn review(objects: &Value, desired: &str) -> Value {
        let review = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
            "request": {"uid": "u-1", "desiredAPIVersion": desired, "objects": objects},
        });
        serde_json::from_slice(&answer(&serde_json::to_vec(&review).unwrap()).unwrap()).unwrap()
    }

    #[test]
    fn objects_are_converted_in_order() {
        let sandbox = |name: &str, replicas: i32| {
            json!({
                "apiVersion": "agents.x-k8s.io/v1alpha1", "kind": "Sandbox", "metadata": {"name": name},
                "spec": {"podTemplate": {"spec": {"containers": []}}, "replicas": replicas},
            })
        };
        let answer = review(
            &json!([sandbox("a", 0), sandbox("b", 1)]),
            "agents.x-k8s.io/v1beta1",
        );
        assert_eq!(answer["response"]["uid"], "u-1");
        assert_eq!(answer["response"]["result"]["status"], "Success");
        let converted = &answer["response"]["convertedObjects"];
        assert_eq!(converted[0]["spec"]["operatingMode"], "Suspended");
        assert_eq!(converted[1]["metadata"]["name"], "b");
    }

    #[test]
    fn an_object_that_cannot_be_converted_fails_the_review() {
        let answer = review(&json!([{"apiVersion": "v1", "kind": "Pod"}]), "v2");
        assert_eq!(answer["response"]["result"]["status"], "Failure");
        assert!(
            answer["response"]["result"]["message"]
                .as_str()
                .unwrap()
                .contains("cannot convert Pod")
        );
    }

    #[test]
    fn other_bodies_are_refused() {
        assert!(answer(b"{").is_err());
        assert!(answer(b"{\"apiVersion\":\"a\",\"kind\":\"b\"}").is_err());
    }
}
