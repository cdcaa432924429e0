//! The observed state of a sandbox and its children.

use std::sync::Arc;
use std::time::Duration;

use shoal_crds::convert::written_in_v1alpha1;
use shoal_crds::hash;
use shoal_crds::names::{annotation, label};
use shoal_crds::v1beta1::{OperatingMode, Sandbox};

use crate::slim::{Pod, Service};

/// The version that decides a sandbox's visible behaviour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WrittenIn {
    V1alpha1,
    V1beta1,
}

/// A sandbox and the values derived from it.
pub(super) struct Wanted<'a> {
    pub(super) sandbox: &'a Sandbox,
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    pub(super) uid: &'a str,
    pub(super) written_in: WrittenIn,
    pub(super) name_hash: String,
}

impl<'a> Wanted<'a> {
    /// `None` for an object without a name or UID, which no API server returns.
    pub(super) fn of(sandbox: &'a Sandbox) -> Option<Self> {
        let name = sandbox.metadata.name.as_deref()?;
        let written_in = if written_in_v1alpha1(&sandbox.metadata) {
            WrittenIn::V1alpha1
        } else {
            WrittenIn::V1beta1
        };
        Some(Self {
            sandbox,
            namespace: sandbox.metadata.namespace.as_deref()?,
            name,
            uid: sandbox.metadata.uid.as_deref()?,
            written_in,
            name_hash: hash::of_name(name),
        })
    }

    pub(super) fn is_v1alpha1(&self) -> bool {
        self.written_in == WrittenIn::V1alpha1
    }

    pub(super) fn is_suspended(&self) -> bool {
        self.sandbox.spec.operating_mode == Some(OperatingMode::Suspended)
    }

    /// The name of the pod in the annotation.
    pub(super) fn tracked_pod(&self) -> Option<&str> {
        let annotations = self.sandbox.metadata.annotations.as_ref()?;
        annotations
            .get(annotation::POD_NAME)
            .map(String::as_str)
            .filter(|name| !name.is_empty())
    }

    /// The label selector of the pod.
    pub(super) fn selector(&self) -> String {
        format!("{}={}", label::SANDBOX_NAME_HASH, self.name_hash)
    }

    /// The reference that makes the sandbox the controller of an object, in the version that it was
    /// written in.
    pub(super) fn controller_ref(&self) -> serde_json::Value {
        let version = if self.is_v1alpha1() {
            "v1alpha1"
        } else {
            "v1beta1"
        };
        serde_json::json!({
            "apiVersion": format!("{}/{version}", shoal_crds::names::GROUP),
            "kind": "Sandbox",
            "name": self.name,
            "uid": self.uid,
            "controller": true,
            "blockOwnerDeletion": true,
        })
    }
}

/// The pod of a sandbox.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum PodState {
    /// There is none.
    Absent,
    /// It exists.
    Owned(Arc<Pod>),
    /// A pod of that name exists, and is not the sandbox's.
    NotOwned,
    /// There are several.
    Several(usize),
    /// It could not be looked up.
    Unknown,
}

/// The objects that a reconcile found or made.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) pod: PodState,
    /// The service, if it is the sandbox's.
    pub(super) service: Option<Arc<Service>>,
    /// The steps that failed, as one message.
    pub(super) error: Option<String>,
    /// The save that the pod waits for.
    pub(super) saving: Option<Saving>,
}

/// A save of the pod that is under way, or has failed.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Saving {
    pub(super) reason: &'static str,
    pub(super) message: String,
    /// When to look again, if no change of an object tells.
    pub(super) wait: Option<Duration>,
}
