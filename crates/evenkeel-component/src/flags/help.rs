//! The help text, in the shape that upstream's programs give it: sections, and a line for each flag.

use super::{Flag, Flags, Type};
use std::collections::BTreeMap;

/// What the help text says besides the flags.
#[derive(Debug, Clone, Default)]
pub struct About {
    /// The program's name.
    pub name: &'static str,
    /// What the program is.
    pub what: &'static str,
    /// More about single flags, on lines of their own, by the flag's name.
    pub more: BTreeMap<&'static str, String>,
}

impl Flags {
    /// The help text; lines are broken at `columns` where that is given.
    pub fn help(&self, about: &About, columns: Option<usize>) -> String {
        let mut text = format!("{}\n\nUsage:\n  {} [flags]\n", about.what, about.name);
        let mut sections: Vec<&str> = Vec::new();
        for flag in self.shown() {
            if !sections.contains(&flag.section) {
                sections.push(flag.section);
            }
        }
        for section in sections {
            text.push_str(&format!("\n{section} flags:\n\n"));
            let flags: Vec<&Flag> = self.shown().filter(|flag| flag.section == section).collect();
            let heads: Vec<String> = flags.iter().map(|flag| head(flag)).collect();
            let width = heads.iter().map(String::len).max().unwrap_or_default() + 3;
            for (flag, head) in flags.iter().zip(&heads) {
                text.push_str(&format!("{head:width$}"));
                let mut words = words(flag);
                if let Some(more) = about.more.get(flag.name) {
                    words.push('\n');
                    words.push_str(more);
                }
                let room = columns.map(|columns| columns.saturating_sub(width).max(24));
                let lines = words.lines().flat_map(|line| broken(line, room));
                let lines: Vec<String> = lines.collect();
                text.push_str(lines.join(&format!("\n{:width$}", "")).trim_end());
                text.push('\n');
            }
        }
        text
    }

    fn shown(&self) -> impl Iterator<Item = &Flag> {
        self.iter().filter(|flag| flag.retired.is_none())
    }
}

fn head(flag: &Flag) -> String {
    let short = flag.short().map_or_else(|| "    ".to_owned(), |letter| format!("-{letter}, "));
    let kind = match flag.kind {
        Type::Bool => String::new(),
        kind => format!(" {}", kind.name()),
    };
    format!("  {short}--{}{kind}", flag.name)
}

/// What the flag does, and its default.
pub(super) fn words(flag: &Flag) -> String {
    let mut words = flag.words.to_owned();
    if !flag.default.is_empty() {
        words.push_str(&format!(" (default {})", flag.default));
    }
    words
}

/// A line in pieces of at most `room` letters, where words allow it.
fn broken(line: &str, room: Option<usize>) -> Vec<String> {
    let Some(room) = room else { return vec![line.to_owned()] };
    let mut pieces = vec![String::new()];
    for word in line.split(' ') {
        let last = pieces.last().map_or(0, String::len);
        if last > 0 && last + 1 + word.len() > room {
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
    fn sections_stand_as_upstreams_do() {
        let table = "section\tflag\ttype\tdefault\nGeneric\tleader-elect\tbool\ttrue\nGeneric\tkube-api-qps\tfloat32\t20\n\
            Logs\tv\tLevel\t\n";
        let words =
            "leader-elect\tWhether to lead\nkube-api-qps\tRequests a second\nv\tHow much to tell";
        let flags = Flags::from_table(table, words).with_retired("\nold\tbool\t\tIt is old");
        let more = BTreeMap::from([("kube-api-qps", "A second line of some length".to_owned())]);
        let about = About { name: "program", what: "Does things.", more };
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
