//! Words: retired terms do not come back, and a doc comment says something.

use evenkeel_tidy::{crates, has_word, read, sources};

/// Crates whose names have been brought to Kubernetes' terms, each with its retired identifiers and what to write instead.
const RETIRED: [(&str, &[(&str, &str)]); 11] = [
    (
        "evenkeel-controllers",
        &[
            ("Sheet", "StatusBuilder"),
            ("Mold", "PodTemplate"),
            ("Sight", "StateOfWorld"),
            ("Wanted", "DesiredVolume, ExpectedPods"),
            ("Given", "ReservedVolumes"),
            ("AllGone", "EnteredFullDisruption"),
            ("SomeBack", "LeftFullDisruption"),
            ("see_to", "process_replica, sync_node"),
            ("at_rest", "needs_no_attempt"),
            ("AbsentOwners", "AbsentOwnerCache"),
            ("Share", "ServiceCounts"),
            ("settle_claims", "update_claim_retention"),
            ("look_at_all", "monitor_node_health"),
            ("take_in", "classify_nodes"),
            ("shrink_old", "reconcile_old_replica_sets"),
            ("keep_history", "construct_history"),
            ("Slot", "Replica"),
            ("cron_job", "cronjob"),
            ("garbage_collector", "garbagecollector"),
            ("node_lifecycle", "nodelifecycle"),
            ("resource_quota", "resourcequota"),
            ("disruption_budget", "poddisruptionbudget"),
            ("Meaning", "PodFailurePolicyAction"),
            ("Manage", "PodChange"),
            ("Tally", "PodCounts"),
            ("News", "StatusChange"),
            ("Seen", "Observed"),
        ],
    ),
    (
        "evenkeel-apiserver",
        &[
            ("Ask", "RequestContext"),
            ("Shelf", "ResourcePrefix, Collection"),
            ("shelf", "resource_prefix, collection"),
            ("SHELF", "RESOURCE_PREFIX"),
            ("SHELVES", "RESOURCE_PREFIXES"),
            ("shelves", "collections"),
            ("ShelfState", "Collection"),
            ("Facets", "SelectionAttributes"),
            ("facets", "selection_attributes"),
            ("keeper", "crd_controller"),
        ],
    ),
    (
        "evenkeel-component",
        &[
            ("Pace", "StartIntervals"),
            ("Second", "MigrationLease"),
            ("Place", "FilterResult"),
            ("Candidacy", "CandidateConfig"),
        ],
    ),
    (
        "evenkeel-cloud",
        &[
            ("initialise", "initialize_node"),
            ("in_doubt", "needs_instance_check"),
            ("Unmatched", "NodeIpError"),
        ],
    ),
    (
        "evenkeel-nodes",
        &[
            ("silence", "partition"),
            ("silences", "is_node_partitioned"),
            ("look_at", "sync_pod, sync_node"),
            ("first_sight", "recover_memory"),
            ("Told", "PodEvent"),
            ("Doing", "CommandState"),
            ("gone_is_well", "ignore_not_found"),
        ],
    ),
    (
        "evenkeel-runtime",
        &[
            ("Gate", "LeaderFence"),
            ("Gated", "Fenced"),
            ("ungated", "unfenced"),
            ("Lanes", "ConnectionPool"),
            ("Ledger", "RecordedWrites"),
            ("Unwritten", "DryRunWrite"),
            ("Candidacy", "CandidateConfig"),
            ("contender", "elector"),
            ("Correlator", "EventCorrelator"),
            ("Book", "EventCache"),
            ("Recorder", "EventRecorder"),
            ("SeriesRecorder", "SeriesEventRecorder"),
            ("Note", "EventRecord"),
            ("Deed", "RecordedAction"),
            ("Deeds", "RecordedActions"),
            ("Discovered", "ServerResources"),
            ("KeysOf", "IndexFunc"),
            ("WatchBroken", "WatchError"),
            ("give_back", "release, shrink"),
        ],
    ),
    (
        "evenkeel-scheduler",
        &[
            ("Flights", "InFlightEvents"),
            ("OnTheWay", "WaitingPod, AssumedPod"),
            ("OnWay", "in-flight allocations"),
            ("Census", "PodIndex"),
            ("Telling", "StatusPatcher"),
            ("Verdict", "Status"),
            ("Wanted", "ClaimRequests, VolumesToAttach"),
            ("happened", "move_all_to_active_or_backoff_queue"),
        ],
    ),
    ("evenkeel-apiextensions", &[("junctors", "validate_junctors"), ("ruled", "has_validations")]),
    (
        "evenkeel-kinds",
        &[
            ("Row", "KindStrategy"),
            ("Shown", "PrintedObject"),
            ("quality", "qos_class"),
            ("answers_deleted", "return_deleted_object"),
            ("put_creates", "allow_create_on_update"),
        ],
    ),
    (
        "evenkeel-apimachinery",
        &[
            ("Findings", "DecodeErrors"),
            ("ListOf", "ElementIdentity"),
            ("Clause", "MediaRange"),
            ("Stopped", "ApplyFailure"),
            ("unexcused", "conflicts_difference"),
        ],
    ),
    (
        "evenkeel-component-helpers",
        &[
            ("Tracked", "Evaluator"),
            ("Unsaid", "MissingResources"),
            ("Uncounted", "StatusUnknown"),
            ("forbidding", "find_untolerated_taint"),
            ("BORNE", "TOLERATED"),
            ("bear", "add_tolerations"),
        ],
    ),
];

/// Words retired in all crates, and what to write instead.
const RETIRED_EVERYWHERE: [(&str, &str); 4] = [
    ("told", "recorded, reported, logged, notified, events"),
    ("Told", "a noun for what was recorded or reported"),
    ("PATIENCE", "a name that ends in TIMEOUT"),
    ("TRIES", "MAX_ATTEMPTS, MAX_RETRIES"),
];

#[test]
fn retired_words_do_not_come_back() {
    // This crate holds the list.
    for (name, path) in crates().into_iter().filter(|(name, _)| name != "evenkeel-tidy") {
        let own =
            RETIRED.iter().find(|(listed, _)| *listed == name).map_or(&[][..], |(_, own)| *own);
        let words = own.iter().chain(&RETIRED_EVERYWHERE);
        for file in sources(&path) {
            for (at, line) in read(&file).lines().enumerate() {
                for (word, instead) in words.clone() {
                    assert!(
                        !has_word(line, word),
                        "{}:{}: `{word}` is retired; write `{instead}`",
                        file.display(),
                        at + 1
                    );
                }
            }
        }
    }
}

/// Whether the line is a field in a `message!`: `name: Type = 1 "json"`, or `name: Type = 1` for an inlined one. The macro
/// makes these fields public.
fn is_message_field(line: &str) -> bool {
    let Some((declaration, rest)) = line.split_once(" = ") else { return false };
    let json = rest.trim_start_matches(|c: char| c.is_ascii_digit());
    declaration.contains(": ")
        && json.len() < rest.len()
        && (json.is_empty() || json.starts_with(" \""))
}

/// Line numbers of doc comments of public items that are a single line of one or two words.
fn short_docs(text: &str) -> Vec<usize> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let doc = |line: usize| {
        let line = lines.get(line)?;
        line.strip_prefix("=> ").unwrap_or(line).strip_prefix("///")
    };
    (0..lines.len())
        .filter(|at| {
            let alone = (*at == 0 || doc(at - 1).is_none()) && doc(at + 1).is_none();
            let item = lines[at + 1..].iter().find(|line| !line.starts_with("#["));
            alone
                && doc(*at).is_some_and(|text| text.split_whitespace().count() <= 2)
                && item.is_some_and(|line| {
                    line.starts_with("pub ") || line.starts_with("pub(") || is_message_field(line)
                })
        })
        .map(|at| at + 1)
        .collect()
}

#[test]
fn doc_comments_say_something() {
    for (name, path) in crates() {
        let mut found = Vec::new();
        for file in sources(&path.join("src")) {
            let places = short_docs(&read(&file));
            found.extend(places.into_iter().map(|at| format!("{}:{at}", file.display())));
        }
        assert!(
            found.is_empty(),
            "{name}: {} public items have docs of one or two words:\n{}",
            found.len(),
            found.join("\n")
        );
    }
}

#[test]
fn short_docs_are_found() {
    let text = "/// When.\npub at: u64,\n/// A longer one.\npub fn a();\n/// Not\n/// one line.\npub b: u8,\n/// Hidden.\nc: u8,\n/// Marked.\n#[must_use]\npub(crate) fn d();\n";
    assert_eq!(short_docs(text), [1, 10]);
    let message = "/// Name.\n#[serde]\nname: Text = 1 \"name\",\n/// Name of it.\nb: Text = 2 \"b\",\n=> /// Which.\nc: Text = 3\n/// Local.\nlet d: u8 = 4;\n";
    assert_eq!(short_docs(message), [1, 6]);
}
