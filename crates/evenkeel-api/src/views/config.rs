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
        /// Metadata; pods of the namespace refer to the account by its name.
        meta: Meta = 1 "metadata",
        /// Secrets that its pods may use.
        secrets: Box<[ObjectReference]> = 2 "secrets",
        /// Secrets for pulling the images of its pods; admission copies them into pods without any.
        image_pull_secrets: Box<[LocalObjectReference]> = 3 "imagePullSecrets",
        /// Whether pods mount an API token, unless they say otherwise; true where absent.
        automount_service_account_token: Option<bool> = 4 "automountServiceAccountToken",
    }
}

view!(ServiceAccount, "", "v1", "ServiceAccount", "serviceaccounts", true);

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
        /// Name of the object; empty where the reference is to no single object.
        #[serde(skip_serializing_if = "str::is_empty")]
        name: Text = 3 "name",
        /// Uid of the object; empty for any object of this name.
        #[serde(skip_serializing_if = "str::is_empty")]
        uid: Text = 4 "uid",
        /// `group/version` of the object, or `v1`.
        #[serde(skip_serializing_if = "str::is_empty")]
        api_version: Text = 5 "apiVersion",
        /// Version of the object to which the reference was made; empty for any.
        #[serde(skip_serializing_if = "str::is_empty")]
        resource_version: Text = 6 "resourceVersion",
        /// Path of one part of the object, such as `spec.containers{app}`; empty for all of it.
        #[serde(skip_serializing_if = "str::is_empty")]
        field_path: Text = 7 "fieldPath",
    }
}

message! {
    /// Configuration that pods read as variables or files.
    pub struct ConfigMap("k8s.io.api.core.v1.ConfigMap") {
        /// Metadata; pods of the namespace refer to the map by its name.
        meta: Meta = 1 "metadata",
        /// Values by file or variable name, UTF-8; `binaryData` is not decoded.
        data: StrMap = 2 "data",
        /// Whether the data cannot be changed any more; false where absent.
        immutable: Option<bool> = 4 "immutable",
    }
}

view!(ConfigMap, "", "v1", "ConfigMap", "configmaps", true);

message! {
    /// Metadata and type of a Secret; its data is never decoded.
    pub struct Secret("k8s.io.api.core.v1.Secret") {
        /// Metadata; a token's annotations name its service account.
        meta: Meta = 1 "metadata",
        /// Keys of the secret, without their values.
        data: Map<Unread> = 2 "data",
        /// Type such as `Opaque` or `kubernetes.io/service-account-token`; it tells which keys there must be.
        type_: Text = 3 "type",
    }
}

view!(Secret, "", "v1", "Secret", "secrets", true);
