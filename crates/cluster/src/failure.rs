//! Failures of the API server, in the words of the ports.

use shoal_core::store::StoreError;

/// A failed call. The API server names a missing right itself: the verb and the resource.
pub(crate) fn store(error: &kube::Error) -> StoreError {
    match error {
        kube::Error::Api(status) if is(status.code, &[409]) => {
            StoreError::Conflict { expected: None }
        }
        kube::Error::Api(status) if is(status.code, &[507]) => StoreError::NoSpace,
        error => StoreError::failed(error),
    }
}

/// Whether another write came first.
pub(crate) fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if is(status.code, &[409]))
}

/// Whether the object is gone.
pub(crate) fn is_gone(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if is(status.code, &[404, 410]))
}

/// Whether the API server refuses the object itself: nothing changes if it is sent again.
pub(crate) fn refusal(error: &kube::Error) -> Option<String> {
    match error {
        kube::Error::Api(status) if is(status.code, &[400, 403, 422]) => {
            Some(status.message.clone())
        }
        _ => None,
    }
}

fn is(code: u16, codes: &[u16]) -> bool {
    codes.contains(&code)
}
