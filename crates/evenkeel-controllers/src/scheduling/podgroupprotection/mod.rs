//! PodGroup protection controller: keeps a PodGroup from being deleted while an active pod is its member.
//!
//! The admission plugin `PodGroupProtection` adds the finalizer to each new PodGroup. The controller only removes it.
//! Upstream: `pkg/controller/scheduling/podgroupprotection`.

mod plan;

use crate::{
    finalizers,
    needs::Resource,
    wiring::descriptor::{ControllerContext, Descriptor, StartError, Started},
};
use evenkeel_api::{View as _, time::Timestamp, views::Pod};
use evenkeel_runtime::{
    cache::{Cache, CacheEvent, Full, Index},
    introspect::Description,
    plan::{Key, Plan, Planner},
};
use k8s_openapi::api::scheduling::v1beta1;
use plan::Observed;

/// A PodGroup with all fields. There are few of them, compared to pods.
type PodGroup = Full<v1beta1::PodGroup>;

/// Descriptor of the PodGroup protection controller.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "podgroup-protection-controller",
    queue: "podgroupprotection",
    client: "podgroup-protection-controller",
    gates: &["GenericWorkload"],
    resources: &[Resource { group: "scheduling.k8s.io", version: "v1beta1", plural: "podgroups" }],
    start,
    ..Descriptor::DEFAULTS
};

fn start(context: &ControllerContext) -> Result<Started, StartError> {
    let groups = context.env.caches.of::<PodGroup>();
    let pods = context.env.caches.of::<Pod>();
    let planner = PodGroups {
        groups: groups.clone(),
        active_pods: pods.index("active-pod-group", |pod, key| {
            plan::active_group_key(pod).as_deref().into_iter().for_each(key);
        }),
    };
    let builder = context
        .builder_watching(&DESCRIPTOR, &groups, |event, enqueue| {
            let meta = event.object().meta();
            let is_deleted = matches!(event, CacheEvent::Deleted(_));
            if !is_deleted && finalizers::blocks_deletion(meta, plan::FINALIZER) {
                enqueue.add(Key::of(meta));
            }
        })
        .watches(&pods, |event, enqueue| {
            for group in plan::released_groups(event) {
                enqueue.add(group);
            }
        });
    context.run(builder.planned(planner));
    Ok(Started::Yes)
}

/// Decides whether a PodGroup needs the protection finalizer.
struct PodGroups {
    groups: Cache<PodGroup>,
    /// Active pods, by [`plan::active_group_key`].
    active_pods: Index<Pod>,
}

impl Planner for PodGroups {
    type Observed = Observed;
    type Memory = ();

    fn observe(&self, key: &Key, (): &()) -> Option<Observed> {
        let group = self.groups.get(&key.namespace, &key.name)?;
        let n_active_pods = self.active_pods.count(&key.to_string());
        Some(Observed { group, n_active_pods })
    }

    fn plan(&self, observed: &Observed, (): &(), _: Timestamp) -> (Plan, ()) {
        (plan::plan(observed), ())
    }

    fn describe(&self, observed: &Observed, _: Timestamp) -> Description {
        plan::describe(observed)
    }
}
