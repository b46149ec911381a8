//! Kinds that `k8s-openapi` has only for the newest version of Kubernetes. Users of this crate may choose the types of an
//! older version.
//!
//! Only the fields that controllers read are typed. All other fields are kept unchanged, because updates send whole objects.

use k8s_openapi::{
    ClusterResourceScope, Metadata, NamespaceResourceScope, Resource,
    apimachinery::pkg::{
        api::resource::Quantity,
        apis::meta::v1::{Condition, ObjectMeta},
    },
};
use serde::{Deserialize, Serialize, Serializer, ser::SerializeStruct as _};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Defines an object's type: its group, version and plural name, scope, and the fields beside its metadata.
macro_rules! kind {
    (
        $(#[$doc:meta])*
        $name:ident in $group:literal / $version:literal as $plural:literal, $scope:ty,
        { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* }
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Default, PartialEq, Deserialize)]
        #[serde(default)]
        pub(crate) struct $name {
            pub(crate) metadata: ObjectMeta,
            $(
                $(#[$field_doc])*
                pub(crate) $field: Option<$type>,
            )*
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let mut object = serializer.serialize_struct(Self::KIND, 5)?;
                object.serialize_field("apiVersion", Self::API_VERSION)?;
                object.serialize_field("kind", Self::KIND)?;
                object.serialize_field("metadata", &self.metadata)?;
                $(
                    if let Some($field) = &self.$field {
                        object.serialize_field(stringify!($field), $field)?;
                    }
                )*
                object.end()
            }
        }

        impl Resource for $name {
            const API_VERSION: &'static str = concat!($group, "/", $version);
            const GROUP: &'static str = $group;
            const KIND: &'static str = stringify!($name);
            const VERSION: &'static str = $version;
            const URL_PATH_SEGMENT: &'static str = $plural;
            type Scope = $scope;
        }

        impl Metadata for $name {
            type Ty = ObjectMeta;

            fn metadata(&self) -> &ObjectMeta {
                &self.metadata
            }

            fn metadata_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

kind! {
    /// Trust anchors of a signer.
    ClusterTrustBundle in "certificates.k8s.io"/"v1" as "clustertrustbundles", ClusterResourceScope,
    { spec: ClusterTrustBundleSpec, }
}

/// Content of a ClusterTrustBundle.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ClusterTrustBundleSpec {
    /// Certificates as PEM.
    #[serde(default)]
    pub(crate) trust_bundle: String,
    #[serde(flatten)]
    other: Map<String, Value>,
}

kind! {
    /// Request of a kubelet for a pod's certificate. Only its metadata is read.
    PodCertificateRequest in "certificates.k8s.io"/"v1" as "podcertificaterequests", NamespaceResourceScope,
    {}
}

kind! {
    /// Devices that pods ask for.
    ResourceClaim in "resource.k8s.io"/"v1" as "resourceclaims", NamespaceResourceScope,
    {
        /// The requests, unparsed.
        spec: Value,
        status: ResourceClaimStatus,
    }
}

impl ResourceClaim {
    /// Returns a claim that is neither allocated nor reserved.
    pub(crate) fn new(metadata: ObjectMeta, spec: Option<Value>) -> Self {
        Self { metadata, spec, ..Self::default() }
    }
}

/// Allocation of a claim, and its consumers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ResourceClaimStatus {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) allocation: Option<Allocation>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reserved_for: Option<Vec<ResourceClaimConsumerReference>>,
    #[serde(flatten)]
    other: Map<String, Value>,
}

/// Allocation of a claim.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Allocation {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) devices: Option<AllocatedDevices>,
    #[serde(flatten)]
    other: Map<String, Value>,
}

/// Devices of an allocation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct AllocatedDevices {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) results: Option<Vec<AllocatedDevice>>,
    #[serde(flatten)]
    other: Map<String, Value>,
}

/// Device that is allocated to a claim. Upstream: `DeviceRequestAllocationResult`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct AllocatedDevice {
    pub(crate) driver: String,
    pub(crate) pool: String,
    pub(crate) device: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) admin_access: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) consumed_capacity: Option<BTreeMap<String, Quantity>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tolerations: Option<Vec<DeviceToleration>>,
    #[serde(flatten)]
    other: Map<String, Value>,
}

/// Toleration of a device's taint.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct DeviceToleration {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) operator: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) effect: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) toleration_seconds: Option<i64>,
}

/// Object that may use a claim.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ResourceClaimConsumerReference {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) api_group: Option<String>,
    /// Plural name of the object's kind.
    pub(crate) resource: String,
    pub(crate) name: String,
    pub(crate) uid: String,
}

kind! {
    /// Template of the claims of a pod.
    ResourceClaimTemplate in "resource.k8s.io"/"v1" as "resourceclaimtemplates", NamespaceResourceScope,
    { spec: ResourceClaimTemplateSpec, }
}

/// Metadata and spec of claims from a template.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ResourceClaimTemplateSpec {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) metadata: Option<ObjectMeta>,
    /// The requests, unparsed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) spec: Option<Value>,
}

kind! {
    /// Request to rewrite the objects of a resource in its storage version.
    StorageVersionMigration in "storagemigration.k8s.io"/"v1" as "storageversionmigrations", ClusterResourceScope,
    {
        spec: StorageVersionMigrationSpec,
        status: StorageVersionMigrationStatus,
    }
}

/// Resource whose objects are rewritten.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct StorageVersionMigrationSpec {
    #[serde(default)]
    pub(crate) resource: GroupResource,
    #[serde(flatten)]
    other: Map<String, Value>,
}

/// A resource of any version.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct GroupResource {
    pub(crate) group: String,
    /// Plural name of the kind.
    pub(crate) resource: String,
}

/// Progress of a migration.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StorageVersionMigrationStatus {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) conditions: Option<Vec<Condition>>,
    /// Version up to which objects are rewritten.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) resource_version: Option<String>,
    #[serde(flatten)]
    other: Map<String, Value>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::de::DeserializeOwned;
    use serde_json::json;
    use std::fmt::Debug;

    /// Decodes an object and encodes it again.
    #[track_caller]
    fn sent_back<K: DeserializeOwned + Serialize + Debug>(object: &Value) -> Value {
        serde_json::to_value(serde_json::from_value::<K>(object.clone()).unwrap()).unwrap()
    }

    #[test]
    fn updates_keep_every_field() {
        let claim = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {"name": "c", "finalizers": ["f"]},
            "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu", "count": 2}}]}},
            "status": {
                "allocation": {
                    "devices": {
                        "results": [{
                            "request": "r", "driver": "d", "pool": "p", "device": "gpu-0", "shareID": "s",
                            "tolerations": [{"key": "k", "operator": "Exists", "tolerationSeconds": 5}],
                            "consumedCapacity": {"memory": "1Gi"},
                        }],
                        "config": [{"source": "FromClaim"}],
                    },
                    "allocationTimestamp": "2026-01-01T00:00:00Z",
                },
                "reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}],
                "devices": [{"driver": "d", "data": {"any": [1, 2.5]}}],
            },
        });
        assert_eq!(sent_back::<ResourceClaim>(&claim), claim);
        let bundle = json!({
            "apiVersion": "certificates.k8s.io/v1", "kind": "ClusterTrustBundle",
            "metadata": {"name": "b"}, "spec": {"signerName": "s", "trustBundle": "PEM"},
        });
        assert_eq!(sent_back::<ClusterTrustBundle>(&bundle), bundle);
        let migration = json!({
            "apiVersion": "storagemigration.k8s.io/v1", "kind": "StorageVersionMigration",
            "metadata": {"name": "m"}, "spec": {"resource": {"group": "apps", "resource": "deployments"}},
            "status": {
                "resourceVersion": "7",
                "conditions": [{"type": "Running", "status": "True", "reason": "R", "message": "m",
                    "lastTransitionTime": "2026-01-01T00:00:00Z"}],
            },
        });
        assert_eq!(sent_back::<StorageVersionMigration>(&migration), migration);
    }

    #[test]
    fn items_of_lists_carry_no_kind_and_are_sent_with_one() {
        let claim = sent_back::<ResourceClaim>(&json!({"metadata": {"name": "c"}}));
        let expected = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c"},
        });
        assert_eq!(claim, expected);
    }

    /// Compares the constants of a type with those of `k8s-openapi`.
    #[track_caller]
    fn assert_is<Ours: Resource, Theirs: Resource>() {
        let names = (Ours::API_VERSION, Ours::GROUP, Ours::VERSION, Ours::KIND);
        assert_eq!(names, (Theirs::API_VERSION, Theirs::GROUP, Theirs::VERSION, Theirs::KIND));
        assert_eq!(Ours::URL_PATH_SEGMENT, Theirs::URL_PATH_SEGMENT);
        let scope = std::any::type_name::<Ours::Scope>();
        assert_eq!(scope, std::any::type_name::<Theirs::Scope>());
    }

    #[test]
    fn names_are_those_of_the_newest_kubernetes() {
        use k8s_openapi::api::storagemigration::v1 as storagemigration;
        use k8s_openapi::api::{certificates::v1 as certificates, resource::v1 as resource};
        assert_is::<ClusterTrustBundle, certificates::ClusterTrustBundle>();
        assert_is::<PodCertificateRequest, certificates::PodCertificateRequest>();
        assert_is::<ResourceClaim, resource::ResourceClaim>();
        assert_is::<ResourceClaimTemplate, resource::ResourceClaimTemplate>();
        assert_is::<StorageVersionMigration, storagemigration::StorageVersionMigration>();
    }
}
