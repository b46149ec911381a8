//! Tests of the whole control plane from outside: one set of cases, on the embedded API server in virtual time and on
//! upstream's kube-apiserver and etcd in real time.
//!
//! The second needs the programs that `tests/upstream/build FOLDER` builds, and `EVENKEEL_UPSTREAM_BIN=FOLDER`;
//! `EVENKEEL_E2E_ONLY=PART,…` runs only the cases with such a part in their names.

mod autoscaler;
mod budgets;
mod certificates;
mod claims;
mod cloud;
mod cloud_manager;
mod cluster;
mod console;
mod custom;
mod daemonset;
mod deployment;
mod devices;
mod embedded;
mod envtest;
mod exec;
mod explain;
mod explain_server;
mod failover;
mod forbidden;
mod garbage;
mod hostile;
mod jobs;
mod kubeadm;
mod logs;
mod malformed;
mod namespaces;
mod nodes;
mod objects;
mod pods;
mod preflight;
mod program;
mod quotas;
mod replicas;
mod roles;
mod rollout;
mod schedulers;
mod scheduling;
mod server;
mod services;
mod statefulset;
mod storage;
mod upstream;
mod vanishing;

use cluster::Cluster;
use futures::future::LocalBoxFuture;

/// A case by name.
struct Case {
    name: &'static str,
    run: for<'a> fn(&'a Cluster) -> LocalBoxFuture<'a, ()>,
}

/// Creates for each case a test on its own cluster, and an entry in the list of all cases.
macro_rules! cases {
    ($($module:ident: [$($case:ident),* $(,)?];)*) => {
        mod on_embedded {
            $(mod $module {
                $(#[tokio::test(start_paused = true)]
                async fn $case() {
                    crate::embedded::run(|cluster| Box::pin(crate::$module::$case(cluster))).await;
                })*
            })*
        }

        const CASES: &[Case] = &[
            $($(Case {
                name: concat!(stringify!($module), "::", stringify!($case)),
                run: |cluster| Box::pin($module::$case(cluster)),
            },)*)*
        ];
    };
}

cases! {
    autoscaler: [
        keeps_within_bounds,
        tells_what_it_lacks,
    ];
    budgets: [
        are_spent_by_evictions,
        count_what_owners_want,
        let_unhealthy_pods_go_by_policy,
    ];
    certificates: [
        are_signed_once_approved,
        are_refused_by_their_signers_rules,
        of_nodes_are_approved_at_once,
        of_the_server_are_published,
    ];
    claims: [are_made_from_templates_and_made_again, wait_for_their_template];
    cloud: [
        a_load_balancer_gets_an_address_and_gives_it_back,
        an_exhausted_pool_says_so_and_serves_who_waits,
        a_machine_makes_a_node_and_takes_it_away,
    ];
    deployment: [
        becomes_ready,
        is_scaled_up_and_down,
        counts_collisions,
        adopts_what_was_orphaned,
        tells_why_pods_cannot_be_made,
        is_left_alone_once_done,
    ];
    devices: [
        are_given_as_they_are_asked_for,
        are_waited_for,
        are_shared_by_a_claim,
        that_are_of_no_use_are_given_back,
        stand_for_extended_resources,
    ];
    explain: [tells_what_is_waited_for, plans_are_not_carried_out];
    forbidden: [each_account_has_permissions];
    garbage: [
        background_takes_all_that_is_owned,
        foreground_takes_the_owner_last,
        orphans_are_left_alone,
        owners_that_never_were,
        owners_elsewhere_do_not_count,
        chains_and_circles_go,
        finalizers_of_others_are_waited_for,
    ];
    jobs: [
        do_what_their_commands_say,
        run_to_their_end,
        with_indexes_fail_by_index,
        are_suspended_and_resumed,
        go_when_their_time_has_come,
        that_are_gone_let_go_of_their_pods,
    ];
    malformed: [
        annotations_of_controllers_are_not_trusted,
        selectors_that_overlap_do_no_harm,
        stored_objects_that_no_server_admits,
    ];
    namespaces: [have_an_account_and_the_root_ca, end_with_all_they_hold];
    nodes: [
        taints_follow_conditions,
        that_are_tainted_or_lost_lose_their_pods,
        that_fall_silent_lose_their_pods_to_others,
        get_ranges_of_addresses,
    ];
    quotas: [
        count_what_there_is,
        are_filled_and_reported,
        are_never_exceeded_by_many_at_once,
        look_at_what_is_in_their_scopes,
        limits_fill_in_and_refuse,
    ];
    replicas: [sets_adopt_and_release, cheap_pods_go_first, lost_pods_are_replaced];
    roles: [are_put_together, follow_chains_of_parts];
    rollout: [
        keeps_within_surge_and_unavailable,
        recreate_never_mixes,
        that_is_stuck_passes_its_deadline_and_is_undone,
        is_paused_and_resumed,
        keeps_no_more_history_than_asked,
        scales_in_proportion_while_under_way,
        waits_for_min_ready_seconds,
    ];
    scheduling: [waits_for_a_node_that_fits];
    server: [
        tells_how_its_store_is,
        says_what_flow_a_request_belongs_to,
        notes_since_when_tokens_are_tracked,
    ];
    services: [
        know_their_pods,
        are_mirrored_where_somebody_wrote_their_addresses,
        hold_the_ranges_that_their_addresses_are_of,
    ];
    statefulset: [
        comes_up_in_order_and_goes_back_so,
        is_updated_from_the_last_and_undone,
        is_made_all_at_once_and_updated_on_deletion,
        has_claims_of_its_own,
    ];
    storage: [
        is_made_when_a_pod_wants_it_and_goes_with_its_claim,
        that_is_there_is_found_promised_and_lost,
        that_is_used_stays,
        of_a_pod_alone_comes_and_goes_with_it,
        of_sets_go_as_they_say,
    ];
    daemonset: [runs_on_each_node_and_is_undone, surges, goes_where_nodes_say];
    custom: [resources_own_and_are_owned, resources_are_counted_by_quotas];
}
