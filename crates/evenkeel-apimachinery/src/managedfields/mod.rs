//! Managed fields, which record the owners of each field, and server-side apply (KEP-555).
//!
//! Upstream: `sigs.k8s.io/structured-merge-diff/v6`, `k8s.io/apimachinery/pkg/util/managedfields`.

#![deny(clippy::indexing_slicing)]

mod apply;
mod compare;
mod field_set;
mod last_applied;
mod managers;
mod merge;
mod merge_type;
mod path_element;
mod remove;
mod reset_fields;
mod scale;
mod to_field_set;
mod update;

use jiff::Timestamp;

pub(crate) use apply::apply;
pub(crate) use field_set::FieldSet;
pub(crate) use managers::keep_timestamps;
pub(crate) use scale::{to_parent, to_subresource};
pub(crate) use to_field_set::is_typed;
pub(crate) use update::update_managed_fields;

/// Manager and time of a write, as a managed fields entry records them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Write<'a> {
    pub manager: &'a str,
    /// Subresource of the write; empty for the object itself.
    pub subresource: &'a str,
    pub now: Timestamp,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::decode::json::Json;
    use crate::decode::typed;
    use crate::group_version::GroupVersionKind;
    use crate::schema::Schema;
    use crate::status::StatusError;

    /// Object of one kind with its stored state. `now` is the time of the last write in seconds.
    struct Object {
        kind: GroupVersionKind,
        schema: Schema,
        now: i64,
        live: Option<Value>,
    }

    impl Object {
        fn new(group: &str, kind: &str) -> Self {
            let schema = Schema::builtin(group, "v1", kind).expect("a built-in kind");
            let kind =
                GroupVersionKind { group: group.into(), version: "v1".into(), kind: kind.into() };
            Self { kind, schema, now: 0, live: None }
        }

        fn write<'a>(&mut self, manager: &'a str, subresource: &'a str) -> Write<'a> {
            self.now += 1;
            Write { manager, subresource, now: Timestamp::from_second(self.now).expect("in range") }
        }

        fn named(&self, body: &Value) -> Value {
            let mut body = body.clone();
            let map = body.as_object_mut().expect("an object");
            map.insert("apiVersion".into(), self.kind.api_version().into());
            map.insert("kind".into(), (*self.kind.kind).into());
            body
        }

        fn store(&mut self, object: &Value) {
            let (object, errors) = typed::decode(&Json::from(object), self.schema.type_ref());
            assert_eq!(errors.error, None);
            self.live = Some(object);
        }

        fn apply(&mut self, manager: &str, body: &Value, force: bool) -> Result<(), StatusError> {
            let write = self.write(manager, "");
            let done = apply(
                &self.schema,
                &self.kind,
                self.live.as_ref(),
                &self.named(body),
                &write,
                force,
            )?;
            let before = self.live.take();
            self.store(&done);
            if let (Some(old), Some(new)) = (before, self.live.as_mut()) {
                keep_timestamps(&old, new);
            }
            Ok(())
        }

        fn update(&mut self, manager: &str, subresource: &str, body: &Value) {
            let write = self.write(manager, subresource);
            let (mut object, _) =
                typed::decode(&Json::from(&self.named(body)), self.schema.type_ref());
            update_managed_fields(&self.schema, self.live.as_ref(), &mut object, &write, true);
            self.live = Some(object);
        }

        fn owned(&self, manager: &str) -> Value {
            let list = self
                .live
                .as_ref()
                .and_then(|o| o.pointer("/metadata/managedFields"))
                .and_then(Value::as_array);
            let entry = list.into_iter().flatten().find(|e| e["manager"] == manager);
            entry.map_or(Value::Null, |e| e["fieldsV1"].clone())
        }

        fn at(&self, pointer: &str) -> Value {
            self.live.as_ref().and_then(|o| o.pointer(pointer)).cloned().unwrap_or_default()
        }
    }

    #[test]
    fn updates_with_unidentifiable_items_do_not_change_managers() {
        let mut account = Object::new("", "ServiceAccount");
        let named = json!({"metadata": {"name": "a"}, "secrets": [{"name": "s"}]});
        let unnamed = json!({"metadata": {"name": "a"}, "secrets": [{}], "automountServiceAccountToken": true});
        account.update("one", "", &unnamed);
        assert_eq!(account.at("/metadata/managedFields"), Value::Null);
        account.live = None;
        account.update("one", "", &named);
        let owned = json!({"f:secrets": {".": {}, "k:{\"name\":\"s\"}": {}}});
        assert_eq!(account.owned("one"), owned);
        account.update("two", "", &unnamed);
        assert_eq!((account.owned("one"), account.owned("two")), (owned, Value::Null));
    }

    #[test]
    fn a_forced_apply_takes_ownership_of_conflicting_fields() {
        let mut map = Object::new("", "ConfigMap");
        map.apply("one", &json!({"metadata": {"name": "a"}, "data": {"k": "v", "l": "w"}}), false)
            .expect("applies");
        assert_eq!(map.owned("one"), json!({"f:data": {"f:k": {}, "f:l": {}}}));
        let conflicting = json!({"metadata": {"name": "a"}, "data": {"k": "x"}});
        let error = map.apply("two", &conflicting, false).expect_err("conflicts");
        assert_eq!(error.message(), "Apply failed with 1 conflict: conflict with \"one\": .data.k");
        map.apply("two", &conflicting, true).expect("applies");
        assert_eq!(map.at("/data"), json!({"k": "x", "l": "w"}));
        assert_eq!(
            (map.owned("one"), map.owned("two")),
            (json!({"f:data": {"f:l": {}}}), json!({"f:data": {"f:k": {}}}))
        );
    }

    #[test]
    fn fields_no_longer_applied_are_removed_unless_others_own_them() {
        let mut map = Object::new("", "ConfigMap");
        map.apply("one", &json!({"data": {"k": "v", "l": "w"}}), false).expect("applies");
        map.apply("two", &json!({"data": {"l": "w"}}), false).expect("shares");
        map.apply("one", &json!({"data": {}}), false).expect("applies");
        assert_eq!(map.at("/data"), json!({"l": "w"}));
        assert_eq!(map.owned("one"), json!({"f:data": {}}));
        map.apply("two", &json!({"metadata": {"labels": null}, "data": {"l": null}}), false)
            .expect("applies");
        assert_eq!(map.at("/data"), json!({"l": ""}));
        assert_eq!(
            map.owned("two"),
            json!({"f:data": {"f:l": {}}, "f:metadata": {"f:labels": {}}})
        );
    }

    #[test]
    fn each_value_of_a_set_has_its_own_owners() {
        let mut map = Object::new("", "ConfigMap");
        map.apply("one", &json!({"metadata": {"finalizers": ["e/a", "e/b"]}}), false)
            .expect("applies");
        map.apply("two", &json!({"metadata": {"finalizers": ["e/c"]}}), false).expect("applies");
        map.apply("one", &json!({"metadata": {"finalizers": ["e/b"]}}), false).expect("applies");
        assert_eq!(map.at("/metadata/finalizers"), json!(["e/b", "e/c"]));
        let error = map
            .apply("one", &json!({"metadata": {"name": "a", "finalizers": ["e/b", "e/b"]}}), false)
            .expect_err("twice");
        let want = "failed to create typed patch object (/a; /v1, Kind=ConfigMap): .metadata.finalizers: duplicate entries for key [=\"e/b\"]";
        assert_eq!((error.code().as_u16(), error.message()), (500, want));
        let error = map.apply("one", &json!({"nope": 1}), false).expect_err("unknown");
        assert!(error.message().ends_with(".nope: field not declared in schema"));
    }

    #[test]
    fn updates_own_changed_fields_and_release_removed_ones() {
        let mut map = Object::new("", "ConfigMap");
        map.apply("one", &json!({"data": {"k": "v", "l": "w"}}), false).expect("applies");
        map.update("patcher", "", &json!({"data": {"k": "p", "l": "w"}}));
        assert_eq!(
            (map.owned("one"), map.owned("patcher")),
            (json!({"f:data": {"f:l": {}}}), json!({"f:data": {"f:k": {}}}))
        );
        map.update("patcher", "", &json!({"data": {"k": "p"}}));
        assert_eq!(
            (map.owned("one"), map.owned("patcher")),
            (Value::Null, json!({"f:data": {"f:k": {}}}))
        );
        map.update("any", "", &json!({"metadata": {"managedFields": []}, "data": {"k": "p"}}));
        assert_eq!(map.at("/metadata/managedFields"), Value::Null);
        map.update("any", "", &json!({"data": {"k": "q"}}));
        assert_eq!(map.at("/metadata/managedFields"), Value::Null);
        map.apply("one", &json!({"data": {"k": "q"}}), false).expect("shares");
        assert_eq!(map.owned("before-first-apply"), json!({"f:data": {".": {}, "f:k": {}}}));
    }

    #[test]
    fn lists_of_objects_are_owned_by_key() {
        let mut deployment = Object::new("apps", "Deployment");
        let body = json!({"spec": {"selector": {"matchLabels": {"app": "x"}}, "template": {"metadata": {"labels": {"app": "x"}},
            "spec": {"containers": [{"name": "c", "image": "img:1", "ports": [{"containerPort": 80}]}]}}}});
        deployment.update("kubectl", "", &body);
        let want = json!({"f:spec": {"f:selector": {}, "f:template": {"f:metadata": {"f:labels": {".": {}, "f:app": {}}},
            "f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {".": {}, "f:image": {}, "f:name": {}, "f:ports": {".": {},
            "k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}}, "f:resources": {}}}}}}});
        assert_eq!(deployment.owned("kubectl"), want);
        let mut changed = deployment.live.clone().expect("stored");
        changed["status"] = json!({"replicas": 3});
        deployment.update("controller", "status", &changed);
        assert_eq!(deployment.owned("controller"), json!({"f:status": {"f:replicas": {}}}));
    }

    #[test]
    fn the_oldest_of_more_than_ten_updaters_are_merged() {
        let mut map = Object::new("", "ConfigMap");
        let mut data = serde_json::Map::new();
        for i in 0..14 {
            data.insert(format!("k{i}"), "v".into());
            map.update(&format!("m{i}"), "", &json!({"data": data}));
        }
        assert_eq!(map.at("/metadata/managedFields").as_array().map(Vec::len), Some(10));
        let ancient = map.owned("ancient-changes");
        assert_eq!(ancient["f:data"].as_object().map(serde_json::Map::len), Some(6));
    }

    #[test]
    fn kubectl_takes_fields_that_match_the_last_applied_annotation() {
        let mut map = Object::new("", "ConfigMap");
        let applied = r#"{"apiVersion":"v1","kind":"ConfigMap","data":{"k":"v"}}"#;
        let annotations = json!({"kubectl.kubernetes.io/last-applied-configuration": applied});
        map.update(
            "kubectl-client-side-apply",
            "",
            &json!({"metadata": {"annotations": annotations}, "data": {"k": "v"}}),
        );
        assert!(map.apply("other", &json!({"data": {"k": "x"}}), false).is_err());
        map.apply("kubectl", &json!({"data": {"k": "x"}}), false).expect("is excused");
        assert_eq!(map.at("/data"), json!({"k": "x"}));
        let annotation =
            map.at("/metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration");
        assert_eq!(
            annotation,
            "{\"apiVersion\":\"v1\",\"data\":{\"k\":\"x\"},\"kind\":\"ConfigMap\"}\n"
        );
    }

    fn body() -> impl Strategy<Value = Value> {
        let data = prop::option::of(prop::collection::btree_map("[a-c]", "[xy]", 0..3));
        let finalizers = prop::option::of(prop::collection::btree_set("[a-c]", 0..3));
        (data, finalizers).prop_map(|(data, finalizers)| {
            let mut body = json!({"metadata": {"name": "a"}});
            if let Some(data) = data {
                body["data"] = json!(data);
            }
            if let Some(finalizers) = finalizers {
                body["metadata"]["finalizers"] =
                    finalizers.into_iter().map(|f| format!("e/{f}")).collect();
            }
            body
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn applying_twice_changes_nothing(first in body(), update in body(), again in body()) {
            let mut map = Object::new("", "ConfigMap");
            map.apply("one", &first, true).expect("applies");
            map.update("other", "", &update);
            map.apply("two", &again, true).expect("applies");
            let once = map.live.clone();
            map.apply("two", &again, true).expect("applies");
            prop_assert_eq!(once, map.live);
        }

        #[test]
        fn applied_values_are_in_the_object(first in body(), second in body()) {
            let mut map = Object::new("", "ConfigMap");
            map.apply("one", &first, true).expect("applies");
            map.apply("two", &second, true).expect("applies");
            for (key, value) in second["data"].as_object().into_iter().flatten() {
                prop_assert_eq!(&map.at("/data")[key], value);
            }
        }
    }
}
