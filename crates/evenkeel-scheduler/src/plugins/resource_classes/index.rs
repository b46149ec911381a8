//! Index of DeviceClasses by extended resource (KEP-5004). It does no I/O.
//!
//! A class may set `extendedResourceName`; every class also has the implicit name
//! `deviceclass.resource.kubernetes.io/NAME`.
//!
//! Upstream: `extendedresourcecache`.

use evenkeel_api::{Text, views::DeviceClass};
use std::{cmp::Reverse, collections::HashMap, sync::Arc};

use crate::resources::is_extended;

/// Prefix of the implicit resource names of classes.
const IMPLICIT_NAME_PREFIX: &str = "deviceclass.resource.kubernetes.io/";

/// Returns the implicit resource name of a class.
pub(in crate::plugins) fn implicit_resource_name(class: &str) -> String {
    format!("{IMPLICIT_NAME_PREFIX}{class}")
}

/// Returns whether devices may provide the resource.
pub(in crate::plugins) fn may_be_provided_by_devices(resource: &str) -> bool {
    is_extended(resource) || resource.starts_with(IMPLICIT_NAME_PREFIX)
}

/// DeviceClasses by extended resource.
#[derive(Debug, Default)]
pub(super) struct ClassIndex {
    classes: HashMap<Text, Arc<DeviceClass>>,
    /// Classes by resource. The first lookup after a change rebuilds them.
    by_resource: Option<HashMap<Box<str>, Arc<DeviceClass>>>,
}

impl ClassIndex {
    /// Adds or replaces a class.
    pub(super) fn set(&mut self, class: Arc<DeviceClass>) {
        self.by_resource = None;
        self.classes.insert(class.meta.name.clone(), class);
    }

    /// Removes a class.
    pub(super) fn remove(&mut self, name: &str) {
        self.by_resource = None;
        self.classes.remove(name);
    }

    /// Returns the class of an extended resource. If several classes provide it, the newest applies. Among equally old
    /// classes, the first by name applies.
    pub(super) fn class_of(&mut self, resource: &str) -> Option<Arc<DeviceClass>> {
        let by_resource =
            self.by_resource.get_or_insert_with(|| classes_by_resource(&self.classes));
        by_resource.get(resource).map(Arc::clone)
    }
}

/// Returns the class that provides each resource. Later classes have precedence.
fn classes_by_resource(
    classes: &HashMap<Text, Arc<DeviceClass>>,
) -> HashMap<Box<str>, Arc<DeviceClass>> {
    let mut in_ascending_precedence: Vec<_> = classes.values().collect();
    in_ascending_precedence.sort_by_key(|class| (class.meta.creation, Reverse(&class.meta.name)));
    let mut by_resource = HashMap::new();
    for class in in_ascending_precedence {
        by_resource.insert(implicit_resource_name(&class.meta.name).into(), Arc::clone(class));
        let explicit_name = &class.spec.extended_resource_name;
        if !explicit_name.is_empty() {
            by_resource.insert((&**explicit_name).into(), Arc::clone(class));
        }
    }
    by_resource
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_api::{Encoding, View as _};
    use serde_json::json;

    fn class(name: &str, second: u32, resource: &str) -> Arc<DeviceClass> {
        let class = json!({
            "metadata": {"name": name, "creationTimestamp": format!("2027-01-15T08:00:0{second}Z")},
            "spec": {"extendedResourceName": resource},
        });
        Arc::new(DeviceClass::decode(class.to_string().as_bytes(), Encoding::Json).unwrap())
    }

    #[test]
    fn the_newest_class_of_a_resource_applies() {
        let mut classes = ClassIndex::default();
        let class_name = |classes: &mut ClassIndex, resource: &str| {
            classes.class_of(resource).map_or(String::new(), |class| class.meta.name.to_string())
        };
        assert_eq!(class_name(&mut classes, "example.com/gpu"), "");
        for (name, second, resource, expected) in [
            ("b", 1, "example.com/gpu", "b"),
            ("c", 1, "example.com/gpu", "b"),
            ("a", 1, "example.com/gpu", "a"),
            ("z", 2, "example.com/gpu", "z"),
            ("y", 3, "", "z"),
            ("z", 2, "example.com/other", "a"),
            ("z", 2, "example.com/gpu", "z"),
        ] {
            classes.set(class(name, second, resource));
            assert_eq!(
                class_name(&mut classes, "example.com/gpu"),
                expected,
                "after {name} {resource}"
            );
        }
        assert_eq!(class_name(&mut classes, "deviceclass.resource.kubernetes.io/y"), "y");
        assert_eq!(class_name(&mut classes, "example.com/other"), "");
        classes.remove("z");
        assert_eq!(class_name(&mut classes, "example.com/gpu"), "a");
        assert_eq!(class_name(&mut classes, "deviceclass.resource.kubernetes.io/z"), "");
    }

    #[test]
    fn devices_may_provide_extended_resources_and_implicit_names() {
        for (resource, may) in [
            ("example.com/gpu", true),
            ("deviceclass.resource.kubernetes.io/gpu", true),
            ("cpu", false),
            ("hugepages-2Mi", false),
            ("kubernetes.io/batch", false),
            ("requests.example.com/gpu", false),
        ] {
            assert_eq!(may_be_provided_by_devices(resource), may, "{resource}");
        }
    }
}
