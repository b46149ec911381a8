//! One controller crashes at its writes, while all others go on.

use crate::{
    accounts, autoscaling, budgets, claims, deletion, fixtures::MINUTE, identity, jobs, nodes,
    quotas, replicas, rollout, schedules, services, sets, volumes,
};
use evenkeel_sim::{FaultKind, Faults, Options, World, explore::Compared, part};

/// Crashes, and a restart that does not see the last write.
const CRASHES: [FaultKind; 3] =
    [FaultKind::CrashBefore, FaultKind::CrashAfter, FaultKind::StaleRestart];

/// Runs for each controller.
const RUNS: usize = 6;

/// Runs the scenario with crashes of one controller, which has to write in it.
fn crash(controller: &'static str, options: Options, scenario: &impl AsyncFn(&mut World, Faults)) {
    let options = Options { restart_delay: MINUTE / 6, ..options.alone(controller) };
    let compared = Compared::new(&options, scenario);
    assert!(compared.writes(part::ALONE) > 0, "{controller} writes nothing");
    compared.sample(part::ALONE, &CRASHES, RUNS);
}

#[test]
fn workloads() {
    let options = Options::default;
    crash("deployment-controller", options(), &rollout::rollout);
    crash("replicaset-controller", options(), &rollout::rollout);
    crash("replicationcontroller-controller", options(), &replicas::adoption);
    crash("statefulset-controller", options(), &sets::ordered_ready);
    crash("daemonset-controller", options(), &sets::daemon_set_max_surge);
    crash("job-controller", options(), &jobs::indexed);
    crash("cronjob-controller", options(), &schedules::runs_on_time);
    crash(
        "horizontal-pod-autoscaler-controller",
        autoscaling::options(),
        &autoscaling::scales_to_load,
    );
    crash("disruption-controller", options(), &budgets::drain);
}

#[test]
fn what_ends_objects() {
    let options = Options::default;
    crash("garbage-collector-controller", options(), &deletion::foreground);
    crash("namespace-controller", options(), &deletion::namespace);
    crash("pod-garbage-collector-controller", options(), &nodes::deleted_node);
    crash("node-lifecycle-controller", options(), &nodes::silent_node);
    crash("taint-eviction-controller", options(), &nodes::silent_node);
}

#[test]
fn services_and_accounts() {
    crash("endpointslice-controller", services::options(), &services::follow);
    crash("endpoints-controller", services::options(), &services::follow);
    crash("resourcequota-controller", Options::default(), &quotas::filled_and_emptied);
    crash("serviceaccount-token-controller", accounts::options(), &accounts::accounts_and_tokens);
    crash(
        "clusterrole-aggregation-controller",
        identity::without_nodes(),
        &identity::aggregated_roles,
    );
}

#[test]
fn storage() {
    crash("persistentvolume-binder-controller", volumes::options(), &volumes::provisioning);
    crash(
        "persistentvolume-attach-detach-controller",
        volumes::options(),
        &volumes::ephemeral_volume,
    );
    crash(
        "persistentvolumeclaim-protection-controller",
        volumes::options(),
        &volumes::ephemeral_volume,
    );
    crash("resourceclaim-controller", Options::default(), &claims::create_and_release);
}
