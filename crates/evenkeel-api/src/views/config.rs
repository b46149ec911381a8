//! ServiceAccounts, ConfigMaps and Secrets.

use super::volume::LocalObjectReference;
use crate::Meta;
use crate::StrMap;
use crate::decode::{message, view};
use crate::map::Map;
use crate::map::Unread;
use crate::text::Text;

message! {
    /// Identity of pods in the API, with its image pull secrets.
    pub struct ServiceAccount("k8s.io.api.core.v1.ServiceAccount") {
        /// Metadata; pods of the namespace reference the account by name.
        meta: Meta = 1 "metadata",
        /// Secrets that pods of the account may use.
        secrets: Box<[ObjectReference]> = 2 "secrets",
        /// Secrets for pulling images. Admission copies them into pods of the account that have none.
        image_pull_secrets: Box<[LocalObjectReference]> = 3 "imagePullSecrets",
        /// Whether pods mount an API token unless the pod overrides it; true if absent.
        automount_service_account_token: Option<bool> = 4 "automountServiceAccountToken",
    }
}

view!(ServiceAccount, "", "v1", "ServiceAccount", "serviceaccounts", namespaced);

message! {
    /// Reference to an object by kind, namespace, name and uid.
    #[derive(serde::Serialize, Hash)]
    #[serde(rename_all = "camelCase")]
    pub struct ObjectReference("k8s.io.api.core.v1.ObjectReference") {
        /// Kind of the referenced object, such as `Pod`.
        #[serde(skip_serializing_if = "str::is_empty")]
        kind: Text = 1 "kind",
        /// Namespace of the object; empty for cluster-scoped ones.
        #[serde(skip_serializing_if = "str::is_empty")]
        namespace: Text = 2 "namespace",
        /// Name of the object; empty if the reference is not to a single object.
        #[serde(skip_serializing_if = "str::is_empty")]
        name: Text = 3 "name",
        /// Uid of the object; empty for any object of this name.
        #[serde(skip_serializing_if = "str::is_empty")]
        uid: Text = 4 "uid",
        /// apiVersion of the object: `group/version`, or `v1`.
        #[serde(skip_serializing_if = "str::is_empty")]
        api_version: Text = 5 "apiVersion",
        /// resourceVersion of the referenced object; empty for any.
        #[serde(skip_serializing_if = "str::is_empty")]
        resource_version: Text = 6 "resourceVersion",
        /// Path of a part of the object, such as `spec.containers{app}`; empty for the whole object.
        #[serde(skip_serializing_if = "str::is_empty")]
        field_path: Text = 7 "fieldPath",
    }
}

message! {
    /// Configuration that pods read as environment variables or files.
    pub struct ConfigMap("k8s.io.api.core.v1.ConfigMap") {
        /// Metadata; pods of the namespace reference the ConfigMap by name.
        meta: Meta = 1 "metadata",
        /// UTF-8 values by file or variable name; `binaryData` is not decoded.
        data: StrMap = 2 "data",
        /// Whether the data is immutable; false if absent.
        immutable: Option<bool> = 4 "immutable",
    }
}

view!(ConfigMap, "", "v1", "ConfigMap", "configmaps", namespaced);

message! {
    /// Metadata and type of a Secret; its data is never decoded.
    pub struct Secret("k8s.io.api.core.v1.Secret") {
        /// Metadata; a token's annotations name its service account.
        meta: Meta = 1 "metadata",
        /// Keys of the secret, without their values.
        data: Map<Unread> = 2 "data",
        /// Type, such as `Opaque` or `kubernetes.io/service-account-token`, which determines the required keys.
        type_: Text = 3 "type",
    }
}

view!(Secret, "", "v1", "Secret", "secrets", namespaced);
