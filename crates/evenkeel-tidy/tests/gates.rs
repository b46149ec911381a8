//! The table of feature gates (`evenkeel-component/data/gate-effects.tsv`) has the effect of each gate in each program.
//! If a gate has an effect in a program, the production code of this program reads the gate by its name, and vice
//! versa.

use std::collections::{BTreeMap, BTreeSet};

use evenkeel_tidy::{code, crates, production, read, root, sources};

/// The programs in the order of the table's columns, each with the crate that is its whole.
const PROGRAMS: [(&str, &str); 3] = [
    ("kube-controller-manager", "evenkeel-controller-manager"),
    ("kube-scheduler", "evenkeel-kube-scheduler"),
    ("cloud-controller-manager", "evenkeel-cloud"),
];

/// Gates that set other gates. The resolution of the command line reads them.
const OF_STAGES: [&str; 2] = ["AllAlpha", "AllBeta"];

/// Tables from the name of a plugin to the gate without which it is not there: file and name of the constant.
const PLUGINS: (&str, &str) =
    ("evenkeel-kube-scheduler/src/config/plugins.rs", "const DEFAULT_PLUGINS:");

/// Rows of the table: gate, effects in the programs.
fn table() -> Vec<(String, Vec<String>)> {
    let text = read(&root().join("crates/evenkeel-component/data/gate-effects.tsv"));
    let mut lines = text.lines();
    let head: Vec<&str> = lines.next().unwrap_or_default().split('\t').collect();
    assert_eq!(head[1..4], PROGRAMS.map(|(program, _)| program), "the columns");
    let row = |line: &str| {
        let cells: Vec<&str> = line.split('\t').collect();
        assert_eq!(cells.len(), 5, "{line}");
        (cells[0].to_owned(), cells[1..4].iter().map(|cell| (*cell).to_owned()).collect())
    };
    lines.map(row).collect()
}

/// Returns the crates that a crate always contains, itself included.
fn parts(whole: &str, manifests: &BTreeMap<String, String>) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut open = vec![whole.to_owned()];
    while let Some(name) = open.pop() {
        let Some(manifest) = manifests.get(&name) else { continue };
        if !found.insert(name) {
            continue;
        }
        let section = manifest.split("[dependencies]\n").nth(1).unwrap_or_default();
        let rows = section.split("\n[").next().unwrap_or_default().lines();
        let always = rows.filter(|row| !row.contains("optional = true"));
        open.extend(
            always.map(|row| row.split(['.', ' ', '=']).next().unwrap_or_default().to_owned()),
        );
    }
    found
}

/// Returns the strings between double quotes on a line.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('"').skip(1).step_by(2)
}

/// A gate that code reads, directly or by the name of a constant.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Read {
    Gate(String),
    Constant(String),
}

/// Adds the gates and constants that the code of a crate reads, and the constants that it declares.
fn scan(
    crate_name: &str,
    text: &str,
    in_plugins: bool,
    reads: &mut BTreeSet<Read>,
    constants: &mut BTreeMap<String, String>,
) {
    let mut in_table = false;
    for (_, line) in code(production(text)) {
        let calls = ["enabled(", "set_value("].iter().flat_map(|call| line.split(call).skip(1));
        for argument in calls.chain(line.split("gates: &[").skip(1)) {
            let end = argument.find([')', ']']).unwrap_or(argument.len());
            let argument = &argument[..end];
            reads.extend(quoted(argument).map(|gate| Read::Gate(gate.to_owned())));
            let name = argument.trim().rsplit("::").next().unwrap_or_default();
            if !name.is_empty() && name.chars().all(|c| c.is_ascii_uppercase() || c == '_') {
                reads.insert(Read::Constant(name.to_owned()));
            }
        }
        if let Some((before, value)) = line.split_once(": &str = \"")
            && let Some(name) = before.trim().rsplit("const ").next()
        {
            // Two crates may name different constants alike.
            let key = format!("{crate_name} {name}");
            constants.insert(key, value.trim_end_matches("\";").to_owned());
        }
        in_table = in_plugins && (line.contains(PLUGINS.1) || (in_table && line != "];"));
        if in_table {
            reads.extend(quoted(line).skip(1).map(|gate| Read::Gate(gate.to_owned())));
        }
    }
}

/// Returns the gates that a program's crates read, by their names.
fn gates_read(parts: &BTreeSet<String>) -> BTreeSet<String> {
    let (mut gates, mut constants) = (BTreeSet::new(), BTreeMap::new());
    let mut by_constant = BTreeSet::new();
    for (name, folder) in crates().into_iter().filter(|(name, _)| parts.contains(name)) {
        let mut reads = BTreeSet::new();
        for file in sources(&folder.join("src")) {
            let path = file.to_string_lossy().into_owned();
            if path.ends_with("tests.rs") || path.contains("/tests/") {
                continue;
            }
            scan(&name, &read(&file), path.ends_with(PLUGINS.0), &mut reads, &mut constants);
        }
        for found in reads {
            match found {
                Read::Gate(gate) => drop(gates.insert(gate)),
                Read::Constant(constant) => drop(by_constant.insert((name.clone(), constant))),
            }
        }
    }
    for (name, constant) in by_constant {
        // A constant of the crate itself, or else of any crate.
        let own = constants.get(&format!("{name} {constant}"));
        let end = format!(" {constant}");
        let found = own.or_else(|| {
            constants.iter().find(|(key, _)| key.ends_with(&end)).map(|(_, value)| value)
        });
        gates.extend(found.cloned());
    }
    gates
}

#[test]
fn a_gate_with_an_effect_is_read_by_its_name_and_no_other_is() {
    let manifests: BTreeMap<String, String> = crates()
        .into_iter()
        .map(|(name, folder)| (name, read(&folder.join("Cargo.toml"))))
        .collect();
    let table = table();
    let known: BTreeSet<&str> = table.iter().map(|(gate, _)| gate.as_str()).collect();
    let mut wrong = Vec::new();
    for (column, (program, whole)) in PROGRAMS.iter().enumerate() {
        let read = gates_read(&parts(whole, &manifests));
        assert!(read.len() > 5, "{program}: {read:?}");
        for (gate, effects) in &table {
            let has_effect = matches!(effects[column].as_str(), "effect" | "partly");
            let is_read = read.contains(gate) || OF_STAGES.contains(&gate.as_str());
            // The names of the scheduler's plugins that do nothing depend on gates.
            let may_be_read = *program == "kube-scheduler" && effects[column] == "off";
            if has_effect && !is_read {
                wrong.push(format!("{program} does not read {gate}"));
            }
            if is_read && !has_effect && !may_be_read {
                wrong
                    .push(format!("{program} reads {gate}, which the table gives no effect there"));
            }
        }
        let unknown = read.iter().filter(|gate| !gate.is_empty() && !known.contains(gate.as_str()));
        wrong.extend(unknown.map(|gate| format!("{program} reads {gate}, which is no gate")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_table_has_the_gates_that_the_programs_know() {
    let gates = read(&root().join("crates/evenkeel-component/data/feature-gates.tsv"));
    let gates: BTreeSet<&str> =
        gates.lines().skip(1).filter_map(|line| line.split('\t').next()).collect();
    let table = table();
    let rows: Vec<&str> = table.iter().map(|(gate, _)| gate.as_str()).collect();
    assert_eq!(rows, gates.into_iter().collect::<Vec<_>>(), "sorted, each gate once");
}
