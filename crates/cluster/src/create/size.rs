//! The size that a request gives to a sandbox of a SandboxSet.
//!
//! Such a sandbox has a pod of its own: gVisor shows a container the size that it has started with, so a member of the pool
//! would not show another one.

use serde_json::Value;
use shoal_core::ports::NotServed;
use shoal_core::ports::create::{CreateError, SandboxRequest};
use shoal_core::ports::sandboxes::SandboxError;

use crate::blueprint::requested;
use crate::options::Options;
use crate::pod;
use crate::templates::Found;

/// Whether a request has a size.
pub(super) fn is_asked(new: &SandboxRequest) -> bool {
    new.resources.cpu.is_some() || new.resources.memory.is_some()
}

/// The resources of the main container, if the request gives a sandbox of a SandboxSet a size.
///
/// # Errors
/// For a clone, which has the size of its snapshot, and for a request that only a member of a pool may answer.
pub(super) fn of_request(
    found: &Found,
    new: &SandboxRequest,
    options: &Options,
) -> Result<Option<Value>, CreateError> {
    if !is_asked(new) {
        return Ok(None);
    }
    if found.saved().is_some() {
        let absent = NotServed {
            what: "another size for a clone",
            instead: "take the snapshot of a sandbox of that size",
        };
        return Err(CreateError::Sandbox(SandboxError::NotServed(absent)));
    }
    // An entry has rules of its own: its members may grow.
    if found.entry().is_some() {
        return Ok(None);
    }
    if options.pooled_only {
        let why = "Bad extension param: create-on-no-stock=false: a sandbox with a size of its own comes from no pool";
        return Err(CreateError::InvalidOption(why.to_owned()));
    }
    let own = pod::container_resources(found.set().spec.template.as_ref());
    Ok(Some(requested(own, &new.resources)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;
    use shoal_core::catalogue::Catalogue;
    use shoal_core::resources::{Mib, MilliCpu};
    use shoal_core::template::TemplateRef;

    use super::*;
    use crate::blueprint::{self, Blueprint};
    use crate::entries::EntrySet;
    use crate::saves;

    fn request(cpu: Option<u32>, memory: Option<u32>) -> SandboxRequest {
        let mut request = SandboxRequest::of("code".parse::<TemplateRef>().unwrap());
        request.resources.cpu = cpu.map(MilliCpu);
        request.resources.memory = memory.map(Mib);
        request
    }

    #[test]
    fn a_clone_has_the_size_of_its_snapshot_and_a_member_that_of_its_pool() {
        let saves = saves::tests::known();
        let text = json!([{"name": "warm", "template": saves::tests::KEY, "description": "d"}])
            .to_string();
        let found = Catalogue::parse(&text).unwrap().exact("warm").unwrap();
        let blueprint = Blueprint::parse(blueprint::DEFAULT).unwrap();
        let of_entry = EntrySet::of_match(&found, &blueprint, &saves, "team").unwrap();
        for clone in [
            Found::Snapshot(saves::tests::any()),
            Found::Entry(Box::new(of_entry), found),
        ] {
            let refused = of_request(&clone, &request(Some(250), None), &Options::default());
            let error = refused.unwrap_err().to_string();
            assert!(error.contains("a clone"), "{error}");
        }
        let set = serde_json::from_value(json!({"metadata": {"name": "code"}, "spec": {}}));
        let pool = Found::Set(Arc::new(set.unwrap()));
        let only_pooled = Options {
            pooled_only: true,
            ..Options::default()
        };
        let refused = of_request(&pool, &request(None, Some(512)), &only_pooled);
        let error = refused.unwrap_err().to_string();
        assert!(error.contains("from no pool"), "{error}");
    }

    #[test]
    fn a_request_sets_limits_and_other_resources_stay() {
        let resources = json!({
            "requests": {"cpu": "500m", "memory": "1Gi", "example.com/gpu": 1},
            "limits": {"cpu": "2", "memory": "1Gi", "example.com/gpu": 1},
        });
        let set = serde_json::from_value(json!({
            "metadata": {"name": "code"},
            "spec": {"template": {"spec": {"containers": [{"name": "main", "resources": resources}]}}},
        }));
        let found = Found::Set(Arc::new(set.unwrap()));
        let sized =
            |cpu, memory| of_request(&found, &request(cpu, memory), &Options::default()).unwrap();
        assert_eq!(sized(None, None), None);
        let smaller = sized(Some(250), Some(512));
        let gpu = "example.com/gpu";
        assert_eq!(
            smaller,
            Some(json!({
                "requests": {"cpu": "250m", "memory": "512Mi", gpu: 1},
                "limits": {"cpu": "250m", "memory": "512Mi", gpu: 1},
            }))
        );
        let larger = sized(Some(4000), None).unwrap();
        assert_eq!(
            larger["limits"],
            json!({"cpu": "4000m", "memory": "1Gi", gpu: 1})
        );
        assert_eq!(
            larger["requests"]["cpu"], "500m",
            "the request of the set stays"
        );
    }
}
