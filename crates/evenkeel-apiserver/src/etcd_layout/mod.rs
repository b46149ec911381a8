//! Layout of objects in etcd, the same as kube-apiserver's: keys, storage versions and encodings.
//!
//! | objects | path below the prefix | value |
//! |---|---|---|
//! | built-in kinds | `/RESOURCE`, apart from [`SPECIAL_PATHS`] | protobuf of the storage version |
//! | CustomResourceDefinitions | `/GROUP/RESOURCE` | JSON, `v1beta1` |
//! | APIServices | `/GROUP/RESOURCE` | JSON, `v1` |
//! | custom resources | `/GROUP/RESOURCE` | JSON of the storage version that the definition had at the last write |
//!
//! Upstream: `NewStorageFactoryConfig`, `CreateAPIExtensionsConfig`, `CreateAggregatorConfig`.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]
#![deny(clippy::indexing_slicing)]

mod definitions;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_api::protobuf::{Envelope, MAGIC, Transcoder};
use serde_json::Value;

use crate::event_ttl;
use crate::resource::{ResourcePrefix, ResourceType, Table};
use crate::selector::selection_attributes;
use crate::store::{Encoded, Layout, SelectionAttributes};

/// Paths of resources whose path is not the name of the resource. Upstream: `SpecialDefaultResourcePrefixes`.
const SPECIAL_PATHS: [(&str, &str); 5] = [
    ("/replicationcontrollers", "/controllers"),
    ("/endpoints", "/services/endpoints"),
    ("/nodes", "/minions"),
    ("/services", "/services/specs"),
    ("networking.k8s.io/ingresses", "/ingress"),
];

/// Returns the path of a resource's keys below the prefix, such as `/services/specs`.
///
/// Upstream: `DefaultStorageFactory.ResourcePrefix`.
pub(crate) fn path_of(resource: &ResourceType) -> String {
    let (group, plural) = (resource.group(), resource.plural());
    match find(&SPECIAL_PATHS, &resource.resource_prefix) {
        Some(path) => path.to_owned(),
        None if resource.custom.is_some() || JSON_GROUPS.contains(&group) => {
            format!("/{group}/{plural}")
        }
        None => format!("/{plural}"),
    }
}

/// Returns the value of a resource prefix in a table.
fn find(table: &[(&str, &'static str)], resource_prefix: &str) -> Option<&'static str> {
    table.iter().find(|(known, _)| *known == resource_prefix).map(|(_, value)| *value)
}

/// Storage versions of resources that are not stored in the version that this server stores elsewhere. Both versions have
/// the same message. Upstream: `ResourceEncodingOverrides`.
const STORAGE_VERSIONS: [(&str, &str); 4] = [
    ("certificates.k8s.io/clustertrustbundles", "certificates.k8s.io/v1beta1"),
    ("certificates.k8s.io/podcertificaterequests", "certificates.k8s.io/v1beta1"),
    ("resource.k8s.io/devicetaintrules", "resource.k8s.io/v1beta2"),
    ("storagemigration.k8s.io/storageversionmigrations", "storagemigration.k8s.io/v1beta1"),
];

/// Groups whose objects are JSON, below a path with the group.
const JSON_GROUPS: [&str; 2] = ["apiextensions.k8s.io", "apiregistration.k8s.io"];

/// Resource prefix of the bitmaps of allocated values, such as node ports.
pub(crate) const RANGES: &str = "ranges";
/// Resource prefix of the addresses of running servers.
pub(crate) const MASTER_LEASES: &str = "masterleases";

/// Time for which a server counts as running after it has announced its address. Upstream:
/// `DefaultEndpointReconcilerTTL`.
const MASTER_LEASE_TTL: Duration = Duration::from_secs(15);

/// Objects that are stored but not served, each with its path and kind.
const INTERNAL: [(&str, &str, &str); 2] =
    [(RANGES, "/ranges", "RangeAllocation"), (MASTER_LEASES, "/masterleases", "Endpoints")];

/// Layout of the built-in kinds and of custom resources.
pub(crate) struct EtcdLayout {
    /// Stored kinds by resource prefix.
    kinds: HashMap<ResourcePrefix, StoredKind>,
    /// Resource prefixes by path.
    prefixes: HashMap<String, ResourcePrefix>,
    /// Time to live of events.
    event_ttl: Duration,
}

/// Layout of the stored objects of a kind.
struct StoredKind {
    path: String,
    kind: String,
    /// `apiVersion` of objects in this server.
    api_version: String,
    /// `apiVersion` of stored objects.
    storage_version: String,
    encoding: Encoding,
    /// Type for the attributes of selectors; `None` for objects that are not served.
    resource: Option<Arc<ResourceType>>,
}

/// Encoding of stored objects of a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Encoding {
    Protobuf,
    Json,
    /// JSON of a CustomResourceDefinition.
    Definition,
}

impl EtcdLayout {
    /// Returns the layout of the built-in kinds. Custom resources need no entries. Events expire after `event_ttl`.
    pub(crate) fn builtin(event_ttl: Duration) -> Self {
        let rows = Table::builtin().rows();
        let stored = rows.all.iter().filter(|row| row.stored && row.custom.is_none());
        let kinds = stored.map(|row| (row.resource_prefix.clone(), StoredKind::of(row)));
        let internal = INTERNAL.map(|(prefix, path, kind)| {
            let kind = StoredKind {
                path: path.to_owned(),
                kind: kind.to_owned(),
                api_version: "v1".to_owned(),
                storage_version: "v1".to_owned(),
                encoding: Encoding::Protobuf,
                resource: None,
            };
            (prefix.into(), kind)
        });
        let kinds: HashMap<ResourcePrefix, StoredKind> = kinds.chain(internal).collect();
        let prefixes =
            kinds.iter().map(|(prefix, kind)| (kind.path.clone(), prefix.clone())).collect();
        Self { kinds, prefixes, event_ttl }
    }
}

impl StoredKind {
    fn of(row: &Arc<ResourceType>) -> Self {
        let (prefix, group) = (&*row.resource_prefix, row.group());
        let encoding = match (row.kind(), JSON_GROUPS.contains(&group)) {
            ("CustomResourceDefinition", _) => Encoding::Definition,
            (_, true) => Encoding::Json,
            (_, false) => Encoding::Protobuf,
        };
        let storage_version =
            find(&STORAGE_VERSIONS, prefix).unwrap_or(&row.api_version).to_owned();
        Self {
            path: path_of(row),
            kind: row.kind().to_owned(),
            api_version: row.api_version.to_string(),
            storage_version,
            encoding,
            resource: Some(row.clone()),
        }
    }

    fn selection(&self, object: &Value) -> SelectionAttributes {
        match &self.resource {
            Some(resource) => selection_attributes(resource, object),
            None => SelectionAttributes::default(),
        }
    }

    /// Decodes the protobuf of a stored object.
    fn decode_protobuf(&self, stored: &[u8]) -> Result<Value, String> {
        let envelope = Envelope::open(stored).map_err(|error| error.to_string())?;
        let is_known = *envelope.api_version == self.storage_version
            || *envelope.api_version == self.api_version;
        if !is_known || *envelope.kind != self.kind {
            let Envelope { api_version, kind, .. } = &envelope;
            return Err(format!("it is a {kind} of {api_version}, which this server cannot read"));
        }
        Transcoder::decode(&self.api_version, &self.kind, envelope.raw)
            .map_err(|error| error.to_string())
    }
}

impl Layout for EtcdLayout {
    fn path(&self, resource_prefix: &str) -> String {
        match self.kinds.get(resource_prefix) {
            Some(kind) => kind.path.clone(),
            None => format!("/{}", resource_prefix.trim_start_matches('/')),
        }
    }

    fn locate<'p>(&self, path: &'p str) -> Option<(ResourcePrefix, &'p str)> {
        let mut slashes = path.match_indices('/').map(|(index, _)| index).skip(1);
        let (first, second) = (slashes.next()?, slashes.next());
        let split = |end: usize| Some((path.get(..end)?, path.get(end..)?.strip_prefix('/')?));
        // The path of a resource has one or two elements.
        for end in second.into_iter().chain([first]) {
            let (resource, key) = split(end)?;
            if let Some(prefix) = self.prefixes.get(resource) {
                return Some((prefix.clone(), key));
            }
        }
        // The group of a custom resource has a dot, unlike the name of a built-in resource.
        let is_custom = path.get(..first)?.contains('.');
        let (resource, key) = second.filter(|_| is_custom).and_then(split)?;
        Some((resource.strip_prefix('/')?.into(), key))
    }

    fn encode(&self, resource_prefix: &str, object: &Value) -> Result<Vec<u8>, String> {
        let Some(kind) = self.kinds.get(resource_prefix) else { return Ok(json(object)) };
        match kind.encoding {
            Encoding::Json => Ok(json(object)),
            Encoding::Definition => Ok(json(&definitions::to_storage(object))),
            Encoding::Protobuf => {
                let message = Transcoder::encode(&kind.api_version, &kind.kind, object);
                let message = message.map_err(|error| error.to_string())?;
                Ok(Envelope::seal(&kind.storage_version, &kind.kind, &message))
            }
        }
    }

    fn decode(&self, resource_prefix: &str, stored: &[u8]) -> Result<Encoded, String> {
        let kind = self.kinds.get(resource_prefix);
        let object = match kind {
            Some(kind) if stored.starts_with(MAGIC) => kind.decode_protobuf(stored)?,
            _ => evenkeel_api::json::from_slice(stored).map_err(|error| error.to_string())?,
        };
        let mut object = match kind {
            Some(StoredKind { encoding: Encoding::Definition, .. }) => {
                definitions::from_storage(object)
            }
            _ => object,
        };
        if !object.is_object() {
            return Err("it is not an object".to_owned());
        }
        // Upstream sets defaults also when it reads, so that stored objects may lack them.
        if let Some(resource) = kind.and_then(|kind| kind.resource.as_ref()) {
            resource.strategy.default(&mut object);
        }
        let selection = match kind {
            Some(kind) => kind.selection(&object),
            None => SelectionAttributes::new(&object, |_| ()),
        };
        Ok(Encoded::new(&object, selection))
    }

    fn expiring(&self) -> Vec<(ResourcePrefix, Duration)> {
        vec![
            (event_ttl::RESOURCE_PREFIX.into(), self.event_ttl),
            (MASTER_LEASES.into(), MASTER_LEASE_TTL),
        ]
    }
}

/// Encodes an object as JSON without a resource version, with the newline of Go's encoder.
fn json(object: &Value) -> Vec<u8> {
    let mut bytes = Encoded::plain(object);
    bytes.push(b'\n');
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_those_of_upstream() {
        let layout = EtcdLayout::builtin(Duration::ZERO);
        for (prefix, key, path) in [
            ("/pods", "default/p", "/pods/default/p"),
            ("/services", "default/s", "/services/specs/default/s"),
            ("/endpoints", "default/s", "/services/endpoints/default/s"),
            ("/nodes", "n", "/minions/n"),
            ("/replicationcontrollers", "a/b", "/controllers/a/b"),
            ("/events", "a/b", "/events/a/b"),
            ("apps/deployments", "a/b", "/deployments/a/b"),
            ("networking.k8s.io/ingresses", "a/b", "/ingress/a/b"),
            ("networking.k8s.io/ipaddresses", "10.0.0.1", "/ipaddresses/10.0.0.1"),
            (
                "apiextensions.k8s.io/customresourcedefinitions",
                "as.b.c",
                "/apiextensions.k8s.io/customresourcedefinitions/as.b.c",
            ),
            (
                "apiregistration.k8s.io/apiservices",
                "v1.",
                "/apiregistration.k8s.io/apiservices/v1.",
            ),
            ("example.com/widgets", "a/b", "/example.com/widgets/a/b"),
            ("example.com/pods", "b", "/example.com/pods/b"),
            (RANGES, "servicenodeports", "/ranges/servicenodeports"),
            (MASTER_LEASES, "10.0.0.1", "/masterleases/10.0.0.1"),
        ] {
            assert_eq!(format!("{}/{key}", layout.path(prefix)), path);
            assert_eq!(layout.locate(path), Some((prefix.into(), key)), "{path}");
        }
        for unknown in ["/podsecuritypolicy/a", "/a/b/c", "/example.com/a", "/pods", "", "/"] {
            assert_eq!(layout.locate(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn an_object_of_another_version_is_not_read() {
        let layout = EtcdLayout::builtin(Duration::ZERO);
        let stored = |version: &str, kind: &str| Envelope::seal(version, kind, b"");
        for (prefix, value, expected) in [
            ("/pods", stored("v1", "Pod"), true),
            ("/pods", stored("v1", "Node"), false),
            ("batch/cronjobs", stored("batch/v1beta1", "CronJob"), false),
            (
                "resource.k8s.io/devicetaintrules",
                stored("resource.k8s.io/v1beta2", "DeviceTaintRule"),
                true,
            ),
            ("example.com/widgets", b"{}".to_vec(), true),
            ("example.com/widgets", b"[]".to_vec(), false),
        ] {
            assert_eq!(layout.decode(prefix, &value).is_ok(), expected, "{prefix}");
        }
    }
}
