//! Every metric that a program registers is in the program's table of metrics (`data/metrics.tsv`), with upstream's
//! labels. A metric without a row has no stability level, and the flags that hide metrics do not apply to it. The
//! tables are recorded from upstream's sources and programs (`tests/upstream/record`).

use std::collections::{BTreeMap, BTreeSet};

use evenkeel_tidy::{code, crates, production, read, root, sources};

/// Crates with the tables. A metric in a crate below them may be in any of the tables.
const TABLES: [&str; 3] = ["evenkeel-controller-manager", "evenkeel-scheduler", "evenkeel-cloud"];

/// Crates whose metrics the three programs have.
const CRATES: [&str; 5] = [
    "evenkeel-cloud",
    "evenkeel-component",
    "evenkeel-controllers",
    "evenkeel-runtime",
    "evenkeel-scheduler",
];

/// Prefixes of metrics that upstream's programs do not have: of Evenkeel, of its sharding and of controller-runtime; and those
/// of a process, which have no stability upstream either.
const OTHERS: [&str; 5] =
    ["evenkeel_", "sharding_", "controller_runtime_", "certwatcher_", "process_"];

/// Functions that register a metric. The name is their first text.
const REGISTER: [&str; 7] =
    ["counters(", "gauges(", "gauge(", "histograms(", "histogram(", "Opts::new(", "Counter::new("];

/// Labels by metric, of all tables.
fn tables() -> BTreeMap<String, BTreeSet<String>> {
    let mut found = BTreeMap::new();
    for name in TABLES {
        let text = read(&root().join("crates").join(name).join("data/metrics.tsv"));
        for row in text.lines().skip(1) {
            let cells: Vec<&str> = row.split('\t').collect();
            let labels = cells[4].split(',').filter(|label| !label.is_empty()).map(str::to_owned);
            found.entry(cells[0].to_owned()).or_insert_with(BTreeSet::new).extend(labels);
        }
    }
    found
}

/// Returns the strings between double quotes.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('"').skip(1).step_by(2)
}

/// Returns the arguments of a call, from after its opening parenthesis to the closing one.
fn arguments(text: &str) -> &str {
    let (mut depth, mut in_text) = (1, false);
    for (index, c) in text.char_indices() {
        match c {
            '"' => in_text = !in_text,
            '(' if !in_text => depth += 1,
            ')' if !in_text => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return &text[..index];
        }
    }
    text
}

/// A registered metric, with its labels if the call lists them.
type Registered = (String, Option<BTreeSet<String>>);

/// Returns the metrics that a file registers by a literal name.
fn registered(text: &str) -> Vec<Registered> {
    let lines: Vec<&str> = code(production(text)).map(|(_, line)| line).collect();
    let text = lines.join("\n");
    let mut found = Vec::new();
    for function in REGISTER {
        for (index, _) in text.match_indices(function) {
            let is_other = text[..index].ends_with(|c: char| c.is_alphanumeric() && c != 's');
            let call = arguments(&text[index + function.len()..]);
            let Some(name) = quoted(call).next() else { continue };
            let is_name = name.contains('_')
                && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
            if is_other || !is_name {
                continue;
            }
            // The labels are the last list of texts.
            let labels = call.rsplit_once("&[").map(|(_, list)| list);
            let labels = labels.filter(|list| list.trim_start().starts_with('"'));
            let labels = labels.map(|list| {
                quoted(list.split(']').next().unwrap_or_default()).map(str::to_owned).collect()
            });
            found.push((name.to_owned(), labels));
        }
    }
    found
}

#[test]
fn registered_metrics_are_in_a_table_with_their_labels() {
    let tables = tables();
    let (mut n_checked, mut wrong) = (0, BTreeSet::new());
    for (_, path) in crates().iter().filter(|(name, _)| CRATES.contains(&&**name)) {
        for file in sources(&path.join("src")) {
            for (name, labels) in registered(&read(&file)) {
                if OTHERS.iter().any(|prefix| name.starts_with(prefix)) {
                    continue;
                }
                n_checked += 1;
                match (tables.get(&name), labels) {
                    (None, _) => {
                        wrong.insert(format!("{name} ({}) is in no table", file.display()));
                    }
                    (Some(expected), Some(labels)) if *expected != labels => {
                        wrong.insert(format!("{name} has the labels {labels:?}, not {expected:?}"));
                    }
                    _ => {}
                }
            }
        }
    }
    assert!(n_checked > 100, "only {n_checked} metrics were found");
    assert!(wrong.is_empty(), "{}", wrong.into_iter().collect::<Vec<_>>().join("\n"));
}

#[test]
fn calls_are_understood() {
    let text = r#"
        metrics::counters(registry, "a_total", "Help (of a).", &["x", "y"]);
        histograms(registry, "b_seconds", "Help", &exponential(0.1, 2.0, 3), &["z"]);
        metrics::gauge(registry, "c_count", "Help");
        Opts::new("d_total", "Help");
    "#;
    let labels = |names: &[&str]| Some(names.iter().map(|&name| name.to_owned()).collect());
    let mut found = registered(text);
    found.sort();
    let expected: [Registered; 4] = [
        ("a_total".to_owned(), labels(&["x", "y"])),
        ("b_seconds".to_owned(), labels(&["z"])),
        ("c_count".to_owned(), None),
        ("d_total".to_owned(), None),
    ];
    assert_eq!(found, expected);
}
