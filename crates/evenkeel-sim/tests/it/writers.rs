//! Every controller writes in some scenario with faults, so that the faults hit it.

use crate::{
    accounts, autoscaling, budgets, claims, deletion, devices, identity, jobs, nodes, protection,
    quotas, replicas, rollout, schedules, services, sets, upkeep, volumes,
};
use evenkeel_controllers::wiring::descriptor::descriptors;
use evenkeel_sim::{Options, explore::writers};
use std::collections::BTreeSet;

/// Service accounts of controllers that write in no scenario, each with the reason.
const EXCEPTIONS: [(&str, &str); 3] = [
    ("podgroup-protection-controller", "the gate GenericWorkload is off by default"),
    ("resourcepoolstatusrequest-controller", "the gate DRAResourcePoolStatus is off by default"),
    ("storage-version-garbage-collector", "the gate StorageVersionAPI is off by default"),
];

#[test]
fn every_controller_writes_in_some_scenario() {
    let (plain, alone) = (Options::default(), identity::without_nodes());
    let seen = [
        writers(&plain, &accounts::accounts_and_tokens),
        writers(&autoscaling::options(), &autoscaling::scales_to_load),
        writers(&plain, &budgets::drain),
        writers(&plain, &claims::create_and_release),
        writers(&plain, &deletion::foreground),
        writers(&plain, &deletion::namespace),
        writers(&devices::options(), &devices::taint_a_device),
        writers(&alone, &identity::aggregated_roles),
        writers(&alone, &identity::certificates_are_issued),
        writers(&alone, &identity::tokens_sign_and_expire),
        writers(&plain, &jobs::completes),
        writers(&plain, &nodes::deleted_node),
        writers(&plain, &nodes::silent_node),
        writers(&alone, &protection::trust_bundles),
        writers(&alone, &protection::pod_certificate_requests),
        writers(&alone, &protection::attributes_class_in_use),
        writers(&plain, &protection::claim_in_use),
        writers(&alone, &protection::expansion_of_a_migrated_volume),
        writers(&plain, &protection::conflicting_labels),
        writers(&plain, &quotas::filled_and_emptied),
        writers(&plain, &replicas::adoption),
        writers(&plain, &rollout::rollout),
        writers(&plain, &schedules::runs_on_time),
        writers(&services::options(), &services::follow),
        writers(&services::options(), &services::mirror),
        writers(&services::options(), &services::ranges),
        writers(&plain, &sets::ordered_ready),
        writers(&plain, &sets::daemon_set_max_surge),
        writers(&upkeep::alone(), &upkeep::node_cidrs_and_ttl),
        writers(&upkeep::alone(), &upkeep::storage_version_migration),
        writers(&upkeep::alone(), &upkeep::policies_are_type_checked),
        writers(&upkeep::alone(), &upkeep::legacy_tokens_are_cleaned),
        writers(&volumes::options(), &volumes::provisioning),
        writers(&volumes::options(), &volumes::ephemeral_volume),
    ];
    let seen: BTreeSet<String> = seen.into_iter().flatten().collect();
    let silent = descriptors().into_iter().map(|descriptor| descriptor.client);
    let silent: BTreeSet<&str> = silent.filter(|client| !seen.contains(*client)).collect();
    assert_eq!(silent, EXCEPTIONS.map(|(client, _)| client).into());
}
