//! Reference pages in Markdown: the flags of each program, the metrics, the simulation annotations, and the configuration file.

use clap::{
    Arg, Command,
    builder::{PossibleValue, Str},
};
use evenkeel_nodes::{ANNOTATIONS, PREFIX};
use std::collections::BTreeMap;

/// First line of each page, with the command that rewrites the page.
pub(super) const NOTE: &str = "<!-- Written by `evenkeel man --markdown docs/reference`. -->\n";

/// Returns the name and content of each page.
pub(super) fn pages(programs: &[Command]) -> Vec<(String, String)> {
    let flags =
        programs.iter().map(|program| (format!("{}.md", program.get_name()), flags(program)));
    flags
        .chain([
            ("metrics.md".to_owned(), metrics()),
            ("annotations.md".to_owned(), annotations_markdown()),
            ("cluster.md".to_owned(), super::schema::page(&crate::up::config_schema())),
        ])
        .collect()
}

/// Escapes text for a cell of a Markdown table, except for code in backticks.
pub(super) fn cell(text: &str) -> String {
    let parts = text.trim().split('`').enumerate().map(|(index, part)| match index % 2 {
        0 => part.replace('<', "&lt;").replace('*', "\\*").replace('_', "\\_"),
        _ => part.to_owned(),
    });
    let text = parts.collect::<Vec<_>>().join("`").replace('|', "\\|");
    text.lines().map(str::trim).collect::<Vec<_>>().join("<br>")
}

/// Returns the page of a program's flags, including the flags of its commands.
fn flags(program: &Command) -> String {
    let mut page = format!("{NOTE}\n# {}\n", program.get_name());
    push_command(&mut page, program, program.get_name());
    page
}

fn push_command(page: &mut String, command: &Command, name: &str) {
    if let Some(about) = command.get_about() {
        page.push_str(&format!("\n{}\n", cell(&about.to_string())));
    }
    let mut headings: Vec<Option<&str>> = Vec::new();
    for argument in command.get_arguments() {
        if !headings.contains(&argument.get_help_heading()) {
            headings.push(argument.get_help_heading());
        }
    }
    for heading in headings {
        if let Some(heading) = heading {
            page.push_str(&format!("\n**{heading}**\n"));
        }
        page.push_str("\n| flag | value | meaning |\n|---|---|---|\n");
        let arguments = command.get_arguments();
        for argument in arguments.filter(|argument| argument.get_help_heading() == heading) {
            page.push_str(&row(argument));
        }
    }
    for command in command.get_subcommands() {
        let name = format!("{name} {}", command.get_name());
        page.push_str(&format!("\n## {name}\n"));
        push_command(page, command, &name);
    }
}

/// Returns the row of a flag: its names, its values, its meaning.
fn row(argument: &Arg) -> String {
    let short = argument.get_short().map(|letter| format!("`-{letter}`, ")).unwrap_or_default();
    let takes_value = argument.get_action().takes_values();
    let names = argument.get_value_names().unwrap_or_default();
    let value = names.iter().map(Str::as_str).collect::<Vec<_>>().join(" ");
    let (flag, value) = match argument.get_long() {
        Some(long) => {
            (format!("{short}`--{long}`"), if takes_value { value } else { String::new() })
        }
        None => (format!("`{value}`"), String::new()),
    };
    let help = argument.get_long_help().or(argument.get_help());
    let mut meaning = help.map(ToString::to_string).unwrap_or_default();
    let defaults: Vec<_> =
        argument.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    if takes_value && !defaults.is_empty() {
        meaning.push_str(&format!(" (default {})", defaults.join(" ")));
    }
    let possible = argument.get_possible_values();
    if takes_value && !possible.is_empty() {
        let possible: Vec<_> = possible.iter().map(PossibleValue::get_name).collect();
        meaning.push_str(&format!(" (one of {})", possible.join(", ")));
    }
    format!("| {flag} | {} | {} |\n", cell(&value), cell(&meaning))
}

/// Returns the page of all metrics in the tables of the programs.
fn metrics() -> String {
    let programs = [
        ("controller manager", evenkeel_controller_manager::METRICS_TABLE),
        ("scheduler", evenkeel_scheduler::METRICS_TABLE),
        ("cloud controller manager", evenkeel_cloud::program::METRICS_TABLE),
    ];
    let mut rows: BTreeMap<&str, ([&str; 3], Vec<&str>)> = BTreeMap::new();
    for (program, table) in programs {
        for line in table.lines().skip(1) {
            let mut fields = line.split('\t');
            let (name, mut field) =
                (fields.next().unwrap_or_default(), || fields.next().unwrap_or_default());
            let (kind, stability, _deprecated, labels) = (field(), field(), field(), field());
            rows.entry(name)
                .or_insert_with(|| ([kind, stability, labels], Vec::new()))
                .1
                .push(program);
        }
    }
    let mut page = format!(
        "{NOTE}\n# Metrics\n\nMetrics that the programs serve on `/metrics` of their secure ports, with upstream's names, labels and \
         stability levels. A metric appears when it is first counted. [Writing an operator](../operators.md#running-it) names those of \
         operators.\n\n| metric | type | stability | labels | programs |\n|---|---|---|---|---|\n"
    );
    for (name, ([kind, stability, labels], programs)) in rows {
        let labels = cell(&labels.replace(',', ", "));
        page.push_str(&format!(
            "| `{name}` | {kind} | {stability} | {labels} | {} |\n",
            programs.join(", ")
        ));
    }
    page
}

/// Returns the page of simulation annotations.
pub(super) fn annotations_markdown() -> String {
    let mut page = format!(
        "{NOTE}\n# Annotations of the simulation\n\nThe simulated nodes read these annotations of pods and nodes at any time during \
         their life. [Steer the simulation](../simulation.md) has examples, and says how values name containers.\n\n\
         | annotation | on | values | default | effect |\n|---|---|---|---|---|\n"
    );
    for annotation in &ANNOTATIONS {
        page.push_str(&format!(
            "| `{PREFIX}{}` | {} | {} | {} | {} |\n",
            annotation.name,
            annotation.kind,
            annotation.values,
            annotation.default,
            annotation.meaning
        ));
    }
    page
}

/// Returns the simulation annotations as text for a terminal.
pub(super) fn annotations_text() -> String {
    let entry = |annotation: &evenkeel_nodes::Annotation| {
        format!(
            "{PREFIX}{} ({})\n    {}\n    values:  {}\n    default: {}\n",
            annotation.name,
            annotation.kind,
            annotation.meaning,
            annotation.values,
            annotation.default
        )
    };
    ANNOTATIONS.iter().map(entry).collect::<Vec<_>>().join("\n").replace('`', "")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{collections::BTreeSet, fs, path::Path};

    /// Returns the root folder of the workspace.
    fn root() -> &'static Path {
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
    }

    #[test]
    fn pages_are_current() {
        let pages = pages(&super::super::commands());
        for (name, text) in &pages {
            let page = fs::read_to_string(root().join("docs/reference").join(name));
            let current = page.is_ok_and(|page| page == *text);
            assert!(current, "{name} is out of date: cargo run -- man --markdown docs/reference");
        }
        let text = |name: &str| &pages.iter().find(|(page, _)| page == name).expect("a page").1;
        assert!(text("evenkeel.md").contains("## evenkeel up\n"));
        assert!(text("evenkeel.md").contains("| `--nodes` | N | Number of simulated nodes."));
        assert!(text("kube-scheduler.md").contains("| `--secure-port` | int |"));
        assert!(text("cluster.md").contains("| **`name`** | string | Name of the group"));
        assert!(text("metrics.md").contains("| `workqueue_depth` | gauge |"));
    }

    /// Adds the names that follow the prefix of annotations in a text.
    fn collect_names(text: &str, names: &mut BTreeSet<String>) {
        for rest in text.split(PREFIX).skip(1) {
            // An API version, because the group of Behaviors has the same name as the prefix.
            if rest.starts_with("v1") {
                continue;
            }
            let end =
                rest.find(|c: char| !c.is_ascii_lowercase() && c != '-').unwrap_or(rest.len());
            // `kubectl annotate` removes an annotation whose argument ends in a hyphen.
            names.insert(rest[..end].trim_end_matches('-').to_owned());
        }
    }

    /// Adds the names of annotations in all files of a folder.
    fn collect_in_folder(folder: &Path, names: &mut BTreeSet<String>) {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                collect_in_folder(&path, names);
            } else if let Ok(text) = fs::read_to_string(&path) {
                collect_names(&text, names);
            }
        }
    }

    #[test]
    fn annotations_that_anything_names_are_in_the_table() {
        let mut names = BTreeSet::new();
        for folder in ["crates", "docs", "examples", "tests"] {
            collect_in_folder(&root().join(folder), &mut names);
        }
        assert!(names.remove(""), "the prefix alone stands somewhere");
        let known: BTreeSet<String> =
            ANNOTATIONS.iter().map(|annotation| annotation.name.to_owned()).collect();
        assert_eq!(names, known);
    }

    #[test]
    fn cells_are_escaped_outside_of_code() {
        assert_eq!(cell("a|b <c> *d* `<e>|*`\n f_g"), "a\\|b &lt;c> \\*d\\* `<e>\\|*`<br>f\\_g");
    }

    #[test]
    fn the_text_for_terminals_has_no_markup() {
        let text = annotations_text();
        assert!(text.starts_with("sim.evenkeel.dev/run-time (Pod)\n    the container ends"));
        assert!(!text.contains('`'));
    }
}
