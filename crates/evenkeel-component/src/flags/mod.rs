//! Flags in the style of upstream's programs.
//!
//! A table recorded from upstream's own `--help` contains names, sections, types and defaults. The command
//! line, the help text, man pages and completion are generated from it, so no flag can be missing. Each program
//! interprets its own flags.

pub mod duration;
mod help;
mod parse;
mod print;
mod reader;
mod shell;
mod value;

pub use help::About;
pub use parse::{Invocation, ParsedFlags, UsageError};
pub use reader::{InvalidFlags, Reader};
pub use shell::command;
pub use value::{Type, Value};

/// Descriptions of the flags that several programs share: a name and a description per line.
const SHARED_DESCRIPTIONS: &str = include_str!("../../data/words.tsv");

/// Flag in the recorded table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flag {
    /// Section of the help text.
    pub section: &'static str,
    /// Name without dashes.
    pub name: &'static str,
    /// Type of the flag's value.
    pub kind: Type,
    /// Default as upstream prints it. Empty if upstream prints none.
    pub default: &'static str,
    /// Reason why the flag is deprecated. The help text leaves out such a flag.
    pub deprecated: Option<&'static str>,
    /// Description of the flag, on one line.
    pub description: &'static str,
}

impl Flag {
    /// Returns the flag's shorthand, a single letter.
    pub fn short(&self) -> Option<char> {
        match self.name {
            "v" => Some('v'),
            "help" => Some('h'),
            _ => None,
        }
    }
}

/// A program's flags.
#[derive(Debug, Clone)]
pub struct Flags(Vec<Flag>);

impl Flags {
    /// Reads a table with the columns section, flag, type and default. `words` contains the descriptions,
    /// which take precedence over the shared ones.
    pub fn from_table(table: &'static str, words: &'static str) -> Self {
        Self(Vec::new()).with_own(table, words)
    }

    /// Adds flags that upstream's program does not have, from a table with the same columns.
    #[must_use]
    pub fn with_own(mut self, table: &'static str, words: &'static str) -> Self {
        for line in rows(table) {
            let [section, name, kind, default] = cells(line);
            let description_in = |words: &'static str| {
                let mut rows = words.lines().filter_map(|line| line.split_once('\t'));
                let (_, description) = rows.find(|(flag, _)| *flag == name)?;
                Some(description)
            };
            self.0.push(Flag {
                section,
                name,
                kind: Type::from_name(kind),
                default,
                deprecated: None,
                description: description_in(words)
                    .or_else(|| description_in(SHARED_DESCRIPTIONS))
                    .unwrap_or_default(),
            });
        }
        self
    }

    /// Adds deprecated flags from a table with the columns name, type, default and reason. They are accepted
    /// with a warning, and the help text leaves them out.
    #[must_use]
    pub fn with_deprecated(mut self, table: &'static str) -> Self {
        for line in rows(table) {
            let [name, kind, default, why] = cells(line);
            let (section, kind) = ("Retired", Type::from_name(kind));
            self.0.push(Flag {
                section,
                name,
                kind,
                default,
                deprecated: Some(why),
                description: why,
            });
        }
        self
    }

    /// Returns all flags, in the table's order.
    pub fn iter(&self) -> impl Iterator<Item = &Flag> {
        self.0.iter()
    }

    /// Returns the flag of this name.
    pub fn get(&self, name: &str) -> Option<&Flag> {
        self.0.iter().find(|flag| flag.name == name)
    }
}

fn rows(table: &'static str) -> impl Iterator<Item = &'static str> {
    table.lines().skip(1).filter(|line| !line.is_empty())
}

fn cells<const N: usize>(line: &'static str) -> [&'static str; N] {
    let mut cells = line.split('\t');
    std::array::from_fn(|_| cells.next().unwrap_or_default())
}
