//! Owner references with their checks.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource;

/// Error of setting an owner reference.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OwnerError {
    /// The owner has no uid or name, because the server has not stored it yet.
    #[error("{owner} cannot own: it has no uid yet; use the object that the server returned")]
    NotStored {
        /// Kind and name of the owner.
        owner: String,
    },
    /// A namespaced owner is in another namespace, or its dependent is cluster-scoped.
    #[error(
        "{owner} in namespace {namespace} cannot own {dependent}: an owner is in its dependents' namespace or cluster-scoped"
    )]
    OtherNamespace {
        /// Kind and name of the owner.
        owner: String,
        /// Namespace of the owner.
        namespace: String,
        /// Kind, namespace and name of the dependent.
        dependent: String,
    },
    /// Another owner controls the object already.
    #[error("{dependent} is controlled by {controller} already")]
    AlreadyControlled {
        /// Kind, namespace and name of the dependent.
        dependent: String,
        /// Kind and name of its controller.
        controller: String,
    },
}

/// Owner references of an object. Implemented for all types of `k8s-openapi` and derived ones.
pub trait OwnerExt: Resource {
    /// Makes `owner` the controller of this object: the garbage collector deletes the object with its owner, and
    /// [`ControllerBuilder::owns`](super::ControllerBuilder::owns) maps its events to the owner. An object without a
    /// namespace gets that of its owner.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// # let mut map = ConfigMap::default();
    /// # map.metadata.name = Some("settings".to_owned());
    /// # map.metadata.namespace = Some("default".to_owned());
    /// map.metadata.uid = Some("1".to_owned()); // as the server returns it
    /// let mut secret = Secret::default();
    /// secret.controlled_by(&map)?;
    /// assert!(secret.is_controlled_by(&map));
    /// assert_eq!(secret.metadata.namespace.as_deref(), Some("default"));
    /// # Ok::<_, evenkeel_runtime::operator::OwnerError>(())
    /// ```
    ///
    /// # Errors
    /// When the owner is not stored yet, is in another namespace, or another owner controls the object.
    ///
    /// Upstream: `controllerutil.SetControllerReference`.
    fn controlled_by<O: Resource<DynamicType = ()>>(&mut self, owner: &O) -> Result<(), OwnerError>
    where
        Self: Resource<DynamicType = ()>,
    {
        set_owner(self, owner, true)
    }

    /// Adds `owner` as an owner that does not control this object.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// # let mut map = ConfigMap::default();
    /// # map.metadata.name = Some("settings".to_owned());
    /// # map.metadata.namespace = Some("default".to_owned());
    /// map.metadata.uid = Some("1".to_owned()); // as the server returns it
    /// let mut secret = Secret::default();
    /// secret.owned_by(&map)?;
    /// assert!(!secret.is_controlled_by(&map));
    /// # Ok::<_, evenkeel_runtime::operator::OwnerError>(())
    /// ```
    ///
    /// # Errors
    /// When the owner is not stored yet, or is in another namespace.
    ///
    /// Upstream: `controllerutil.SetOwnerReference`.
    fn owned_by<O: Resource<DynamicType = ()>>(&mut self, owner: &O) -> Result<(), OwnerError>
    where
        Self: Resource<DynamicType = ()>,
    {
        set_owner(self, owner, false)
    }

    /// Returns whether the object with this uid controls this object.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// # let mut map = ConfigMap::default();
    /// # map.metadata.name = Some("settings".to_owned());
    /// # map.metadata.namespace = Some("default".to_owned());
    /// map.metadata.uid = Some("1".to_owned()); // as the server returns it
    /// let mut secret = Secret::default();
    /// assert!(!secret.is_controlled_by(&map));
    /// ```
    fn is_controlled_by(&self, owner: &impl Resource) -> bool {
        let uid = owner.meta().uid.as_ref();
        let owners = self.meta().owner_references.iter().flatten();
        uid.is_some()
            && owners.into_iter().any(|o| o.controller == Some(true) && Some(&o.uid) == uid)
    }
}

impl<K: Resource> OwnerExt for K {}

fn set_owner<K, O>(dependent: &mut K, owner: &O, controls: bool) -> Result<(), OwnerError>
where
    K: Resource<DynamicType = ()> + ?Sized,
    O: Resource<DynamicType = ()>,
{
    let (kind, meta) = (O::kind(&()).into_owned(), owner.meta());
    let owner_name = format!("{kind} {}", meta.name.as_deref().unwrap_or_default());
    let (Some(name), Some(uid)) = (&meta.name, &meta.uid) else {
        return Err(OwnerError::NotStored { owner: owner_name });
    };
    if let (Some(namespace), None) = (&meta.namespace, &dependent.meta().namespace) {
        dependent.meta_mut().namespace = Some(namespace.clone());
    }
    if meta.namespace.is_some() && meta.namespace != dependent.meta().namespace {
        return Err(OwnerError::OtherNamespace {
            owner: owner_name,
            namespace: meta.namespace.clone().unwrap_or_default(),
            dependent: describe(dependent),
        });
    }
    let described = describe(dependent);
    let owners = dependent.meta_mut().owner_references.get_or_insert_default();
    let controller = owners.iter().find(|o| o.controller == Some(true) && o.uid != *uid);
    if let Some(other) = controller.filter(|_| controls) {
        return Err(OwnerError::AlreadyControlled {
            dependent: described,
            controller: format!("{} {}", other.kind, other.name),
        });
    }
    owners.retain(|o| o.uid != *uid);
    owners.push(OwnerReference {
        api_version: O::api_version(&()).into_owned(),
        kind,
        name: name.clone(),
        uid: uid.clone(),
        controller: controls.then_some(true),
        block_owner_deletion: controls.then_some(true),
    });
    Ok(())
}

fn describe<K: Resource<DynamicType = ()> + ?Sized>(object: &K) -> String {
    let meta = object.meta();
    let name = meta.name.as_deref().or(meta.generate_name.as_deref()).unwrap_or_default();
    match &meta.namespace {
        Some(namespace) => format!("{} {namespace}/{name}", K::kind(&())),
        None => format!("{} {name}", K::kind(&())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::{
        api::core::v1::{ConfigMap, Namespace, Secret},
        apimachinery::pkg::apis::meta::v1::ObjectMeta,
    };

    fn meta(namespace: Option<&str>, name: &str, uid: Option<&str>) -> ObjectMeta {
        ObjectMeta {
            namespace: namespace.map(str::to_owned),
            name: Some(name.to_owned()),
            uid: uid.map(str::to_owned),
            ..ObjectMeta::default()
        }
    }

    fn map(namespace: Option<&str>, uid: Option<&str>) -> ConfigMap {
        ConfigMap { metadata: meta(namespace, "owner", uid), ..ConfigMap::default() }
    }

    fn secret(namespace: Option<&str>) -> Secret {
        Secret { metadata: meta(namespace, "child", None), ..Secret::default() }
    }

    #[test]
    fn the_child_gets_its_owners_namespace_and_one_reference() {
        let mut child = secret(None);
        for _ in 0..2 {
            child.controlled_by(&map(Some("a"), Some("u"))).unwrap();
        }
        assert_eq!(child.metadata.namespace.as_deref(), Some("a"));
        let owners = child.metadata.owner_references.clone().unwrap();
        assert_eq!(owners.len(), 1);
        assert_eq!(
            (&*owners[0].api_version, &*owners[0].kind, &*owners[0].uid, owners[0].controller),
            ("v1", "ConfigMap", "u", Some(true))
        );
        assert!(child.is_controlled_by(&map(Some("a"), Some("u"))));
        assert!(!child.is_controlled_by(&map(Some("a"), Some("other"))));
        assert!(!child.is_controlled_by(&map(Some("a"), None)));
    }

    #[test]
    fn wrong_owners_are_errors_that_name_both_objects() {
        let cases = [
            (
                map(Some("a"), None),
                secret(Some("a")),
                "ConfigMap owner cannot own: it has no uid yet; use the object that the server returned",
            ),
            (
                map(Some("b"), Some("u")),
                secret(Some("a")),
                "ConfigMap owner in namespace b cannot own Secret a/child: an owner is in its dependents' namespace or cluster-scoped",
            ),
        ];
        for (owner, mut child, wanted) in cases {
            assert_eq!(child.controlled_by(&owner).unwrap_err().to_string(), wanted);
        }
        let mut child = secret(Some("a"));
        child.controlled_by(&map(Some("a"), Some("u"))).unwrap();
        let other =
            ConfigMap { metadata: meta(Some("a"), "second", Some("v")), ..ConfigMap::default() };
        assert_eq!(
            child.controlled_by(&other).unwrap_err().to_string(),
            "Secret a/child is controlled by ConfigMap owner already"
        );
        child.owned_by(&other).unwrap();
        let cluster = Namespace { metadata: meta(None, "a", Some("n")), ..Namespace::default() };
        child.owned_by(&cluster).unwrap();
        assert_eq!(child.metadata.owner_references.unwrap().len(), 3);
    }
}
