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
        /// Metadata.
        meta: Meta = 1 "metadata",
        /// Secrets that its pods may use.
        secrets: Box<[ObjectReference]> = 2 "secrets",
        /// Secrets with which images are pulled.
        image_pull_secrets: Box<[LocalObjectReference]> = 3 "imagePullSecrets",
        /// Whether pods get a token.
        automount_service_account_token: Option<bool> = 4 "automountServiceAccountToken",
    }
}

view!(ServiceAccount, "", "v1", "ServiceAccount", "serviceaccounts", true);

message! {
    /// Reference to an object by kind, namespace, name and uid.
    #[derive(serde::Serialize, Hash)]
    #[serde(rename_all = "camelCase")]
    pub struct ObjectReference("k8s.io.api.core.v1.ObjectReference") {
        /// Its kind.
        #[serde(skip_serializing_if = "str::is_empty")]
        kind: Text = 1 "kind",
        /// Its namespace.
        #[serde(skip_serializing_if = "str::is_empty")]
        namespace: Text = 2 "namespace",
        /// Its name.
        #[serde(skip_serializing_if = "str::is_empty")]
        name: Text = 3 "name",
        /// Its uid.
        #[serde(skip_serializing_if = "str::is_empty")]
        uid: Text = 4 "uid",
        /// Its version.
        #[serde(skip_serializing_if = "str::is_empty")]
        api_version: Text = 5 "apiVersion",
        /// Which version of it.
        #[serde(skip_serializing_if = "str::is_empty")]
        resource_version: Text = 6 "resourceVersion",
        /// Which part of it.
        #[serde(skip_serializing_if = "str::is_empty")]
        field_path: Text = 7 "fieldPath",
    }
}

message! {
    /// Configuration that pods read as variables or files.
    pub struct ConfigMap("k8s.io.api.core.v1.ConfigMap") {
        /// Metadata.
        meta: Meta = 1 "metadata",
        /// The configuration.
        data: StrMap = 2 "data",
        /// Whether it may not change.
        immutable: Option<bool> = 4 "immutable",
    }
}

view!(ConfigMap, "", "v1", "ConfigMap", "configmaps", true);

message! {
    /// Metadata and type of a Secret; its data is never decoded.
    pub struct Secret("k8s.io.api.core.v1.Secret") {
        /// Metadata.
        meta: Meta = 1 "metadata",
        /// Which keys it has.
        data: Map<Unread> = 2 "data",
        /// Its type.
        type_: Text = 3 "type",
    }
}

view!(Secret, "", "v1", "Secret", "secrets", true);
