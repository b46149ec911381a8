//! Flags as upstream's programs take them.
//!
//! Names, sections, types and defaults come from a table recorded from upstream's own `--help`; the command line, the help
//! text, man pages and completion are made from it, so a flag cannot be forgotten. What the flags mean to the program is in
//! the program that takes them.

pub mod duration;
mod help;
mod parse;
mod print;
mod reader;
mod shell;
mod value;

pub use help::About;
pub use parse::{Invocation, ParsedFlags, UsageError};
pub use reader::{Problems, Reader};
pub use shell::command;
pub use value::{Type, Value};

/// Our words on the flags that several programs have, a line each: name, words.
const WORDS: &str = include_str!("../../data/words.tsv");

/// One line of the recorded table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flag {
    /// Section of the help text.
    pub section: &'static str,
    /// Name without dashes.
    pub name: &'static str,
    /// Type of its value.
    pub kind: Type,
    /// Default as upstream prints it; empty where it prints none.
    pub default: &'static str,
    /// Why not to use it; such a flag is not shown.
    pub retired: Option<&'static str>,
    /// Description of the flag, on one line.
    pub words: &'static str,
}

impl Flag {
    /// The one letter that stands for it as well.
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
    /// Reads a table with the columns section, flag, type, default; `words` has what each does, beside those that several
    /// programs have.
    pub fn from_table(table: &'static str, words: &'static str) -> Self {
        Self(Vec::new()).with_own(table, words)
    }

    /// Adds flags that upstream's program does not have, by a table of the same columns.
    #[must_use]
    pub fn with_own(mut self, table: &'static str, words: &'static str) -> Self {
        for line in rows(table) {
            let [section, name, kind, default] = cells(line);
            let of = |words: &'static str| {
                words.lines().find_map(|line| line.split_once('\t').filter(|(of, _)| *of == name))
            };
            self.0.push(Flag {
                section,
                name,
                kind: Type::named(kind),
                default,
                retired: None,
                words: of(words).or_else(|| of(WORDS)).map_or("", |(_, words)| words),
            });
        }
        self
    }

    /// Adds flags that are still taken, with a warning, but not shown: name, type, default, and why not to use it.
    #[must_use]
    pub fn with_retired(mut self, table: &'static str) -> Self {
        for line in rows(table) {
            let [name, kind, default, why] = cells(line);
            let (section, kind) = ("Retired", Type::named(kind));
            self.0.push(Flag { section, name, kind, default, retired: Some(why), words: why });
        }
        self
    }

    /// All flags, in the table's order.
    pub fn iter(&self) -> impl Iterator<Item = &Flag> {
        self.0.iter()
    }

    /// The flag of this name.
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
