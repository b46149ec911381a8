//! Help text in the format of upstream's programs: sections of flags, with a line for each flag.

use super::{Flag, Flags, Type};
use std::collections::BTreeMap;

/// Minimum width of the column of descriptions, however narrow the terminal is.
const MIN_USAGE_WIDTH: usize = 24;

/// Parts of the help text besides the flags.
#[derive(Debug, Clone, Default)]
pub struct About {
    /// Name of the program.
    pub name: &'static str,
    /// Description of the program.
    pub description: &'static str,
    /// Additional lines about single flags, by the flag's name.
    pub notes: BTreeMap<&'static str, String>,
}

impl Flags {
    /// Returns the help text. Lines are wrapped at `columns`, if given.
    pub fn help(&self, about: &About, columns: Option<usize>) -> String {
        let mut text = format!("{}\n\nUsage:\n  {} [flags]\n", about.description, about.name);
        let mut sections: Vec<&str> = Vec::new();
        for flag in self.shown() {
            if !sections.contains(&flag.section) {
                sections.push(flag.section);
            }
        }
        for section in sections {
            text.push_str(&format!("\n{section} flags:\n\n"));
            let flags: Vec<&Flag> = self.shown().filter(|flag| flag.section == section).collect();
            let names: Vec<String> = flags.iter().map(|flag| name_column(flag)).collect();
            let width = names.iter().map(String::len).max().unwrap_or_default() + 3;
            for (flag, name) in flags.iter().zip(&names) {
                text.push_str(&format!("{name:width$}"));
                let mut usage = usage(flag);
                if let Some(note) = about.notes.get(flag.name) {
                    usage.push('\n');
                    usage.push_str(note);
                }
                let width_left =
                    columns.map(|columns| columns.saturating_sub(width).max(MIN_USAGE_WIDTH));
                let lines = usage.lines().flat_map(|line| wrap(line, width_left));
                let lines: Vec<String> = lines.collect();
                text.push_str(lines.join(&format!("\n{:width$}", "")).trim_end());
                text.push('\n');
            }
        }
        text
    }

    /// Returns the flags that the help text shows: all but the deprecated ones.
    fn shown(&self) -> impl Iterator<Item = &Flag> {
        self.iter().filter(|flag| flag.deprecated.is_none())
    }
}

/// Returns the first column of a flag: its names and type.
fn name_column(flag: &Flag) -> String {
    let short = flag.short().map_or_else(|| "    ".to_owned(), |letter| format!("-{letter}, "));
    let kind = match flag.kind {
        Type::Bool => String::new(),
        kind => format!(" {}", kind.name()),
    };
    format!("  {short}--{}{kind}", flag.name)
}

/// Returns the flag's description and its default.
pub(super) fn usage(flag: &Flag) -> String {
    let mut usage = flag.description.to_owned();
    if !flag.default.is_empty() {
        usage.push_str(&format!(" (default {})", flag.default));
    }
    usage
}

/// Wraps a line between words at `width` bytes. A longer word has its own line.
fn wrap(line: &str, width: Option<usize>) -> Vec<String> {
    let Some(width) = width else { return vec![line.to_owned()] };
    let mut pieces = vec![String::new()];
    for word in line.split(' ') {
        let length = pieces.last().map_or(0, String::len);
        if length > 0 && length + 1 + word.len() > width {
            pieces.push(String::new());
        }
        if let Some(piece) = pieces.last_mut() {
            if !piece.is_empty() {
                piece.push(' ');
            }
            piece.push_str(word);
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_has_sections_and_wraps_lines() {
        let table = "section\tflag\ttype\tdefault\nGeneric\tleader-elect\tbool\ttrue\nGeneric\tkube-api-qps\tfloat32\t20\n\
            Logs\tv\tLevel\t\n";
        let words =
            "leader-elect\tWhether to lead\nkube-api-qps\tRequests a second\nv\tHow much to tell";
        let flags = Flags::from_table(table, words).with_deprecated("\nold\tbool\t\tIt is old");
        let notes = BTreeMap::from([("kube-api-qps", "A second line of some length".to_owned())]);
        let about = About { name: "program", description: "Does things.", notes };
        let text = "Does things.\n\nUsage:\n  program [flags]\n\nGeneric flags:\n\n      \
            --leader-elect           Whether to lead (default true)\n      \
            --kube-api-qps float32   Requests a second (default 20)\n                               \
            A second line of some length\n\nLogs flags:\n\n  -v, --v Level   How much to tell\n";
        assert_eq!(flags.help(&about, None), text);
        let narrow = flags.help(&about, Some(55));
        assert!(narrow.lines().all(|line| line.len() <= 55), "{narrow}");
        assert!(narrow.contains("A second line of some\n"), "{narrow}");
    }
}
