//! Owner references with their checks.

use crate::client::Metadata;
use evenkeel_api::Kind;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{
    Resource,
    api::{ApiResource, DynamicObject},
};
use std::any::Any;

/// Error of setting an owner reference.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OwnerError {
    /// The owner has no uid or name, because the server has not stored it yet.
    #[error("{owner} cannot own: it has no uid yet; use the object that the server returned")]
    NotStored {
        /// Kind and name of the owner.
        owner: String,
    },
    /// The owner is a dynamic object without `types`, such as an item of a list from kube's `Api`.
    #[error("{owner} cannot own: it has no apiVersion and kind; set its `types`")]
    NoType {
        /// Name of the owner.
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

/// Source of the `apiVersion` and kind of objects: their Rust type, or their `types` field. Implemented for the `DynamicType`s
/// of types of `k8s-openapi` and derived ones, and of kube's `DynamicObject`.
pub trait KindSource: Send + Sync + Sized + 'static {
    /// Returns the `apiVersion` and the kind of an object, if it has them.
    fn type_of<K: Resource<DynamicType = Self> + 'static>(object: &K) -> Option<(String, String)>;
}

impl KindSource for () {
    fn type_of<K: Resource<DynamicType = Self> + 'static>(_: &K) -> Option<(String, String)> {
        Some((K::api_version(&()).into_owned(), K::kind(&()).into_owned()))
    }
}

impl KindSource for ApiResource {
    fn type_of<K: Resource<DynamicType = Self> + 'static>(object: &K) -> Option<(String, String)> {
        let object: &dyn Any = object;
        let types = object.downcast_ref::<DynamicObject>()?.types.clone()?;
        Some((types.api_version, types.kind))
    }
}

/// Owner references of an object. Implemented for all types of `k8s-openapi`, derived ones, and kube's `DynamicObject`.
///
/// ```
/// use evenkeel_runtime::prelude::*;
/// use k8s_openapi::api::core::v1::{ConfigMap, Secret};
///
/// let mut owner = ConfigMap::default();
/// owner.metadata.name = Some("owner".to_owned());
/// owner.metadata.uid = Some("1-2-3".to_owned());
/// let mut child = Secret::default();
/// child.controlled_by(&owner)?;
/// assert!(child.is_controlled_by(&owner) && child.has_owner(&owner));
/// assert!(child.remove_owner(&owner));
/// assert_eq!(child.metadata.owner_references, None);
/// # Ok::<_, evenkeel_runtime::operator::OwnerError>(())
/// ```
pub trait OwnerExt: Resource {
    /// Makes `owner` the controller of this object: the garbage collector deletes the object with its owner, and
    /// [`ControllerBuilder::owns`](super::ControllerBuilder::owns) maps its events to the owner. An object without a namespace
    /// gets its owner's namespace.
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
    /// Fails if the owner is not stored yet, is in another namespace, or another owner controls the object.
    ///
    /// Upstream: `controllerutil.SetControllerReference`.
    fn controlled_by<O>(&mut self, owner: &O) -> Result<(), OwnerError>
    where
        O: Resource<DynamicType: KindSource> + 'static,
        Self: Resource<DynamicType: KindSource> + Sized + 'static,
    {
        set_owner(self, &Owner::of(owner)?, true)
    }

    /// Like [`OwnerExt::controlled_by`], for an owner that is known as metadata only.
    ///
    /// # Errors
    /// Fails as [`OwnerExt::controlled_by`] does.
    fn controlled_by_metadata(&mut self, kind: &Kind, owner: &Metadata) -> Result<(), OwnerError>
    where
        Self: Resource<DynamicType: KindSource> + Sized + 'static,
    {
        set_owner(self, &Owner::of_metadata(kind, owner), true)
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
    /// Fails if the owner is not stored yet, or is in another namespace.
    ///
    /// Upstream: `controllerutil.SetOwnerReference`.
    fn owned_by<O>(&mut self, owner: &O) -> Result<(), OwnerError>
    where
        O: Resource<DynamicType: KindSource> + 'static,
        Self: Resource<DynamicType: KindSource> + Sized + 'static,
    {
        set_owner(self, &Owner::of(owner)?, false)
    }

    /// Returns whether `owner` is an owner of this object, controlling or not. The uid decides.
    ///
    /// Upstream: `controllerutil.HasOwnerReference`, which compares names.
    fn has_owner(&self, owner: &impl Resource) -> bool {
        let uid = owner.meta().uid.as_ref();
        let mut owners = self.meta().owner_references.iter().flatten();
        uid.is_some() && owners.any(|known| Some(&known.uid) == uid)
    }

    /// Removes `owner` from the owners of this object. Returns whether it was an owner.
    ///
    /// Upstream: `controllerutil.RemoveOwnerReference`.
    fn remove_owner(&mut self, owner: &impl Resource) -> bool {
        let (Some(uid), Some(owners)) = (&owner.meta().uid, &mut self.meta_mut().owner_references)
        else {
            return false;
        };
        let before = owners.len();
        owners.retain(|known| known.uid != *uid);
        let is_removed = owners.len() < before;
        if owners.is_empty() {
            self.meta_mut().owner_references = None;
        }
        is_removed
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

/// Owner of an object, of any type.
struct Owner {
    api_version: String,
    kind: String,
    namespace: Option<String>,
    name: Option<String>,
    uid: Option<String>,
}

impl Owner {
    fn of<O: Resource<DynamicType: KindSource> + 'static>(owner: &O) -> Result<Self, OwnerError> {
        let meta = owner.meta();
        let Some((api_version, kind)) = O::DynamicType::type_of(owner) else {
            return Err(OwnerError::NoType { owner: meta.name.clone().unwrap_or_default() });
        };
        let (namespace, name, uid) = (meta.namespace.clone(), meta.name.clone(), meta.uid.clone());
        Ok(Self { api_version, kind, namespace, name, uid })
    }

    fn of_metadata(kind: &Kind, Metadata { meta }: &Metadata) -> Self {
        let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Self {
            api_version: kind.api_version().into_owned(),
            kind: kind.kind.to_string(),
            namespace: text(&meta.namespace),
            name: text(&meta.name),
            uid: text(&meta.uid),
        }
    }
}

fn set_owner<K>(dependent: &mut K, owner: &Owner, controls: bool) -> Result<(), OwnerError>
where
    K: Resource<DynamicType: KindSource> + 'static,
{
    let Owner { api_version, kind, namespace, name, uid } = owner;
    let owner_name = format!("{kind} {}", name.as_deref().unwrap_or_default());
    let (Some(name), Some(uid)) = (name, uid) else {
        return Err(OwnerError::NotStored { owner: owner_name });
    };
    if let (Some(namespace), None) = (namespace, &dependent.meta().namespace) {
        dependent.meta_mut().namespace = Some(namespace.clone());
    }
    if namespace.is_some() && *namespace != dependent.meta().namespace {
        return Err(OwnerError::OtherNamespace {
            owner: owner_name,
            namespace: namespace.clone().unwrap_or_default(),
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
        api_version: api_version.clone(),
        kind: kind.clone(),
        name: name.clone(),
        uid: uid.clone(),
        controller: controls.then_some(true),
        block_owner_deletion: controls.then_some(true),
    });
    Ok(())
}

fn describe<K: Resource<DynamicType: KindSource> + 'static>(object: &K) -> String {
    let meta = object.meta();
    let name = meta.name.as_deref().or(meta.generate_name.as_deref()).unwrap_or_default();
    let kind =
        K::DynamicType::type_of(object).map_or_else(|| "object".to_owned(), |(_, kind)| kind);
    match &meta.namespace {
        Some(namespace) => format!("{kind} {namespace}/{name}"),
        None => format!("{kind} {name}"),
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

    fn gadget(name: &str, uid: Option<&str>) -> DynamicObject {
        let kind = ApiResource::erase::<ConfigMap>(&());
        DynamicObject { metadata: meta(Some("a"), name, uid), ..DynamicObject::new(name, &kind) }
    }

    #[test]
    fn dynamic_objects_own_and_are_owned() {
        let (owner, mut child) = (gadget("owner", Some("u")), gadget("child", None));
        child.controlled_by(&owner).unwrap();
        child.controlled_by(&map(Some("a"), Some("u"))).unwrap();
        let owners = child.metadata.owner_references.clone().unwrap();
        let [reference] = &owners[..] else { panic!("{owners:?}") };
        assert_eq!((&*reference.api_version, &*reference.kind), ("v1", "ConfigMap"));
        assert!(child.is_controlled_by(&owner) && child.has_owner(&owner));
        assert_eq!(
            child.controlled_by(&gadget("second", Some("v"))).unwrap_err().to_string(),
            "ConfigMap a/child is controlled by ConfigMap owner already"
        );
        let untyped = DynamicObject { types: None, ..owner };
        assert_eq!(
            child.owned_by(&untyped).unwrap_err().to_string(),
            "owner cannot own: it has no apiVersion and kind; set its `types`"
        );
        // The uid decides.
        assert!(!child.remove_owner(&gadget("owner", Some("v"))) && child.remove_owner(&untyped));
        assert!(!child.remove_owner(&untyped) && !child.has_owner(&untyped));
        assert_eq!(child.metadata.owner_references, None);
    }

    #[test]
    fn an_owner_may_be_known_by_its_metadata() {
        let kind = Kind::new("example.com", "v1", "Gadget", "gadgets", true);
        let mut owner = Metadata::default();
        owner.meta.name = "owner".into();
        owner.meta.namespace = "a".into();
        let mut child = secret(None);
        assert_eq!(
            child.controlled_by_metadata(&kind, &owner).unwrap_err().to_string(),
            "Gadget owner cannot own: it has no uid yet; use the object that the server returned"
        );
        owner.meta.uid = "u".into();
        child.controlled_by_metadata(&kind, &owner).unwrap();
        let reference = &child.metadata.owner_references.unwrap()[0];
        assert_eq!((&*reference.api_version, reference.controller), ("example.com/v1", Some(true)));
        assert_eq!(child.metadata.namespace.as_deref(), Some("a"));
    }
}
