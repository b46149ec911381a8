//! Data of both discovery formats: order of groups and versions, verbs and storage versions of resources.

use std::sync::Arc;

use base64::Engine as _;

use crate::resource::{ResourceType, Rows, Verb, Verbs};

/// Version, with its resources.
pub(super) type Version<'a> = (&'a str, Vec<&'a Arc<ResourceType>>);
/// Group, with its versions.
pub(super) type Group<'a> = (&'a str, Vec<Version<'a>>);

/// Returns groups in discovery's order, each with its versions in order of preference.
pub(super) fn groups(rows: &Rows) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for resource in &rows.all {
        let index =
            groups.iter().position(|(name, _)| *name == resource.group()).unwrap_or_else(|| {
                groups.push((resource.group(), Vec::new()));
                groups.len() - 1
            });
        let versions = &mut groups[index].1;
        match versions.iter_mut().find(|(version, _)| *version == resource.version()) {
            Some((_, resources)) => resources.push(resource),
            None => versions.push((resource.version(), vec![resource])),
        }
    }
    groups
}

/// Storage version hashes of kinds whose storage version or group is not the one that [`storage_version_hash`] assumes:
/// `apiVersion`, kind and hash.
const STORAGE_VERSION_HASHES: &[(&str, &str, &str)] = &[
    ("autoscaling/v1", "HorizontalPodAutoscaler", "qwQve8ut294="),
    ("certificates.k8s.io/v1", "ClusterTrustBundle", "v5yhuVertL4="),
    ("certificates.k8s.io/v1", "PodCertificateRequest", "wYA9yXQH8fg="),
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition", "jfWCUB31mvA="),
    ("resource.k8s.io/v1", "DeviceTaintRule", "i+85+TcIKpA="),
    ("storagemigration.k8s.io/v1", "StorageVersionMigration", "pCjmmKOkLy4="),
];

/// Returns a short hash of the storage version, or `None` for a resource without watches. Clients that migrate stored
/// objects detect a change of the storage version by it.
pub(super) fn storage_version_hash(resource: &ResourceType) -> Option<String> {
    if !resource.verbs.has(Verb::Watch) {
        return None;
    }
    if let Some(custom) = &resource.custom {
        let name =
            format!("{}/{}/{}", resource.group(), custom.definition.storage, resource.kind());
        return Some(hash_of(&name));
    }
    let known = STORAGE_VERSION_HASHES
        .iter()
        .find(|(version, kind, _)| **version == *resource.api_version && *kind == resource.kind());
    if let Some((_, _, hash)) = known {
        return Some((*hash).to_owned());
    }
    let group = if resource.group() == "events.k8s.io" { "" } else { resource.group() };
    let name = format!("{group}/{}/{}", resource.version(), resource.kind());
    Some(hash_of(&name))
}

/// Returns the first eight bytes of the SHA-256 hash in base64.
fn hash_of(name: &str) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, name.as_bytes());
    base64::engine::general_purpose::STANDARD.encode(&digest.as_ref()[..8])
}

/// Returns the verbs of a resource in upstream's order, which differs for custom resources.
pub(super) fn verbs(resource: &ResourceType, verbs: Verbs) -> Vec<&'static str> {
    const CUSTOM_RESOURCE_ORDER: [Verb; 8] = [
        Verb::Delete,
        Verb::DeleteCollection,
        Verb::Get,
        Verb::List,
        Verb::Patch,
        Verb::Create,
        Verb::Update,
        Verb::Watch,
    ];
    let order = if resource.custom.is_some() { CUSTOM_RESOURCE_ORDER } else { Verb::ALL };
    order.into_iter().filter(|verb| verbs.has(*verb)).map(Verb::as_str).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::Table;

    #[test]
    fn storage_version_hashes_equal_upstreams() {
        let table = Table::builtin();
        let hash = |version: &str, name: &str| {
            table.get(version, name).as_deref().and_then(storage_version_hash).unwrap_or_default()
        };
        assert_eq!(hash("apps/v1", "deployments"), "8aSe+NMegvE=");
        assert_eq!(hash("v1", "configmaps"), "qFsyl6wFWjQ=");
        assert_eq!(hash("autoscaling/v1", "horizontalpodautoscalers"), "qwQve8ut294=");
        assert_eq!(hash("v1", "bindings"), "");
    }
}
