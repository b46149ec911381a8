//! Attacks on a server over its socket. Each expects the response of upstream's kube-apiserver. After each attack, the
//! server serves an ordinary request, and has released all resources that the attack used.
//!
//! They run on the embedded server in virtual time, each on its own server. If `EVENKEEL_UPSTREAM_BIN` names the folder
//! of upstream's programs (`tests/upstream/build FOLDER` builds them), they also run on upstream's kube-apiserver.
//! There, `EVENKEEL_ATTACKS_ONLY=PART,…` runs only the cases whose names contain one of the parts.
//!
//! A case that tries a published vulnerability of upstream's server names it.

#[path = "../kube_apiserver/mod.rs"]
mod kube_apiserver;
mod target;

use futures::FutureExt as _;
use futures::future::LocalBoxFuture;
use std::io::Write as _;
use std::panic::AssertUnwindSafe;
use target::Target;

/// An attack by name.
struct Case {
    name: &'static str,
    run: for<'a> fn(&'a Target) -> LocalBoxFuture<'a, ()>,
}

/// Defines a test on a separate server for each attack, and the list of all attacks.
macro_rules! attacks {
    ($($module:ident: [$($case:ident),* $(,)?];)*) => {
        $(mod $module;)*

        mod on_embedded {
            $(mod $module {
                $(#[test]
                fn $case() {
                    crate::on_embedded(|target| Box::pin(crate::$module::$case(target)));
                })*
            })*
        }

        const ATTACKS: &[Case] = &[
            $($(Case {
                name: concat!(stringify!($module), "::", stringify!($case)),
                run: |target| Box::pin($module::$case(target)),
            },)*)*
        ];
    };
}

attacks! {
    bodies: [
        nested_without_end,
        more_values_than_an_object_can_have,
        yaml_aliases,
        yaml_that_is_read_slowly,
        yaml_merges,
        keys_twice,
        one_key_a_hundred_thousand_times,
        keys_twice_deep_below_long_keys,
        thirty_thousand_keys,
        something_wrong_everywhere,
        what_is_long_to_validate,
        numbers_beyond_their_types,
        text_that_is_no_utf8,
        what_is_no_document,
        compressed_bombs,
        hostile_protobuf,
        larger_than_a_request_may_be,
        hostile_managed_fields,
    ];
    patches: [
        copies_that_double,
        ten_thousand_and_one_operations,
        moves_into_themselves,
        patches_that_are_none,
        deep_patches,
        long_lists_merged_by_key,
        long_lists_applied_by_key,
        long_lists_of_every_sort,
        more_ports_than_there_are,
        long_lists_of_owners,
    ];
    http: [
        lengths_that_disagree,
        a_length_and_chunks,
        chunks_of_lengths_that_are_none,
        chunks_with_long_extensions,
        headers_without_end,
        headers_that_resemble_others,
        impersonation_headers_beyond_ascii,
        lines_that_are_no_request,
        absolute_uris,
        methods_that_are_not_served,
        a_request_after_a_failed_upgrade,
        requests_in_a_row_share_no_user,
    ];
    streams: [
        to_exec_by_get_alone,
        endless_messages,
        messages_that_break_the_protocol,
        idle_without_end,
        frames_that_break_the_protocol,
        streams_without_end,
    ];
    paths: [
        dots_and_slashes,
        custom_resources_of_others,
        names_that_are_paths,
        namespaces_of_others_in_the_body,
    ];
    lists: [
        control_characters,
        selectors_that_are_none,
        selectors_that_look_into_secrets,
        selectors_of_thousands_of_terms,
        continue_tokens_of_others,
        extreme_resource_versions,
        parameters_twice,
    ];
    permissions: [
        roles_with_more_than_one_holds,
        roles_that_join_others,
        impersonation_without_the_right,
        impersonation_of_one_part,
        reviews_and_requests_in_others_names,
        roles_of_a_billion_permissions,
        secrets_that_are_not_mountable,
        proxies_of_nodes,
        addresses_of_the_machine_itself,
        subresources,
        subresources_past_policies,
        status_and_scale_change_nothing_else,
        status_changes_no_metadata,
        devices_of_others,
        devices_of_admins,
        parameters_of_others,
        dry_runs,
        updates_that_create,
        fields_of_the_server,
        anonymous_users,
    ];
    tokens: [
        algorithms_that_are_none,
        public_keys_as_secrets,
        keys_of_ones_own,
        changed_claims,
        tokens_for_others,
        tokens_of_accounts_that_are_gone,
        tokens_of_pods_that_are_gone,
        tokens_beside_each_other,
        certificates_of_other_authorities,
        certificates_that_are_not_for_clients,
        certificates_of_another_time,
        certificates_by_who_is_no_authority,
        names_in_certificates,
    ];
    nodes: [
        secrets_of_others,
        other_nodes,
        labels_and_taints_of_ones_own,
        mirror_pods,
        pods_of_other_nodes,
        old_nodes_in_policies,
    ];
    proxies: [
        proxies_to_the_machine_itself,
        services_that_ask_for_credentials,
        services_that_lie,
        aggregated_servers_that_redirect,
        aggregated_servers_get_no_foreign_users,
        kubelets_that_redirect,
        proxies_by_names_that_are_urls,
        webhooks_that_hang,
        webhooks_without_end,
        webhooks_that_redirect,
        webhooks_that_lie,
    ];
    definitions: [
        patterns_that_backtrack,
        long_sets,
        updates_of_long_maps,
        long_lists_in_definitions,
        definitions_in_the_place_of_others,
        paths_in_definitions,
        wide_schemas,
        metadata_of_custom_objects,
    ];
    expressions: [
        rules_that_cost_too_much,
        expressions_without_end,
        policies_without_end,
        parameters_without_end,
        match_conditions_without_end,
    ];
    load: [
        bodies_that_are_given_up,
        watches_that_are_given_up,
        answers_that_nobody_reads,
        deletions_that_take_for_ever,
        streams_reset_at_once,
        headers_that_go_on,
        small_frames_without_end,
        frames_that_are_wrong,
        refused_services_keep_no_addresses,
    ];
}

/// Runs an attack in virtual time, on the 2 MiB of stack that a worker of the default runtime has.
fn on_embedded(attack: for<'a> fn(&'a Target) -> LocalBoxFuture<'a, ()>) {
    let run = move || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().start_paused(true).build().expect("a runtime");
        runtime.block_on(async {
            let target = Target::embedded().await;
            attack(&target).await;
            target.is_as_before().await;
        });
    };
    let thread = std::thread::Builder::new().stack_size(2 * 1024 * 1024);
    let ended = thread.spawn(run).expect("a thread").join();
    if let Err(panic) = ended {
        std::panic::resume_unwind(panic);
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the one place where these tests read the environment"
)]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Prints a line immediately. The output of macros is shown only when the whole test fails.
fn tell(line: &str) {
    // Standard error may be closed.
    let _ = writeln!(std::io::stderr(), "attacks on upstream: {line}");
}

#[test]
fn on_upstream() {
    let Some(binaries) = variable("EVENKEEL_UPSTREAM_BIN") else {
        return tell(
            "SKIPPED: EVENKEEL_UPSTREAM_BIN is not set; tests/upstream/build FOLDER builds what it names",
        );
    };
    let only = variable("EVENKEEL_ATTACKS_ONLY");
    let wanted = |name: &str| {
        only.as_ref().is_none_or(|only| only.split(',').any(|part| name.contains(part)))
    };
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let failed = runtime.block_on(async {
        let upstream = kube_apiserver::Upstream::start(binaries.as_ref());
        let target = Target::upstream(&upstream).await;
        let mut failed = Vec::new();
        for attack in ATTACKS.iter().filter(|attack| wanted(attack.name)) {
            let attacked = async {
                (attack.run)(&target).await;
                target.is_as_before().await;
            };
            let held = AssertUnwindSafe(attacked).catch_unwind().await.is_ok();
            tell(&format!("{}: {}", attack.name, if held { "held" } else { "FAILED" }));
            if !held {
                failed.push(attack.name);
            }
        }
        failed
    });
    assert!(failed.is_empty(), "not as expected on upstream: {}", failed.join(", "));
}
