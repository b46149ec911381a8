//! ClusterRole aggregation controller: combines the rules of the selected ClusterRoles in aggregated ones. Upstream:
//! `pkg/controller/clusterroleaggregation`.

mod plan;

use crate::wiring::descriptor::{ControllerContext, Descriptor, StartError, Started};
use evenkeel_api::{time::Timestamp, views::ClusterRole};
use evenkeel_runtime::{
    cache::Cache,
    introspect::Description,
    plan::{Key, Plan, Planner},
};
use plan::Observed;

/// Number of workers. No flag changes it.
const WORKERS: usize = 5;

/// The ClusterRole aggregation controller. Upstream: `newClusterRoleAggregrationControllerDescriptor`.
pub const DESCRIPTOR: Descriptor = Descriptor {
    name: "clusterrole-aggregation-controller",
    aliases: &["clusterrole-aggregation"],
    queue: "ClusterRoleAggregator",
    client: "clusterrole-aggregation-controller",
    start,
    ..Descriptor::DEFAULTS
};

fn start(context: &ControllerContext) -> Result<Started, StartError> {
    let roles = context.env.caches.of::<ClusterRole>();
    // All aggregated roles have the same index key.
    let aggregated_roles = roles.index("aggregated", |role, key| {
        if role.aggregation_rule.is_some() {
            key("");
        }
    });
    // Any aggregated role may select the changed role by its old or new labels.
    let builder = context.builder_watching(&DESCRIPTOR, &roles, move |_, enqueue| {
        aggregated_roles.get("").iter().for_each(|role| enqueue.add(Key::of(&role.meta)));
    });
    context.run(builder.workers(WORKERS).planned(Aggregation { roles }));
    Ok(Started::Yes)
}

/// Decides the rules of an aggregated ClusterRole.
struct Aggregation {
    roles: Cache<ClusterRole>,
}

impl Planner for Aggregation {
    type Observed = Observed;
    type Memory = ();

    fn observe(&self, key: &Key, (): &()) -> Option<Observed> {
        let role = self.roles.get("", &key.name)?;
        let mut roles = self.roles.list();
        roles.sort_unstable_by(|a, b| a.meta.name.cmp(&b.meta.name));
        Some(Observed { role, roles })
    }

    fn describe(&self, observed: &Observed, _: Timestamp) -> Description {
        let mut description = Description::new();
        description.fact("put together from", plan::selected_names(observed).join(", "));
        description
    }

    fn plan(&self, observed: &Observed, (): &(), _: Timestamp) -> (Plan, ()) {
        (plan::plan(observed), ())
    }
}
