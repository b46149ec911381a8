//! Expected pods of owners, from the caches ([`super::owner_caches`]), otherwise from the `scale` subresource. Upstream:
//! `getExpectedScale`.

use super::plan::ExpectedPods;
use crate::scale;
use evenkeel_api::{OwnerReference, Text};
use evenkeel_runtime::plan::{Plan, Steps};
use std::{collections::BTreeMap, time::Duration};

/// An owner and its number of pods. Upstream: `controllerAndScale`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ControllerAndScale {
    pub(super) uid: Text,
    pub(super) replicas: i32,
}

/// Controller of selected pods.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Owner {
    /// Name of the owner's first pod.
    pub(super) pod_name: Text,
    pub(super) namespace: Text,
    pub(super) reference: OwnerReference,
    /// The owner, if the caches have it.
    pub(super) cached: Option<ControllerAndScale>,
}

/// Result of reading an owner's scale: `None` if the owner does not exist, or a message about the failure.
type ReadScale = Result<Option<ControllerAndScale>, String>;

/// Returns the expected pods of the owners, or the first error. Reads live the owners that the caches lack. Upstream:
/// `getExpectedScale`.
///
/// # Errors
/// `Err` contains the plan of a live read that the runtime has not executed yet.
pub(super) fn expected_pods(owners: &[Owner], steps: &mut Steps<'_>) -> Result<ExpectedPods, Plan> {
    let mut expected_pods = BTreeMap::new();
    for owner in owners {
        let found = match &owner.cached {
            Some(cached) => Ok(Some(cached.clone())),
            None => read_scale(owner, steps)?,
        };
        match found {
            Ok(Some(found)) => expected_pods.insert(found.uid, found.replicas),
            Ok(None) => {
                return Ok(Err(format!("found no controllers for pod {:?}", &*owner.pod_name)));
            }
            Err(error) => return Ok(Err(error)),
        };
    }
    Ok(Ok(expected_pods))
}

/// Reads an owner's scale. Upstream: `getScaleController`.
///
/// # Errors
/// `Err` contains the plan of a live read that the runtime has not executed yet.
fn read_scale(owner: &Owner, steps: &mut Steps<'_>) -> Result<ReadScale, Plan> {
    let Owner { namespace, reference, .. } = owner;
    let resource =
        match scale::resource_for_version(&reference.api_version, &reference.kind, steps)? {
            Ok(resource) => resource,
            Err(error) => return Ok(Err(error.to_string())),
        };
    let read = scale::get(&resource.kind, namespace, &reference.name, Duration::ZERO, steps)?;
    Ok(match read {
        Ok(scale) if scale.uid == reference.uid => {
            Ok(Some(ControllerAndScale { uid: scale.uid, replicas: scale.replicas }))
        }
        Ok(_scale_of_another_object) => Ok(None),
        Err(failure) if failure.is_not_found() => {
            if resource.subresources.iter().any(|subresource| &**subresource == "scale") {
                return Ok(Ok(None));
            }
            let plural = &resource.kind.plural;
            let group = &resource.kind.group;
            let dot = if group.is_empty() { "" } else { "." };
            Err(format!("{plural}{dot}{group} does not implement the scale subresource"))
        }
        Err(failure) => Err(failure.message),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;
    use evenkeel_api::Kind;
    use evenkeel_runtime::{
        discovery::Resource,
        plan::{Failure, Outcome, Outcomes, Reply},
    };
    use serde_json::json;

    /// Returns the controller of the pod `p`. The cache has it with these replicas, if any.
    fn owner(cached: Option<i32>) -> Owner {
        Owner {
            pod_name: "p".into(),
            namespace: "ns".into(),
            reference: OwnerReference {
                api_version: "x.io/v1".into(),
                kind: "Web".into(),
                name: "web".into(),
                uid: "u".into(),
                controller: true,
                block_owner_deletion: true,
            },
            cached: cached.map(|replicas| ControllerAndScale { uid: "u".into(), replicas }),
        }
    }

    /// Returns the discovery of a kind with this subresource.
    fn discovered(subresource: &str) -> Outcome {
        let web = fixtures::resource(Kind::new("x.io", "v1", "Web", "webs", true));
        fixtures::discovered(vec![Resource { subresources: [subresource.into()].into(), ..web }])
    }

    /// Returns the live Scale of an owner.
    fn scale(uid: &str, replicas: i32) -> Outcome {
        let body = json!({"metadata": {"uid": uid}, "spec": {"replicas": replicas}});
        Outcome { reply: Some(Reply::json(body.to_string())), ..Outcome::success() }
    }

    #[test]
    fn owner_without_cache_is_read_by_its_scale() {
        let not_found = || Outcome::failure(Failure { code: 404, ..Failure::local("gone") });
        let owner_pods = |outcomes: Vec<Outcome>| {
            let outcomes = Outcomes(outcomes);
            let found = expected_pods(&[owner(None)], &mut Steps::of(&outcomes)).expect("done");
            found.map(|pods| pods.values().sum::<i32>())
        };
        let no_controllers = Err("found no controllers for pod \"p\"".to_owned());
        assert_eq!(owner_pods(vec![discovered("scale"), scale("u", 3)]), Ok(3));
        assert_eq!(owner_pods(vec![discovered("scale"), scale("another", 3)]), no_controllers);
        assert_eq!(owner_pods(vec![discovered("scale"), not_found()]), no_controllers);
        let no_scale = "webs.x.io does not implement the scale subresource";
        assert_eq!(owner_pods(vec![discovered("status"), not_found()]), Err(no_scale.to_owned()));
        assert_eq!(owner_pods(vec![not_found()]), Err("gone".to_owned()));
    }

    #[test]
    fn only_missing_data_is_read() {
        let next = |owners: &[Owner], outcomes: Vec<Outcome>| {
            let outcomes = Outcomes(outcomes);
            let next =
                expected_pods(owners, &mut Steps::of(&outcomes)).map(|found| found.map(drop));
            next.map_err(|step| evenkeel_runtime::introspect::action(&step.actions[0]))
        };
        assert_eq!(next(&[owner(Some(2))], vec![]), Ok(Ok(())), "the owner is cached");
        let discover = "discover the API's resources".to_owned();
        assert_eq!(next(&[owner(None)], vec![]), Err(discover));
        let read = "read /apis/x.io/v1/namespaces/ns/webs/web/scale live".to_owned();
        assert_eq!(next(&[owner(None)], vec![discovered("scale")]), Err(read));
    }
}
