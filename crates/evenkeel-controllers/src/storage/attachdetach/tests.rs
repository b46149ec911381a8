//! Table tests of plans for a node and its volumes.

use super::{
    Options,
    plan::{
        self, AttachedVolume, Decision, DesiredVolume, Memory, Observed, ReservedVolumes,
        attachment_name, is_managed,
    },
};
use crate::fixtures::{T0, at, object, pod};
use evenkeel_api::{
    time::Timestamp,
    views::{Node, PersistentVolume, VolumeAttachment},
};
use evenkeel_component_helpers::storage::attach;
use evenkeel_runtime::plan::Action;
use serde_json::{Value, json};
use std::sync::Arc;

fn plan(observed: &Observed, options: &Options, now: Timestamp) -> Decision {
    plan::plan(observed, options, now)
}

/// Returns the PersistentVolume `v` of the CSI driver `d`, with this access mode.
fn volume(mode: &str) -> Arc<PersistentVolume> {
    Arc::new(object(&json!({"metadata": {"name": "v"}, "spec": {"accessModes": [mode],
        "csi": {"driver": "d", "volumeHandle": "h"}}})))
}

/// Returns the node `n`: its `Ready` status, whether it has `v` in use or attached, and whether it is out of service.
fn node(ready: &str, in_use: bool, attached: bool, out_of_service: bool) -> Arc<Node> {
    let name = "kubernetes.io/csi/d^h";
    let in_use = if in_use { json!([name]) } else { json!([]) };
    let attached = if attached { json!([{"name": name, "devicePath": ""}]) } else { json!([]) };
    let taints = if out_of_service {
        json!([{"key": "node.kubernetes.io/out-of-service"}])
    } else {
        json!([])
    };
    Arc::new(object(&json!({"metadata": {"name": "n", "uid": "n"}, "spec": {"taints": taints},
        "status": {"conditions": [{"type": "Ready", "status": ready}], "volumesInUse": in_use, "volumesAttached": attached}})))
}

/// Returns the volume `v` that the pod `p` uses. The pod `q` uses it on each node of `other_nodes`.
fn desired(mode: &str, other_nodes: &[&str]) -> DesiredVolume {
    let volume = volume(mode);
    DesiredVolume {
        name: attach::attached_name(&volume).unwrap().into(),
        volume_name: "v".into(),
        volume: Some(volume),
        pods: vec![Arc::new(pod("p", None))],
        other_nodes: other_nodes.iter().map(|node| (*node).into()).collect(),
        pods_elsewhere: other_nodes.iter().map(|_| Arc::new(pod("q", None))).collect(),
    }
}

/// Returns the attachment of `v` to `n`.
fn attached_volume(attached: bool, terminating: bool) -> AttachedVolume {
    let mut attachment: VolumeAttachment = object(
        &json!({"metadata": {"name": attachment_name("h", "d", "n"), "uid": "a"},
        "spec": {"attacher": "d", "nodeName": "n", "source": {"persistentVolumeName": "v"}}, "status": {"attached": attached}}),
    );
    attachment.meta.deletion = terminating.then_some(T0);
    AttachedVolume {
        name: attach::attached_name(&volume("ReadWriteOnce")).map(Into::into),
        attachment: Arc::new(attachment),
    }
}

fn observed(
    node: Option<Arc<Node>>,
    desired: Vec<DesiredVolume>,
    attached_volume: Vec<AttachedVolume>,
    memory: Memory,
) -> Observed {
    let reserved = ReservedVolumes::default();
    Observed {
        name: "n".into(),
        node,
        last_node: None,
        desired,
        actual: attached_volume,
        memory,
        reserved,
    }
}

fn action_summaries(decision: &Decision) -> Vec<String> {
    let summaries = decision.plan.actions.iter().map(|action| match action {
        Action::Create(create) => {
            let body: Value = serde_json::from_slice(&create.body).unwrap();
            format!("create {}", body["spec"]["source"]["persistentVolumeName"])
        }
        Action::Delete(delete) => {
            assert_eq!(*delete.target.name, *attachment_name("h", "d", "n"));
            "delete".to_owned()
        }
        Action::Patch(patch) => {
            let body: Value = serde_json::from_slice(&patch.body).unwrap();
            format!("report {}", body["status"]["volumesAttached"].as_array().unwrap().len())
        }
        Action::Event(event) => format!("{}: {}", event.reason, event.message),
        other => panic!("{other:?}"),
    });
    summaries.collect()
}

#[test]
fn attachment_name_is_a_hash() {
    let name = attachment_name("h", "d", "n");
    assert_eq!(name.len(), 4 + 64);
    assert!(name[4..].bytes().all(|byte| byte.is_ascii_hexdigit()));
}

#[test]
fn pods_and_node_status_decide_about_attach_and_detach() {
    let (once, many) = ("ReadWriteOnce", "ReadWriteMany");
    let up = |in_use, attached| Some(node("True", in_use, attached, false));
    let no_memory = Memory::default;
    let options = Options::default();
    let success = "SuccessfulAttachVolume: AttachVolume.Attach succeeded for volume \"v\" ";
    let multi_attach_message = "FailedAttachVolume: Waiting for detach for volume \"v\" Volume is already used by pod(s) q";
    let table: [(&str, Observed, Vec<&str>); 10] = [
        (
            "desired",
            observed(up(false, false), vec![desired(once, &[])], vec![], no_memory()),
            vec!["create \"v\""],
        ),
        (
            "being attached",
            observed(
                up(false, false),
                vec![desired(once, &[])],
                vec![attached_volume(false, false)],
                no_memory(),
            ),
            vec![],
        ),
        (
            "attached",
            observed(
                up(false, false),
                vec![desired(once, &[])],
                vec![attached_volume(true, false)],
                no_memory(),
            ),
            vec!["report 1", success],
        ),
        (
            "settled",
            observed(
                up(true, true),
                vec![desired(once, &[])],
                vec![attached_volume(true, false)],
                no_memory(),
            ),
            vec![],
        ),
        (
            "still mounted",
            observed(up(true, true), vec![], vec![attached_volume(true, false)], no_memory()),
            vec![],
        ),
        (
            "unmounted",
            observed(up(false, true), vec![], vec![attached_volume(true, false)], no_memory()),
            vec!["report 0", "delete"],
        ),
        (
            "detaching",
            observed(
                up(false, false),
                vec![desired(once, &[])],
                vec![attached_volume(true, true)],
                no_memory(),
            ),
            vec![],
        ),
        (
            "attached to another node",
            observed(up(false, false), vec![desired(once, &["m"])], vec![], no_memory()),
            vec![multi_attach_message],
        ),
        (
            "ReadWriteMany",
            observed(up(false, false), vec![desired(many, &["m"])], vec![], no_memory()),
            vec!["create \"v\""],
        ),
        (
            "out of service",
            observed(
                Some(node("False", true, true, true)),
                vec![],
                vec![attached_volume(true, false)],
                no_memory(),
            ),
            vec!["report 0", "delete"],
        ),
    ];
    for (case, observed, want) in table {
        assert_eq!(action_summaries(&plan(&observed, &options, T0)), want, "{case}");
    }
}

#[test]
fn only_removals_from_node_status_need_the_same_version() {
    let version = |attached, desired| {
        let mut node = node("True", false, attached, false);
        Arc::get_mut(&mut node).unwrap().meta.resource_version = "7".into();
        let observed =
            observed(Some(node), desired, vec![attached_volume(true, false)], Memory::default());
        let decision = plan(&observed, &Options::default(), T0);
        let Some(Action::Patch(patch)) = decision.plan.actions.first() else {
            panic!("{decision:?}")
        };
        let body: Value = serde_json::from_slice(&patch.body).unwrap();
        body["metadata"]["resourceVersion"].clone()
    };
    assert_eq!(version(true, vec![]), "7");
    assert_eq!(version(false, vec![desired("ReadWriteOnce", &[])]), Value::Null);
}

#[test]
fn csi_drivers_attach_in_tree_volumes() {
    let disk = |modes: &[&str], other_nodes: &[&str]| {
        let volume: PersistentVolume = object(&json!({"metadata": {"name": "v"},
            "spec": {"accessModes": modes, "gcePersistentDisk": {"pdName": "d"}}}));
        DesiredVolume {
            name: attach::attached_name(&volume).unwrap().into(),
            volume: Some(Arc::new(volume)),
            ..desired("ReadWriteOnce", other_nodes)
        }
    };
    let (driver, handle) =
        ("pd.csi.storage.gke.io", "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d");
    let plan_for = |desired: DesiredVolume| {
        let node = Some(node("True", false, false, false));
        plan(&observed(node, vec![desired], vec![], Memory::default()), &Options::default(), T0)
            .plan
    };
    let once = disk(&["ReadWriteOnce"], &[]);
    assert_eq!(*once.name, format!("kubernetes.io/csi/{driver}^{handle}"));
    let requested = plan_for(once);
    let [Action::Create(create)] = &*requested.actions else { panic!("{requested:?}") };
    let body: Value = serde_json::from_slice(&create.body).unwrap();
    assert_eq!(body["metadata"]["name"], attachment_name(handle, driver, "n"));
    assert_eq!(
        body["spec"],
        json!({"attacher": driver, "nodeName": "n", "source": {"persistentVolumeName": "v"}})
    );
    let shared =
        |modes: &[&str]| matches!(&*plan_for(disk(modes, &["m"])).actions, [Action::Create(_)]);
    assert!(shared(&[]) && shared(&["ReadOnlyMany"]) && !shared(&["ReadWriteMany"]));
}

#[test]
fn iscsi_volumes_are_reported_in_node_status() {
    const NAME: &str = "kubernetes.io/iscsi/10.0.0.1:3260:iqn.x:0";
    let node = |ready: &str, in_use: bool, attached: bool| {
        let mut status = json!({"conditions": [{"type": "Ready", "status": ready}]});
        if in_use {
            status["volumesInUse"] = json!([NAME]);
        }
        if attached {
            status["volumesAttached"] = json!([{"name": NAME, "devicePath": ""}]);
        }
        Some(Arc::new(object::<Node>(&json!({"metadata": {"name": "n"}, "status": status}))))
    };
    let inline = || DesiredVolume {
        name: NAME.into(),
        volume_name: "disk".into(),
        volume: None,
        ..desired("ReadWriteOnce", &[])
    };
    let disk: Arc<PersistentVolume> = Arc::new(object(&json!({"metadata": {"name": "v"},
        "spec": {"accessModes": ["ReadWriteOnce"],
            "iscsi": {"targetPortal": "10.0.0.1:3260", "iqn": "iqn.x", "lun": 0}}})));
    let bound = |other_nodes: &[&str]| DesiredVolume {
        name: NAME.into(),
        volume: Some(Arc::clone(&disk)),
        ..desired("ReadWriteOnce", other_nodes)
    };
    let (inlined, success) = (
        "SuccessfulAttachVolume: AttachVolume.Attach succeeded for volume \"disk\" ",
        "SuccessfulAttachVolume: AttachVolume.Attach succeeded for volume \"v\" ",
    );
    let multi_attach_message = "FailedAttachVolume: Waiting for detach for volume \"v\" Volume is already used by pod(s) q";
    /// Name of the case, the node, its desired volumes, and the expected actions.
    type Row = (&'static str, Option<Arc<Node>>, Vec<DesiredVolume>, Vec<&'static str>);
    let table: [Row; 8] = [
        ("inline", node("True", false, false), vec![inline()], vec!["report 1", inlined]),
        ("bound", node("True", false, false), vec![bound(&[])], vec!["report 1", success]),
        ("reported", node("True", false, true), vec![bound(&[])], vec![]),
        (
            "reported, and attached to another node",
            node("True", false, true),
            vec![bound(&["m"])],
            vec![],
        ),
        (
            "attached to another node",
            node("True", false, false),
            vec![bound(&["m"])],
            vec![multi_attach_message],
        ),
        ("still mounted", node("True", true, true), vec![], vec![]),
        ("unmounted", node("True", false, true), vec![], vec!["report 0"]),
        ("missing node", None, vec![bound(&[])], vec![]),
    ];
    let options = Options::default();
    for (case, node, desired, want) in table {
        let decision = plan(&observed(node, desired, vec![], Memory::default()), &options, T0);
        assert_eq!(action_summaries(&decision), want, "{case}");
        assert_eq!(decision.plan.requeue.is_some(), case == "attached to another node", "{case}");
    }
    let lost = |memory| observed(node("Unknown", true, true), vec![], vec![], memory);
    let first = plan(&lost(Memory::default()), &options, T0);
    assert!(first.plan.actions.is_empty());
    let late = plan(&lost(first.memory), &options, at(360));
    assert_eq!(
        (action_summaries(&late), late.memory.forced_detaches),
        (vec!["report 0".to_owned()], vec!["timeout"])
    );
}

#[test]
fn attachments_of_others_are_kept() {
    let undesired = |id: &str, known: bool| {
        let mut attached_volume = attached_volume(false, false);
        attached_volume.name = attached_volume.name.filter(|_| known);
        Arc::get_mut(&mut attached_volume.attachment).unwrap().meta.name = id.into();
        let node = Some(node("True", false, false, false));
        action_summaries(&plan(
            &observed(node, vec![], vec![attached_volume], Memory::default()),
            &Options::default(),
            T0,
        ))
    };
    let foreign = ["a", "csi-", &attachment_name("other", "d", "n")];
    assert_eq!(foreign.map(|id| undesired(id, true).len()), [0, 0, 0]);
    assert_eq!(["a", "csi-0"].map(|id| undesired(id, false).len()), [0, 0]);
    // The volume does not exist, but the attachment has the name that this controller generates.
    assert_eq!(undesired(&attachment_name("h", "d", "n"), false), ["delete"]);
}

#[test]
fn force_detach_waits_for_the_timeout() {
    let options = Options::default();
    let lost = |memory| {
        observed(
            Some(node("Unknown", true, true, false)),
            vec![],
            vec![attached_volume(true, false)],
            memory,
        )
    };
    let first = plan(&lost(Memory::default()), &options, T0);
    assert!(first.plan.actions.is_empty() && first.memory.detaching.len() == 1);
    let early = plan(&lost(first.memory.clone()), &options, at(359));
    assert!(early.plan.actions.is_empty());
    let late = plan(&lost(first.memory.clone()), &options, at(360));
    assert_eq!(action_summaries(&late), ["report 0", "delete"]);
    assert_eq!(late.memory.forced_detaches, ["timeout"]);
    let never = Options { force_detach: false, ..options };
    assert!(plan(&lost(first.memory), &never, at(9999)).plan.actions.is_empty());
}

#[test]
fn deleted_node_keeps_its_last_volumes_in_use() {
    let options = Options::default();
    let gone = |last_node| Observed {
        last_node,
        ..observed(None, vec![], vec![attached_volume(true, false)], Memory::default())
    };
    let used = |in_use| Some(node("True", in_use, true, false));
    for (last, want) in [(used(true), 0), (used(false), 1), (None, 1)] {
        assert_eq!(plan(&gone(last), &options, T0).plan.actions.len(), want);
    }
    let first = plan(&gone(used(true)), &options, T0);
    let late = Observed { memory: first.memory, ..gone(used(true)) };
    assert_eq!(action_summaries(&plan(&late, &options, at(360))), ["delete"]);
}

#[test]
fn reserved_volume_is_not_attached_to_another_node() {
    let options = Options::default();
    let node = || Some(node("True", false, false, false));
    let observed_node = |name: &str, desired: Vec<DesiredVolume>| Observed {
        name: name.into(),
        ..observed(node(), desired, vec![], Memory::default())
    };
    let wants = |name: &str, mode: &str| observed_node(name, vec![desired(mode, &[])]);
    // Returns the number of actions, and whether the node is requeued.
    let decide = |reserved: &mut ReservedVolumes, observed: Observed, now| {
        let observed = Observed { reserved: reserved.clone(), ..observed };
        let decision = plan::plan(&observed, &options, now);
        reserved.record(&observed, &decision.memory, now);
        (action_summaries(&decision).len(), decision.plan.requeue.is_some())
    };
    let once = "ReadWriteOnce";
    // Access mode of the volume on `n`, a later pass, its time, and its result.
    for (mode, later, now, want) in [
        (once, wants("m", once), at(1), (0, true)),
        (once, wants("n", once), at(1), (1, false)),
        (once, wants("m", once), at(10), (1, false)),
        ("ReadWriteMany", wants("m", "ReadWriteMany"), at(1), (1, false)),
    ] {
        let mut reserved = ReservedVolumes::default();
        assert_eq!(decide(&mut reserved, wants("n", mode), T0), (1, false));
        let name = Arc::clone(&later.name);
        assert_eq!(decide(&mut reserved, later, now), want, "{mode} at {name}");
    }
    let mut reserved = ReservedVolumes::default();
    decide(&mut reserved, wants("n", once), T0);
    decide(&mut reserved, observed_node("n", vec![]), T0);
    assert_eq!(decide(&mut reserved, wants("m", once), T0), (1, false), "no longer desired");
}

#[test]
fn attach_timeout_is_reported_at_intervals() {
    let options = Options { sync_period: None, ..Options::default() };
    let waits = |memory| {
        let node = Some(node("True", false, false, false));
        observed(
            node,
            vec![desired("ReadWriteOnce", &[])],
            vec![attached_volume(false, false)],
            memory,
        )
    };
    let late = "FailedAttachVolume: AttachVolume.Attach failed for volume \"v\" : \
                timed out waiting for external-attacher of d CSI driver to attach volume h";
    let mut memory = Memory::default();
    for (seconds, want, left) in
        [(0, &[][..], 120), (119, &[], 1), (120, &[late], 120), (200, &[], 40), (240, &[late], 120)]
    {
        let decision = plan(&waits(memory), &options, at(seconds));
        assert_eq!(action_summaries(&decision), want, "after {seconds}");
        assert_eq!(decision.plan.requeue.map(|wait| wait.as_secs()), Some(left), "after {seconds}");
        memory = decision.memory;
    }
}

#[test]
fn multi_attach_is_reported_once() {
    let wants = |memory| {
        observed(
            Some(node("True", false, false, false)),
            vec![desired("ReadWriteOnce", &["m"])],
            vec![],
            memory,
        )
    };
    let first = plan(&wants(Memory::default()), &Options::default(), T0);
    assert_eq!(first.plan.actions.len(), 1);
    assert!(plan(&wants(first.memory), &Options::default(), T0).plan.actions.is_empty());
}

#[test]
fn node_is_managed_with_any_annotation_value() {
    let key = "volumes.kubernetes.io/controller-managed-attach-detach";
    for (annotations, want) in
        [(json!({}), false), (json!({key: "true"}), true), (json!({key: "false"}), true)]
    {
        let node: Node = object(&json!({"metadata": {"name": "n", "annotations": annotations}}));
        assert_eq!(is_managed(&node), want, "{annotations}");
    }
}
