//! Words: retired terms do not return, and doc comments are informative.

use evenkeel_tidy::{code, crates, has_word, read, sources};

/// Identifiers that are retired in one crate but have a meaning in others, with their replacements.
const RETIRED: [(&str, &[(&str, &str)]); 11] = [
    (
        "evenkeel-controllers",
        &[
            ("Wanted", "DesiredVolume, ExpectedPods"),
            ("Given", "ReservedVolumes"),
            ("AllGone", "EnteredFullDisruption"),
            ("SomeBack", "LeftFullDisruption"),
            ("see_to", "process_replica, sync_node"),
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
            ("Rights", "Permissions"),
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
            ("Unwritten", "DryRunWrite"),
            ("Candidacy", "CandidateConfig"),
            ("contender", "elector"),
            ("Correlator", "EventCorrelator"),
            ("Book", "EventCache"),
            ("Recorder", "EventRecorder"),
            ("SeriesRecorder", "SeriesEventRecorder"),
            ("Note", "EventRecord"),
            ("Declared", "DeclType, DeclaredAccess"),
            ("Deed", "RecordedAction"),
            ("Deeds", "RecordedActions"),
            ("Discovered", "ServerResources"),
            ("KeysOf", "IndexFunc"),
            ("WatchBroken", "WatchError"),
        ],
    ),
    (
        "evenkeel-scheduler",
        &[
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

/// Words that are retired in all crates, including comments, with their replacements.
const RETIRED_EVERYWHERE: [(&str, &str); 17] = [
    ("told", "recorded, reported, logged, notified, events"),
    ("Told", "a noun for what was recorded or reported"),
    ("PATIENCE", "a name that ends in TIMEOUT"),
    ("TRIES", "MAX_ATTEMPTS, MAX_RETRIES"),
    ("Pace", "StatusThrottle"),
    ("status_pace", "min_status_interval"),
    ("parked", "waiting; unschedulable"),
    ("Ledger", "RecordedWrites, PodHistory"),
    ("give_back", "release"),
    ("Teller", "Messages"),
    ("Shelf", "ResourcePrefix, Collection"),
    ("Sheet", "StatusBuilder"),
    ("Mold", "PodTemplate"),
    ("Sight", "StateOfWorld"),
    ("Lanes", "ConnectionPool"),
    ("Flights", "InFlightEvents"),
    ("at_rest", "needs_attempt"),
];

/// Parts of identifiers, between underscores, that are retired in all crates.
const RETIRED_PARTS: [(&str, &str); 6] = [
    ("told", "reported, recorded"),
    ("parked", "waiting"),
    ("happening", "event, step"),
    ("happenings", "events, steps"),
    ("give_back", "release"),
    ("rights", "permissions"),
];

/// Names that no type, alias or trait may have, because they are not descriptive. They are permitted as words and as variants.
const RETIRED_TYPES: [(&str, &str); 50] = [
    ("AbsentOwners", "AbsentOwnerCache"),
    ("AllGone", "EnteredFullDisruption"),
    ("Ask", "the request: RequestContext, MetricsRequest"),
    ("Asked", "the request: ParsedFlags, PreviewSettings, DiscoveryFormat"),
    ("Book", "EventCache"),
    ("Books", "what is recorded: Reservations, PodRecords"),
    ("Candidacy", "CandidateConfig"),
    ("Census", "PodIndex"),
    ("Correlator", "EventCorrelator"),
    ("Declared", "DeclType, DeclaredAccess"),
    ("Deed", "RecordedAction"),
    ("Deeds", "RecordedActions"),
    ("Discovered", "ServerResources"),
    ("Doing", "CommandState"),
    ("Facets", "SelectionAttributes"),
    ("Gated", "Fenced"),
    ("Given", "ParsedFlags, ReservedVolumes"),
    ("Held", "what is held: CountedCache"),
    ("KeysOf", "IndexFunc"),
    ("Known", "what is known: KnownController, SharedReads"),
    ("ListOf", "ElementIdentity"),
    ("Lost", "an error's name: Conflict"),
    ("Manage", "PodChange"),
    ("Meaning", "PodFailurePolicyAction"),
    ("Need", "a decision: ConsumerDecision"),
    ("News", "StatusChange"),
    ("Note", "EventRecord"),
    ("OnTheWay", "WaitingPod, AssumedPod"),
    ("OnWay", "in-flight allocations"),
    ("PatchForm", "PatchType"),
    ("Place", "the field's term: DevicePosition, VolumeTopology"),
    ("Places", "the field's term: VolumeTopologies"),
    ("Rights", "Permissions"),
    ("Second", "MigrationLease"),
    ("Seen", "Observed, ConnectionActivity"),
    ("SeriesRecorder", "SeriesEventRecorder"),
    ("Share", "ServiceCounts"),
    ("ShelfState", "Collection"),
    ("Shown", "PrintedObject"),
    ("SomeBack", "LeftFullDisruption"),
    ("Stopped", "ApplyFailure"),
    ("Tally", "PodCounts"),
    ("Telling", "StatusPatcher"),
    ("Told", "PodEvent"),
    ("Tracked", "Evaluator"),
    ("Unmatched", "NodeIpError"),
    ("Unready", "NotReady"),
    ("Wanted", "the field's term: ClaimRequests, ExpectedType"),
    ("WatchBroken", "WatchError"),
    ("Wished", "ScoreState"),
];

/// Names that no constant may have. A constant's name states the limited quantity, and the unit or kind of the limit.
const RETIRED_CONSTANTS: [(&str, &str); 11] = [
    ("AGAIN", "a name that ends in INTERVAL or DELAY"),
    ("FIRST", "INITIAL_BACKOFF, BASE_DELAY"),
    ("HOPELESS", "MAX_FAILURES"),
    ("LONGEST", "a name that begins with MAX"),
    ("LOOK", "a name that ends in INTERVAL"),
    ("MOST", "a name that begins with MAX"),
    ("PAUSE", "a name that ends in INTERVAL, DELAY or BACKOFF"),
    ("QUIET", "IDLE_PERIOD"),
    ("SHORTEST", "a name that begins with MIN"),
    ("SOON", "MAX_DELAY"),
    ("STOP", "SHUTDOWN_TIMEOUT, GRACE_PERIOD"),
];

/// Returns the retired name that a line of code declares or has as a part of an identifier, with its replacement.
fn retired_name(line: &str) -> Option<(&'static str, &'static str)> {
    let mut names = RETIRED_TYPES.iter().chain(&RETIRED_CONSTANTS).chain(&RETIRED_PARTS);
    if !names.any(|(name, _)| line.contains(name)) {
        return None;
    }
    let words = |text: &str| -> Vec<String> {
        text.split(|c: char| !c.is_alphanumeric() && c != '_').map(str::to_owned).collect()
    };
    // Quoted text is not code.
    let unquoted: String = line.split('"').step_by(2).collect::<Vec<_>>().join("\"\"");
    let words = words(&unquoted);
    let declared = |keywords: &[&str], name: &str| {
        words.windows(2).any(|pair| keywords.contains(&&*pair[0]) && pair[1] == name)
    };
    let is_type = |(name, _): &&(&str, &str)| declared(&["struct", "enum", "type", "trait"], name);
    let is_constant = |(name, _): &&(&str, &str)| declared(&["const", "static"], name);
    let has_part = |(part, _): &&(&str, &str)| {
        words.iter().any(|word| format!("_{word}_").contains(&format!("_{part}_")))
    };
    let mut found = RETIRED_TYPES.iter().filter(is_type);
    let mut constants = RETIRED_CONSTANTS.iter().filter(is_constant);
    let mut parts = RETIRED_PARTS.iter().filter(has_part);
    found.next().or_else(|| constants.next()).or_else(|| parts.next()).copied()
}

#[test]
fn retired_names_do_not_come_back() {
    let mut found = Vec::new();
    for (_, path) in crates().into_iter().filter(|(name, _)| name != "evenkeel-tidy") {
        for file in sources(&path) {
            found.extend(code(&read(&file)).filter_map(|(at, line)| {
                let (name, instead) = retired_name(line)?;
                Some(format!(
                    "{}:{at}: `{name}` is a retired name; write {instead}",
                    file.display()
                ))
            }));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn retired_names_are_found_where_they_are_declared() {
    let found = |line| retired_name(line).map(|(name, _)| name);
    assert_eq!(found("pub(crate) struct Held<'a> {"), Some("Held"));
    assert_eq!(found("    type Asked = ();"), Some("Asked"));
    assert_eq!(found("    const MOST: usize = 3;"), Some("MOST"));
    assert_eq!(found("fn what_was_told_of(x: u8) {"), Some("told"));
    assert_eq!(found("    n_parked: usize,"), Some("parked"));
    assert_eq!(found("    SlowPath::Held => return,"), None);
    assert_eq!(found("let x = \"const MOST\"; // unparked"), None);
}

#[test]
fn retired_words_do_not_come_back() {
    let mut found = Vec::new();
    // This crate holds the list.
    for (name, path) in crates().into_iter().filter(|(name, _)| name != "evenkeel-tidy") {
        let own =
            RETIRED.iter().find(|(listed, _)| *listed == name).map_or(&[][..], |(_, own)| *own);
        let words = own.iter().chain(&RETIRED_EVERYWHERE);
        for file in sources(&path) {
            for (at, line) in read(&file).lines().enumerate() {
                let retired = words.clone().filter(|(word, _)| has_word(line, word));
                found.extend(retired.map(|(word, instead)| {
                    format!("{}:{}: `{word}` is retired; write `{instead}`", file.display(), at + 1)
                }));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// Returns whether the line is a field in a `message!`: `name: Type = 1 "json"`, or `name: Type = 1` for an inlined field. The
/// macro makes these fields public.
fn is_message_field(line: &str) -> bool {
    let Some((declaration, rest)) = line.split_once(" = ") else { return false };
    let json = rest.trim_start_matches(|c: char| c.is_ascii_digit());
    declaration.contains(": ")
        && json.len() < rest.len()
        && (json.is_empty() || json.starts_with(" \""))
}

/// Returns for each line whether it is within a public enum or trait, whose variants, fields and methods are also public.
fn in_public_enums_and_traits(text: &str) -> Vec<bool> {
    let (mut depth, mut begins) = (0_usize, Vec::new());
    let is_public = |line: &str| {
        let line = line.trim_start();
        let declares = |line: &str| ["enum ", "trait "].iter().any(|word| line.starts_with(word));
        line.starts_with("pub") && line.split_once(' ').is_some_and(|(_, rest)| declares(rest))
    };
    let mut within = Vec::new();
    for line in text.lines() {
        within.push(!begins.is_empty());
        let code = if line.trim_start().starts_with("//") { "" } else { line };
        let opened = code.matches('{').count();
        if opened > 0 && is_public(code) {
            begins.push(depth);
        }
        depth = (depth + opened).saturating_sub(code.matches('}').count());
        begins.retain(|begin| *begin < depth);
    }
    within
}

/// Returns the line numbers of doc comments that are a single line of one or two words. Checks public items, variants, methods
/// of traits, and modules.
fn short_docs(text: &str) -> Vec<usize> {
    let within = in_public_enums_and_traits(text);
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let head = |line: usize| lines.get(line).and_then(|line| line.strip_prefix("//!"));
    let is_short_head = head(0).is_some_and(|text| text.split_whitespace().count() <= 2);
    let short_head = (is_short_head && head(1).is_none()).then_some(1);
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
                    let is_item = line.starts_with("pub ") || line.starts_with("pub(");
                    is_item || within[*at] || is_message_field(line)
                })
        })
        .map(|at| at + 1)
        .chain(short_head)
        .collect()
}

#[test]
fn doc_comments_say_something() {
    let mut found = Vec::new();
    for (_, path) in crates() {
        for file in sources(&path.join("src")) {
            let places = short_docs(&read(&file));
            found.extend(places.into_iter().map(|at| format!("{}:{at}", file.display())));
        }
    }
    assert!(
        found.is_empty(),
        "{} public items have docs of one or two words:\n{}",
        found.len(),
        found.join("\n")
    );
}

#[test]
fn short_docs_are_found() {
    let text = "/// When.\npub at: u64,\n/// A longer one.\npub fn a();\n/// Not\n/// one line.\npub b: u8,\n/// Hidden.\nc: u8,\n/// Marked.\n#[must_use]\npub(crate) fn d();\n";
    assert_eq!(short_docs(text), [1, 10]);
    let message = "/// Name.\n#[serde]\nname: Text = 1 \"name\",\n/// Name of it.\nb: Text = 2 \"b\",\n=> /// Which.\nc: Text = 3\n/// Local.\nlet d: u8 = 4;\n";
    assert_eq!(short_docs(message), [1, 6]);
    let inner = "pub enum A {\n    /// One.\n    #[default]\n    B {\n        /// Two.\n        c: u8,\n    },\n}\npub(crate) trait D {\n    /// Three.\n    fn e(&self) {}\n}\nenum F {\n    /// Four.\n    G,\n}\n";
    assert_eq!(short_docs(inner), [2, 5, 10]);
    assert_eq!(short_docs("//! Namespaces.\n\nuse a;\n"), [1]);
    assert!(short_docs("//! Namespaces.\n//!\n//! They are sets of names.\n").is_empty());
}
