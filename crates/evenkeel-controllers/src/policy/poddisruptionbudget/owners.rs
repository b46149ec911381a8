//! Expected pods of owners, from the caches ([`super::owner_caches`]), else from the `scale` subresource. Upstream:
//! `getExpectedScale`.

use super::plan::ExpectedPods;
use crate::scale;
use evenkeel_api::{OwnerReference, Text};
use evenkeel_runtime::plan::{Plan, Steps};
use std::{collections::BTreeMap, time::Duration};

/// An owner's uid and its number of pods. Upstream: `controllerAndScale`.
pub(super) type Scaled = (Text, i32);

/// Controller of selected pods.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Owner {
    /// Name of the owner's first pod.
    pub(super) pod: Text,
    pub(super) namespace: Text,
    pub(super) reference: OwnerReference,
    /// The owner, if the caches have it.
    pub(super) cached: Option<Scaled>,
}

/// Returns the expected pods of the owners, or the first error. Reads live the owners that the caches lack. Upstream:
/// `getExpectedScale`.
pub(super) fn expected_pods(owners: &[Owner], steps: &mut Steps<'_>) -> Result<ExpectedPods, Plan> {
    let mut expected_pods = BTreeMap::new();
    for owner in owners {
        let found = match &owner.cached {
            Some(cached) => Ok(Some(cached.clone())),
            None => by_scale(owner, steps)?,
        };
        match found {
            Ok(Some((uid, replicas))) => expected_pods.insert(uid, replicas),
            Ok(None) => {
                return Ok(Err(format!("found no controllers for pod {:?}", &*owner.pod)));
            }
            Err(why) => return Ok(Err(why)),
        };
    }
    Ok(Ok(expected_pods))
}

/// Reads an owner's scale; `None` if the owner does not exist. Upstream: `getScaleController`.
fn by_scale(owner: &Owner, steps: &mut Steps<'_>) -> Result<Result<Option<Scaled>, String>, Plan> {
    let Owner { namespace, reference, .. } = owner;
    let resource =
        match scale::resource_for_version(&reference.api_version, &reference.kind, steps)? {
            Ok(resource) => resource,
            Err(error) => return Ok(Err(error.to_string())),
        };
    let read = scale::get(&resource.kind, namespace, &reference.name, Duration::ZERO, steps)?;
    Ok(match read {
        Ok(scale) => Ok((scale.uid == reference.uid).then_some((scale.uid, scale.replicas))),
        Err(refused) if refused.is_not_found() => {
            if resource.subresources.iter().any(|part| &**part == "scale") {
                return Ok(Ok(None));
            }
            let (plural, group) = (&resource.kind.plural, &resource.kind.group);
            let dot = if group.is_empty() { "" } else { "." };
            Err(format!("{plural}{dot}{group} does not implement the scale subresource"))
        }
        Err(refused) => Err(refused.message),
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
            pod: "p".into(),
            namespace: "ns".into(),
            reference: OwnerReference {
                api_version: "x.io/v1".into(),
                kind: "Web".into(),
                name: "web".into(),
                uid: "u".into(),
                controller: true,
                block_owner_deletion: true,
            },
            cached: cached.map(|replicas| ("u".into(), replicas)),
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
        let gone = || Outcome::failure(Failure { code: 404, ..Failure::local("gone") });
        let owner_pods = |outcomes: Vec<Outcome>| {
            let outcomes = Outcomes(outcomes);
            let found = expected_pods(&[owner(None)], &mut Steps::of(&outcomes)).expect("done");
            found.map(|pods| pods.values().sum::<i32>())
        };
        let nobody = Err("found no controllers for pod \"p\"".to_owned());
        assert_eq!(owner_pods(vec![discovered("scale"), scale("u", 3)]), Ok(3));
        assert_eq!(owner_pods(vec![discovered("scale"), scale("another", 3)]), nobody);
        assert_eq!(owner_pods(vec![discovered("scale"), gone()]), nobody);
        let none = "webs.x.io does not implement the scale subresource";
        assert_eq!(owner_pods(vec![discovered("status"), gone()]), Err(none.to_owned()));
        assert_eq!(owner_pods(vec![gone()]), Err("gone".to_owned()));
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
