//! Which claims a pod still needs.

use crate::wire;
use evenkeel_api::{
    View, storage,
    views::{PersistentVolumeClaim, Pod},
};
use evenkeel_runtime::plan::{Create, Note, OnError};
use std::sync::Arc;

/// A pod, and the claims of its ephemeral volumes as far as they are there.
pub(super) struct Seen {
    pod: Arc<Pod>,
    claims: Vec<Option<Arc<PersistentVolumeClaim>>>,
}

impl Seen {
    pub(super) fn new(
        pod: Arc<Pod>,
        claim: impl Fn(&str) -> Option<Arc<PersistentVolumeClaim>>,
    ) -> Self {
        let volumes = storage::claims_of(&pod).filter(|used| used.ephemeral);
        let claims = volumes.map(|used| claim(&used.claim_name(&pod))).collect();
        Self { pod, claims }
    }
}

/// What is to be done about one volume.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    /// The claim is made.
    Make(Box<Create>),
    /// There is a claim of the name that was not made for the pod.
    Refuse(Note),
}

/// Whether the pod has ephemeral volumes and stays.
pub(super) fn concerns(pod: &Pod) -> bool {
    !pod.meta.deleting() && storage::claims_of(pod).any(|used| used.ephemeral)
}

/// What is to be done, in the order of the volumes.
pub(super) fn steps(seen: &Seen) -> Vec<Step> {
    let pod = &*seen.pod;
    if pod.meta.deleting() {
        return Vec::new();
    }
    let volumes = storage::claims_of(pod).filter(|used| used.ephemeral);
    let step = |(used, claim): (storage::ClaimUse<'_>, &Option<Arc<PersistentVolumeClaim>>)| {
        let volume = &*used.volume.name;
        match claim {
            None => make(pod, &used).map(Box::new).map(Step::Make),
            Some(claim) => storage::made_for_pod(claim, pod).err().map(|error| {
                Step::Refuse(told(pod, &format!("ephemeral volume {volume}: {error}")))
            }),
        }
    };
    volumes.zip(&seen.claims).filter_map(step).collect()
}

fn make(pod: &Pod, used: &storage::ClaimUse<'_>) -> Option<Create> {
    let template = &used.volume.source.ephemeral.as_deref()?.volume_claim_template;
    let (name, namespace) = (used.claim_name(pod), &*pod.meta.namespace);
    let owner = wire::controller_reference(&wire::target(pod));
    let volume = &used.volume.name;
    Some(Create {
        failed: Some(told(
            pod,
            &format!("ephemeral volume {volume}: create PVC {name}: {{error}}"),
        )),
        on_error: OnError::Abort,
        ..Create::new(
            PersistentVolumeClaim::kind(),
            namespace,
            template.claim_json(&name, namespace, &owner),
        )
    })
}

fn told(pod: &Pod, message: &str) -> Note {
    Note::warning(wire::target(pod), "FailedBinding", message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{T0, object};
    use serde_json::{Value, json};

    fn pod() -> Pod {
        object(&json!({
            "metadata": {"name": "web", "namespace": "ns", "uid": "u"},
            "spec": {"volumes": [
                {"name": "tmp", "emptyDir": {}},
                {"name": "data", "ephemeral": {"volumeClaimTemplate": {
                    "metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}, "finalizers": ["no"]},
                    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}}},
            ]},
        }))
    }

    #[test]
    fn a_claim_is_made_from_the_template() {
        let seen = Seen::new(Arc::new(pod()), |_| None);
        let steps = steps(&seen);
        let [Step::Make(create)] = &steps[..] else { panic!("{steps:?}") };
        let body: Value = serde_json::from_slice(&create.body).unwrap();
        assert_eq!(
            body["metadata"],
            json!({
                "name": "web-data", "namespace": "ns", "labels": {"a": "b"}, "annotations": {"c": "d"},
                "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": "u",
                    "controller": true, "blockOwnerDeletion": true}],
            })
        );
        assert_eq!(body["spec"]["resources"]["requests"]["storage"], "1Gi");
    }

    #[test]
    fn one_that_is_there_is_the_pods_or_in_its_way() {
        let claim = |owner: &str| {
            let claim: PersistentVolumeClaim = object(
                &json!({"metadata": {"name": "web-data", "namespace": "ns",
                "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": owner, "controller": true}]}}),
            );
            Arc::new(claim)
        };
        let steps_with = |owner: &str| steps(&Seen::new(Arc::new(pod()), |_| Some(claim(owner))));
        assert!(steps_with("u").is_empty());
        let steps = steps_with("other");
        let [Step::Refuse(note)] = &steps[..] else { panic!("{steps:?}") };
        assert_eq!(
            note.message,
            "ephemeral volume data: PVC ns/web-data was not created for pod ns/web (pod is not owner)"
        );
    }

    #[test]
    fn a_pod_that_goes_gets_none() {
        let mut going = pod();
        assert!(concerns(&going));
        going.meta.deletion = Some(T0);
        assert!(!concerns(&going) && steps(&Seen::new(Arc::new(going), |_| None)).is_empty());
    }
}
