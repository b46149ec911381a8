//! Extended resources backed by devices (KEP-5004). This module builds the claim that provides a pod's extended
//! resources on a node, without I/O.
//!
//! The pod's status maps the resources of containers to requests of the claim ([`Mapping`]).

use evenkeel_api::{
    Meta, OwnerReference, StrMap, Text,
    views::{Container, DeviceClass, DeviceRequest, ExactDeviceRequest, Node, Pod, ResourceClaim},
};
use serde_json::{Value, json};
use smallvec::SmallVec;
use std::sync::Arc;

use crate::{
    framework::Status, plugins::resource_classes::may_be_provided_by_devices, pod::PodInfo,
    resources::Resources,
};

/// Placeholder name of a claim that is not created yet. It is not a valid object name.
const PLACEHOLDER_NAME: &str = "<extended-resources>";
/// Annotation that marks claims for extended resources.
pub(super) const EXTENDED_RESOURCE_CLAIM_ANNOTATION: &str =
    "resource.kubernetes.io/extended-resource-claim";

/// Extended resources that a pod requests and devices may provide.
pub(super) struct ExtendedResourceRequest {
    pod: Arc<Pod>,
    /// Names of the resources, each with the DeviceClass that provides it, if any.
    resources: Vec<(Arc<str>, Option<Arc<DeviceClass>>)>,
}

/// Whether devices must provide each resource of an [`ExtendedResourceRequest`], in order.
pub(super) type NeedsDevices = SmallVec<[bool; 8]>;

/// The claim to create for a pod.
#[derive(Debug, PartialEq)]
pub(super) struct ExtendedResourceClaim {
    pub(super) claim: Arc<ResourceClaim>,
    pub(super) mappings: Vec<Mapping>,
}

/// Mapping of a container's resource to a request of the claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mapping {
    container: Text,
    resource: Arc<str>,
    request: String,
}

impl Mapping {
    /// Returns the mapping in the form of the pod's status.
    pub(super) fn json(&self) -> Value {
        let Self { container, resource, request } = self;
        json!({ "containerName": container, "resourceName": &**resource, "requestName": request })
    }
}

impl ExtendedResourceRequest {
    /// Returns the pod's extended resources, or `None` if devices can provide none of them.
    pub(super) fn for_pod(
        pod: &PodInfo,
        class_of: impl Fn(&str) -> Option<Arc<DeviceClass>>,
    ) -> Option<Self> {
        let Resources { scalars, .. } = &pod.requirements.requests;
        let requests =
            scalars.iter().filter(|(name, amount)| *amount > 0 && may_be_provided_by_devices(name));
        let resources: Vec<_> =
            requests.map(|(name, _)| (Arc::clone(name), class_of(name))).collect();
        let any_class = resources.iter().any(|(_, class)| class.is_some());
        any_class.then(|| Self { pod: Arc::clone(&pod.pod), resources })
    }

    /// Reports for each resource whether devices must provide it, because the node does not advertise it.
    ///
    /// # Errors
    /// Fails if neither the node nor devices can provide a resource.
    pub(super) fn needs_devices_on(&self, node: &Node) -> Result<NeedsDevices, Status> {
        let needs_devices = self.resources.iter().map(|(name, class)| {
            match node.status.allocatable.get(name).map(|amount| amount.value()) {
                None | Some(0) if class.is_some() => Ok(true),
                None => Err(Status::unresolvable("cannot fit resource")),
                Some(_) => Ok(false),
            }
        });
        needs_devices.collect()
    }

    /// Returns the class with this name, if the request refers to it.
    pub(super) fn class(&self, name: &str) -> Option<Arc<DeviceClass>> {
        let mut classes = self.resources.iter().filter_map(|(_, class)| class.as_ref());
        classes.find(|class| *class.meta.name == *name).map(Arc::clone)
    }

    /// Builds the claim for the resources that devices must provide.
    pub(super) fn build_claim(&self, needs_devices: &NeedsDevices) -> ExtendedResourceClaim {
        let containers = containers(&self.pod);
        let mut requests = Vec::new();
        let mut mappings = Vec::new();
        for ((name, class), needs_devices) in self.resources.iter().zip(needs_devices) {
            let (Some(class), true) = (class, *needs_devices) else { continue };
            let mut builder = RequestBuilder { name, mappings: Vec::new() };
            requests.extend(builder.requests(&containers, &class.meta.name));
            mappings.append(&mut builder.mappings);
        }
        requests.sort_by(|a, b| a.name.cmp(&b.name));
        let mut claim = ResourceClaim { meta: self.meta(), ..ResourceClaim::default() };
        claim.spec.devices.requests = requests.into();
        ExtendedResourceClaim { claim: Arc::new(claim), mappings }
    }

    /// Returns the metadata of the claim to create. The pod owns the claim.
    fn meta(&self) -> Meta {
        let pod = &self.pod.meta;
        let owner = OwnerReference {
            api_version: "v1".into(),
            kind: "Pod".into(),
            name: pod.name.clone(),
            uid: pod.uid.clone(),
            controller: true,
            ..OwnerReference::default()
        };
        let annotations: StrMap =
            [(EXTENDED_RESOURCE_CLAIM_ANNOTATION, "true")].into_iter().collect();
        Meta {
            name: PLACEHOLDER_NAME.into(),
            generate_name: format!("{}-extended-resources-", pod.name).into(),
            namespace: pod.namespace.clone(),
            // Placeholder until the API server assigns the uid.
            uid: format!("{PLACEHOLDER_NAME}/{}", pod.uid).into(),
            annotations,
            owners: vec![owner].into(),
            ..Meta::default()
        }
    }
}

/// Returns whether a claim was created for extended resources.
pub(super) fn is_extended_resource_claim(claim: &ResourceClaim) -> bool {
    claim.meta.annotations.get(EXTENDED_RESOURCE_CLAIM_ANNOTATION) == Some("true")
}

/// Returns the body of the create request.
pub(super) fn create_body(claim: &ResourceClaim) -> Value {
    let owner = |owner: &OwnerReference| {
        let OwnerReference { api_version, kind, name, uid, controller, .. } = owner;
        json!({ "apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": controller })
    };
    let request = |request: &DeviceRequest| {
        let exactly = request.exactly.as_deref().map(|exactly| {
            let ExactDeviceRequest { device_class_name, allocation_mode, count, .. } = exactly;
            json!({ "deviceClassName": device_class_name, "allocationMode": allocation_mode, "count": count })
        });
        json!({ "name": request.name, "exactly": exactly })
    };
    let meta = &claim.meta;
    json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "generateName": meta.generate_name,
            "namespace": meta.namespace,
            "annotations": { EXTENDED_RESOURCE_CLAIM_ANNOTATION: "true" },
            "ownerReferences": meta.owners.iter().map(owner).collect::<Vec<_>>(),
        },
        "spec": { "devices": {
            "requests": claim.spec.devices.requests.iter().map(request).collect::<Vec<_>>(),
        } },
    })
}

/// Container of a pod, in the order in which containers start.
struct PodContainer<'a> {
    container: &'a Container,
    /// Whether the container ends before the next one starts. True for init containers except sidecars.
    ends_early: bool,
}

/// Returns the pod's containers, init containers first.
fn containers(pod: &Pod) -> Vec<PodContainer<'_>> {
    let init_containers = pod.spec.init_containers.iter().map(|container| PodContainer {
        container,
        ends_early: &*container.restart_policy != "Always",
    });
    let containers =
        pod.spec.containers.iter().map(|container| PodContainer { container, ends_early: false });
    init_containers.chain(containers).collect()
}

/// Builder of the requests and mappings for one resource.
struct RequestBuilder<'a> {
    name: &'a Arc<str>,
    mappings: Vec<Mapping>,
}

impl RequestBuilder<'_> {
    /// Builds the requests of all containers. Containers that end early reuse the devices of containers that start
    /// later, and share their remaining devices with each other.
    fn requests(&mut self, containers: &[PodContainer<'_>], class: &str) -> Vec<DeviceRequest> {
        // Requests of the containers that do not end early, by index.
        let mut lasting: Vec<Option<DeviceRequest>> = Vec::with_capacity(containers.len());
        for (index, PodContainer { container, ends_early }) in containers.iter().enumerate() {
            let request =
                if *ends_early { None } else { self.request(index, container, class, &[]) };
            lasting.push(request);
        }
        let n_lasting_mappings = self.mappings.len();
        // Of the containers that end early, only the largest request remains.
        let mut largest = None::<DeviceRequest>;
        let mut replaced_names = Vec::new();
        for (index, PodContainer { container, ends_early }) in containers.iter().enumerate() {
            if !ends_early {
                continue;
            }
            let Some(request) = self.request(index, container, class, &lasting[index..]) else {
                continue;
            };
            replaced_names.push(request.name.clone());
            if largest.as_ref().is_none_or(|largest| count(largest) < count(&request)) {
                largest = Some(request);
            }
        }
        // The mappings of the other requests then refer to the largest request.
        if let Some(largest) = &largest {
            for mapping in &mut self.mappings[n_lasting_mappings..] {
                if replaced_names.iter().any(|name| **name == *mapping.request) {
                    mapping.request = largest.name.to_string();
                }
            }
        }
        largest.into_iter().chain(lasting.into_iter().flatten()).collect()
    }

    /// Builds the request for the devices that the container with this index needs in addition to those of `others`.
    /// Returns `None` if it needs none.
    fn request(
        &mut self,
        index: usize,
        container: &Container,
        class: &str,
        others: &[Option<DeviceRequest>],
    ) -> Option<DeviceRequest> {
        let requests = &container.resources.requests;
        let requested = requests.get(self.name).map_or(0, |amount| amount.value());
        if requested <= 0 {
            return None;
        }
        let mut reused = 0;
        for other in others.iter().flatten() {
            reused += count(other);
            self.add_mapping(container, other.name.to_string());
            if reused >= requested {
                return None;
            }
        }
        // Position of the resource among the container's resources, sorted by name.
        let position = requests.iter().filter(|(name, _)| *name < &**self.name).count();
        let name = format!("container-{index}-request-{position}");
        self.add_mapping(container, name.clone());
        let exactly = ExactDeviceRequest {
            device_class_name: class.into(),
            allocation_mode: "ExactCount".into(),
            count: requested - reused,
            ..ExactDeviceRequest::default()
        };
        let exactly = Some(Box::new(exactly));
        Some(DeviceRequest { name: name.into(), exactly, ..DeviceRequest::default() })
    }

    /// Adds the mapping of the container's resource to a request.
    fn add_mapping(&mut self, container: &Container, request: String) {
        let container = container.name.clone();
        let resource = Arc::clone(self.name);
        self.mappings.push(Mapping { container, resource, request });
    }
}

/// Returns the number of devices that the request requests.
fn count(request: &DeviceRequest) -> i64 {
    request.exactly.as_deref().map_or(0, |exactly| exactly.count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{info, node};
    use evenkeel_api::{Encoding, View as _};

    /// Returns the DeviceClass of an extended resource: `gpu` for `example.com/gpu`, and so on. No class provides
    /// `example.com/other`.
    fn class_of(resource: &str) -> Option<Arc<DeviceClass>> {
        let name = resource.strip_prefix("example.com/").filter(|name| *name != "other")?;
        let class = json!({ "metadata": { "name": name } });
        Some(Arc::new(DeviceClass::decode(class.to_string().as_bytes(), Encoding::Json).unwrap()))
    }

    fn container(name: &str, requests: &Value) -> Value {
        json!({ "name": name, "resources": { "requests": requests } })
    }

    fn extended_request(init: &[Value], containers: &[Value]) -> Option<ExtendedResourceRequest> {
        let spec = json!({ "spec": { "initContainers": init, "containers": containers } });
        ExtendedResourceRequest::for_pod(&info("web", &spec), class_of)
    }

    /// Returns the requests as `NAME=N*CLASS`, and the mappings as `CONTAINER/RESOURCE=REQUEST`.
    fn devices_by_container(extended_claim: &ExtendedResourceClaim) -> (Vec<String>, Vec<String>) {
        let requests = extended_claim.claim.spec.devices.requests.iter().map(|request| {
            let exactly = request.exactly.as_deref().unwrap();
            format!("{}={}*{}", request.name, exactly.count, exactly.device_class_name)
        });
        let mappings = extended_claim.mappings.iter().map(|mapping| {
            let resource = mapping.resource.trim_start_matches("example.com/");
            format!("{}/{resource}={}", mapping.container, mapping.request)
        });
        (requests.collect(), mappings.collect())
    }

    #[test]
    fn init_containers_reuse_and_share_requests() {
        let gpu = |n: u32| json!({ "cpu": "1", "example.com/gpu": n.to_string() });
        let sidecar = |n: u32| {
            let mut sidecar = container("side", &gpu(n));
            sidecar["restartPolicy"] = json!("Always");
            sidecar
        };
        for (case, init, containers, requests, mappings) in [
            (
                "one container",
                vec![],
                vec![container("a", &gpu(2))],
                vec!["container-0-request-1=2*gpu"],
                vec!["a/gpu=container-0-request-1"],
            ),
            (
                "each container has its own request",
                vec![],
                vec![container("a", &gpu(1)), container("b", &json!({})), container("c", &gpu(2))],
                vec!["container-0-request-1=1*gpu", "container-2-request-1=2*gpu"],
                vec!["a/gpu=container-0-request-1", "c/gpu=container-2-request-1"],
            ),
            (
                "an init container reuses a later request",
                vec![container("i", &gpu(1))],
                vec![container("a", &gpu(2))],
                vec!["container-1-request-1=2*gpu"],
                vec!["a/gpu=container-1-request-1", "i/gpu=container-1-request-1"],
            ),
            (
                "an init container requests the devices that later requests lack",
                vec![container("i", &gpu(5))],
                vec![container("a", &gpu(2)), container("b", &gpu(1))],
                vec![
                    "container-0-request-1=2*gpu",
                    "container-1-request-1=2*gpu",
                    "container-2-request-1=1*gpu",
                ],
                vec![
                    "a/gpu=container-1-request-1",
                    "b/gpu=container-2-request-1",
                    "i/gpu=container-1-request-1",
                    "i/gpu=container-2-request-1",
                    "i/gpu=container-0-request-1",
                ],
            ),
            (
                "init containers share the largest request",
                vec![container("i", &gpu(1)), container("j", &gpu(3)), container("k", &gpu(2))],
                vec![container("a", &json!({}))],
                vec!["container-1-request-1=3*gpu"],
                vec![
                    "i/gpu=container-1-request-1",
                    "j/gpu=container-1-request-1",
                    "k/gpu=container-1-request-1",
                ],
            ),
            (
                "a sidecar keeps its devices",
                vec![sidecar(1), container("i", &gpu(1))],
                vec![container("a", &json!({}))],
                vec!["container-0-request-1=1*gpu", "container-1-request-1=1*gpu"],
                vec!["side/gpu=container-0-request-1", "i/gpu=container-1-request-1"],
            ),
            (
                "several resources",
                vec![],
                vec![container(
                    "a",
                    &json!({ "example.com/b": "1", "example.com/a": "2", "cpu": "1" }),
                )],
                vec!["container-0-request-1=2*a", "container-0-request-2=1*b"],
                vec!["a/a=container-0-request-1", "a/b=container-0-request-2"],
            ),
        ] {
            let extended_request = extended_request(&init, &containers).unwrap();
            let needs_devices = extended_request.needs_devices_on(&node("n", &json!({}))).unwrap();
            let (requested, mapped) =
                devices_by_container(&extended_request.build_claim(&needs_devices));
            assert_eq!((requested, mapped), (owned(&requests), owned(&mappings)), "{case}");
        }
    }

    fn owned(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn advertised_resources_need_no_devices() {
        let node_with =
            |allocatable: &Value| node("n", &json!({ "status": { "allocatable": allocatable } }));
        let requests = json!({ "example.com/gpu": "1", "example.com/nic": "1" });
        let request = extended_request(&[], &[container("a", &requests)]).unwrap();
        for (offered, expected) in [
            (json!({}), [true, true]),
            (json!({ "example.com/gpu": "0" }), [true, true]),
            (json!({ "example.com/gpu": "9" }), [false, true]),
            (json!({ "example.com/gpu": "1", "example.com/nic": "1" }), [false, false]),
        ] {
            assert_eq!(
                request.needs_devices_on(&node_with(&offered)).unwrap()[..],
                expected,
                "{offered}"
            );
        }
        let requests = json!({ "example.com/gpu": "1", "example.com/other": "1" });
        let mixed = extended_request(&[], &[container("a", &requests)]).unwrap();
        let rejection = mixed.needs_devices_on(&node_with(&json!({}))).unwrap_err();
        assert_eq!(rejection.reasons.join(", "), "cannot fit resource");
        let offered = node_with(&json!({ "example.com/other": "0" }));
        assert_eq!(mixed.needs_devices_on(&offered).unwrap()[..], [true, false]);
        for requests in
            [json!({ "example.com/other": "1" }), json!({ "example.com/gpu": "0" }), json!({})]
        {
            assert!(extended_request(&[], &[container("a", &requests)]).is_none(), "{requests}");
        }
    }

    #[test]
    fn the_pod_controls_its_claim() {
        let extended_request =
            extended_request(&[], &[container("a", &json!({ "example.com/gpu": "2" }))]).unwrap();
        let extended_claim = extended_request
            .build_claim(&extended_request.needs_devices_on(&node("n", &json!({}))).unwrap());
        assert!(
            is_extended_resource_claim(&extended_claim.claim)
                && extended_claim.claim.meta.is_controlled_by("web")
        );
        assert_eq!(
            create_body(&extended_claim.claim),
            json!({
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaim",
                "metadata": {
                    "generateName": "web-extended-resources-",
                    "namespace": "shop",
                    "annotations": { "resource.kubernetes.io/extended-resource-claim": "true" },
                    "ownerReferences": [{ "apiVersion": "v1", "kind": "Pod", "name": "web", "uid": "web", "controller": true }],
                },
                "spec": { "devices": { "requests": [{ "name": "container-0-request-0", "exactly": {
                    "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2,
                } }] } },
            })
        );
        assert_eq!(
            extended_claim.mappings[0].json(),
            json!({ "containerName": "a", "resourceName": "example.com/gpu", "requestName": "container-0-request-0" })
        );
        assert!(
            extended_request.class("gpu").is_some() && extended_request.class("other").is_none()
        );
    }
}
