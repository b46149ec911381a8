//! Predicates: decide which events of a kind enqueue keys.

use crate::cache::{CacheEvent, Dynamic, Full, Object};
use evenkeel_api::{Meta, View};
use kube::api::DynamicObject;
use std::{
    fmt,
    sync::{Arc, Once},
};

/// Function that decides about an event. Returns `None` for an event of another type than its own.
type Test = dyn Fn(&CacheEvent<dyn Object>) -> Option<bool> + Send + Sync;

/// Filter of a kind's events. An event that it rejects enqueues nothing, but a reconcile that runs for another reason still
/// sees the change.
///
/// A predicate on objects of one type does not filter a watch of another type: all events pass, and an error is logged once.
///
/// ```
/// use evenkeel_runtime::prelude::*;
/// use k8s_openapi::api::core::v1::ConfigMap;
///
/// let edited = generation_changed().or(labels_changed());
/// let in_use = on_change(|old: &ConfigMap, new: &ConfigMap| old.data != new.data);
/// let both = edited.and(in_use.not());
/// ```
///
/// Upstream: `predicate.Predicate` of controller-runtime.
#[derive(Clone)]
pub struct Predicate(Arc<Test>);

impl fmt::Debug for Predicate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Predicate")
    }
}

impl Predicate {
    /// Returns a predicate on whole events of `K`.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # use evenkeel_test::example::reconcile;
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// # evenkeel_test::example::starts(|manager| {
    /// let with_data = Predicate::on_event::<ConfigMap>(|event| event.object().data.is_some());
    /// manager.controller::<ConfigMap>().when(with_data).reconcile(reconcile);
    /// # });
    /// ```
    pub fn on_event<K>(test: impl Fn(&CacheEvent<Full<K>>) -> bool + Send + Sync + 'static) -> Self
    where
        Full<K>: View,
    {
        Self::on_view_event(test)
    }

    /// Returns a predicate on whole events of a kind that is known only at run time.
    pub fn on_dynamic_event(
        test: impl Fn(&CacheEvent<Dynamic>) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self::on_view_event(test)
    }

    fn on_view_event<V: View>(
        test: impl Fn(&CacheEvent<V>) -> bool + Send + Sync + 'static,
    ) -> Self {
        let mismatch = Once::new();
        Self(Arc::new(move |event| {
            let mut passes = None;
            event.with(|event| passes = Some(test(event)));
            if passes.is_none() {
                mismatch.call_once(|| {
                    tracing::error!(
                        predicate = std::any::type_name::<V>(),
                        object = %event.object().meta().name,
                        "a predicate is for another type than the objects of its watch, so all their events pass; give the \
                         watch a predicate for their type"
                    );
                });
            }
            passes
        }))
    }

    /// Returns a predicate on the metadata before and after an update. Creations and deletions pass.
    ///
    /// ```
    /// # use evenkeel_runtime::prelude::*;
    /// # use evenkeel_test::example::reconcile;
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// # evenkeel_test::example::starts(|manager| {
    /// let deleted = Predicate::on_meta(|old, new| old.deleting() != new.deleting());
    /// manager.controller::<ConfigMap>().when(deleted).reconcile(reconcile);
    /// # });
    /// ```
    pub fn on_meta(test: impl Fn(&Meta, &Meta) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(move |event| match event {
            CacheEvent::Updated { old, new } => Some(test(old.meta(), new.meta())),
            CacheEvent::Added { .. } | CacheEvent::Deleted(_) => Some(true),
        }))
    }

    /// Returns the predicate that accepts events that both predicates accept.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(Arc::new(move |event| Some((self.0)(event)? && (other.0)(event)?)))
    }

    /// Returns the predicate that accepts events that at least one of the predicates accepts.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self(Arc::new(move |event| Some((self.0)(event)? || (other.0)(event)?)))
    }

    /// Returns the opposite predicate.
    #[must_use]
    #[expect(clippy::should_implement_trait, reason = "reads like `and` and `or`")]
    pub fn not(self) -> Self {
        Self(Arc::new(move |event| Some(!(self.0)(event)?)))
    }

    pub(super) fn passes(&self, event: &CacheEvent<dyn Object>) -> bool {
        (self.0)(event).unwrap_or(true)
    }
}

/// Passes updates that change `metadata.generation`: changes of the spec, not of the status, for kinds that have a
/// status sub-resource.
///
/// ```
/// # use evenkeel_runtime::prelude::*;
/// # use evenkeel_test::example::reconcile;
/// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
/// # evenkeel_test::example::starts(|manager| {
/// manager.controller::<ConfigMap>().when(generation_changed()).reconcile(reconcile);
/// # });
/// ```
///
/// Upstream: `GenerationChangedPredicate`.
#[doc(alias = "GenerationChangedPredicate")]
pub fn generation_changed() -> Predicate {
    Predicate::on_meta(|old, new| old.generation != new.generation)
}

/// Passes updates that change labels.
///
/// ```
/// # use evenkeel_runtime::prelude::*;
/// # use evenkeel_test::example::reconcile;
/// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
/// # evenkeel_test::example::starts(|manager| {
/// manager.controller::<ConfigMap>().when(labels_changed()).reconcile(reconcile);
/// # });
/// ```
///
/// Upstream: `LabelChangedPredicate`.
#[doc(alias = "LabelChangedPredicate")]
pub fn labels_changed() -> Predicate {
    Predicate::on_meta(|old, new| old.labels != new.labels)
}

/// Passes updates that change annotations.
///
/// ```
/// # use evenkeel_runtime::prelude::*;
/// # use evenkeel_test::example::reconcile;
/// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
/// # evenkeel_test::example::starts(|manager| {
/// manager.controller::<ConfigMap>().when(annotations_changed()).reconcile(reconcile);
/// # });
/// ```
///
/// Upstream: `AnnotationChangedPredicate`.
#[doc(alias = "AnnotationChangedPredicate")]
pub fn annotations_changed() -> Predicate {
    Predicate::on_meta(|old, new| old.annotations != new.annotations)
}

/// Passes updates that change the resource version: all but resyncs.
///
/// ```
/// # use evenkeel_runtime::prelude::*;
/// # use evenkeel_test::example::reconcile;
/// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
/// # evenkeel_test::example::starts(|manager| {
/// manager.controller::<ConfigMap>().when(resource_version_changed()).reconcile(reconcile);
/// # });
/// ```
///
/// Upstream: `ResourceVersionChangedPredicate`.
#[doc(alias = "ResourceVersionChangedPredicate")]
pub fn resource_version_changed() -> Predicate {
    Predicate::on_meta(|old, new| old.resource_version != new.resource_version)
}

/// Passes updates for whose old and new object `test` returns true. Creations and deletions pass.
///
/// ```
/// # use evenkeel_runtime::prelude::*;
/// # use evenkeel_test::example::reconcile;
/// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
/// # evenkeel_test::example::starts(|manager| {
/// let data = on_change(|old: &ConfigMap, new: &ConfigMap| old.data != new.data);
/// manager.controller::<ConfigMap>().when(data).reconcile(reconcile);
/// # });
/// ```
pub fn on_change<K>(test: impl Fn(&K, &K) -> bool + Send + Sync + 'static) -> Predicate
where
    K: kube::Resource,
    Full<K>: View,
{
    Predicate::on_event::<K>(move |event| match event {
        CacheEvent::Updated { old, new } => test(old, new),
        CacheEvent::Added { .. } | CacheEvent::Deleted(_) => true,
    })
}

/// Like [`on_change`], for a kind that is known only at run time.
///
/// ```
/// use evenkeel_runtime::prelude::*;
///
/// let resized = on_dynamic_change(|old, new| old.data["spec"]["size"] != new.data["spec"]["size"]);
/// ```
pub fn on_dynamic_change(
    test: impl Fn(&DynamicObject, &DynamicObject) -> bool + Send + Sync + 'static,
) -> Predicate {
    Predicate::on_dynamic_event(move |event| match event {
        CacheEvent::Updated { old, new } => test(old, new),
        CacheEvent::Added { .. } | CacheEvent::Deleted(_) => true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::{Value, json};

    fn object(metadata: &Value) -> Arc<dyn Object> {
        let map: ConfigMap = serde_json::from_value(json!({"metadata": metadata})).unwrap();
        Arc::new(Full::new(map))
    }

    #[test]
    fn predicates_compare_the_states_of_an_update() {
        let base = json!({"name": "a", "generation": 1, "resourceVersion": "1"});
        let changes = [
            json!({"name": "a", "generation": 1, "resourceVersion": "1"}),
            json!({"name": "a", "generation": 2, "resourceVersion": "2"}),
            json!({"name": "a", "generation": 1, "resourceVersion": "2", "labels": {"l": "1"}}),
            json!({"name": "a", "generation": 1, "resourceVersion": "2", "annotations": {"a": "1"}}),
        ];
        let table: [(Predicate, [bool; 4]); 7] = [
            (generation_changed(), [false, true, false, false]),
            (labels_changed(), [false, false, true, false]),
            (annotations_changed(), [false, false, false, true]),
            (resource_version_changed(), [false, true, true, true]),
            (generation_changed().or(labels_changed()), [false, true, true, false]),
            (resource_version_changed().and(labels_changed()), [false, false, true, false]),
            (
                on_change(|old: &ConfigMap, new: &ConfigMap| {
                    old.metadata.labels != new.metadata.labels
                })
                .not(),
                [true, true, false, true],
            ),
        ];
        for (at, (predicate, wanted)) in table.into_iter().enumerate() {
            let passed = changes.each_ref().map(|new| {
                predicate.passes(&CacheEvent::Updated { old: object(&base), new: object(new) })
            });
            assert_eq!(passed, wanted, "predicate {at}");
        }
        let gadget = |size: u32| -> Arc<dyn Object> {
            let gadget = json!({"apiVersion": "v1", "kind": "G", "spec": {"size": size}});
            Arc::new(Dynamic::new(serde_json::from_value(gadget).unwrap()))
        };
        let resized =
            on_dynamic_change(|old, new| old.data["spec"]["size"] != new.data["spec"]["size"]);
        for (size, wanted) in [(1, false), (2, true)] {
            let event = CacheEvent::Updated { old: gadget(1), new: gadget(size) };
            assert_eq!(resized.passes(&event), wanted, "size {size}");
        }
        // The predicates are for another type than these objects.
        let event = CacheEvent::Updated { old: gadget(1), new: gadget(2) };
        let never = || on_change(|_: &ConfigMap, _: &ConfigMap| false);
        for predicate in [never(), never().not(), never().and(resized.clone())] {
            assert!(predicate.passes(&event));
        }
        let added = CacheEvent::Added { object: object(&base), initial: false };
        assert!(generation_changed().passes(&added));
        assert!(!generation_changed().not().passes(&added));
    }
}
