use super::*;
use crate::fixtures::{object, pod};
use evenkeel_api::views::PodSchedulingGroup;
use evenkeel_runtime::plan::Action;
use serde_json::json;

fn group(deletion: Option<&str>, finalizers: &[&str]) -> Arc<PodGroup> {
    Arc::new(object(&json!({
        "metadata": {
            "name": "g", "namespace": "ns", "uid": "u", "resourceVersion": "1",
            "deletionTimestamp": deletion, "finalizers": finalizers,
        },
        "spec": {"schedulingPolicy": {"basic": {}}},
    })))
}

/// Returns a pod in this phase. An empty group means that the pod has none.
fn member(group: &str, phase: &str, uid: &str) -> Arc<Pod> {
    let mut pod = pod("p", None);
    pod.meta.uid = uid.into();
    pod.status.phase = phase.into();
    pod.spec.scheduling_group =
        (!group.is_empty()).then(|| Box::new(PodSchedulingGroup { pod_group_name: group.into() }));
    Arc::new(pod)
}

#[test]
fn finalizer_is_removed_only_from_terminating_groups_without_active_pods() {
    let deleted = Some("2026-01-01T00:00:00Z");
    for (deletion, finalizers, n_active_pods, want) in [
        (None, &[FINALIZER][..], 0, None),
        (deleted, &[FINALIZER], 1, None),
        (deleted, &["x"], 0, None),
        (deleted, &["x", FINALIZER, "y"], 0, Some(r#"{"metadata":{"finalizers":["x","y"]}}"#)),
    ] {
        let observed = Observed { group: group(deletion, finalizers), n_active_pods };
        let plan = plan(&observed);
        let body = plan.actions.first().map(|action| match action {
            Action::Rewrite(rewrite) => {
                assert_eq!(&*rewrite.target.kind.plural, "podgroups");
                assert_eq!(&*rewrite.resource_version, "1");
                std::str::from_utf8(&rewrite.body).unwrap().to_owned()
            }
            other => panic!("{other:?}"),
        });
        assert_eq!(body.as_deref(), want, "{deletion:?} {finalizers:?} {n_active_pods}");
        let waits = describe(&observed).waits.len();
        assert_eq!(waits, usize::from(deletion.is_some() && n_active_pods > 0));
    }
}

#[test]
fn terminal_pods_keep_no_group() {
    for (group, phase, want) in [
        ("g", "Pending", Some("ns/g")),
        ("g", "Running", Some("ns/g")),
        ("g", "Succeeded", None),
        ("g", "Failed", None),
        ("", "Running", None),
    ] {
        assert_eq!(active_group_key(&member(group, phase, "a")).as_deref(), want, "{phase}");
    }
}

#[test]
fn ended_deleted_and_replaced_pods_release_their_groups() {
    let running = |group, uid| member(group, "Running", uid);
    let added = |object| CacheEvent::Added { object, initial: false };
    let updated = |old, new| CacheEvent::Updated { old, new };
    for (number, (event, want)) in [
        (added(running("g", "a")), &[][..]),
        (added(member("g", "Succeeded", "a")), &["ns/g"]),
        (added(member("", "Succeeded", "a")), &[]),
        (updated(running("g", "a"), running("g", "a")), &[]),
        (updated(running("g", "a"), member("g", "Failed", "a")), &["ns/g"]),
        (updated(running("old", "a"), running("new", "b")), &["ns/old"]),
        (updated(running("old", "a"), member("new", "Failed", "b")), &["ns/new", "ns/old"]),
        (CacheEvent::Deleted(running("g", "a")), &["ns/g"]),
        (CacheEvent::Deleted(running("", "a")), &[]),
    ]
    .into_iter()
    .enumerate()
    {
        let keys: Vec<String> = released_groups(&event).iter().map(Key::to_string).collect();
        assert_eq!(keys, want, "{number}");
    }
}
