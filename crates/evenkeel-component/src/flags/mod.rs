//! Flags as upstream's programs take them.
//!
//! Names, sections, types and defaults come from a table recorded from upstream's own `--help`; the command line is made
//! from it, so a flag cannot be forgotten. What the flags mean to the program is in the program that takes them.

pub mod duration;
mod reader;
mod value;

use clap::{Arg, ArgAction, Command, builder::ValueParser};
pub use reader::Reader;
use std::collections::BTreeMap;
pub use value::{Type, Value, ValueError};

/// One line of the recorded table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flag {
    /// Section of the help text.
    pub section: &'static str,
    /// Name without dashes.
    pub name: &'static str,
    /// Type of its value.
    pub kind: Type,
    /// Default as upstream prints it, without quotes; empty where it prints none.
    pub default: &'static str,
    /// Upstream's words on why not to use it, where it has any.
    pub deprecated: Option<&'static str>,
}

/// A program's flags.
#[derive(Debug, Clone)]
pub struct Flags(Vec<Flag>);

impl Flags {
    /// Reads a table with the columns section, flag, type, default, deprecated.
    pub fn from_table(table: &'static str) -> Self {
        let row = |line: &'static str| {
            let mut cells = line.split('\t');
            let mut next = || cells.next().unwrap_or_default();
            let (section, name, kind, default) = (next(), next(), next(), next());
            Flag {
                section,
                name,
                kind: Type::named(kind),
                default: default.trim_matches('"'),
                deprecated: Some(next()).filter(|text| !text.is_empty()),
            }
        };
        Self(table.lines().skip(1).filter(|line| !line.is_empty()).map(row).collect())
    }

    /// All flags, in the table's order.
    pub fn iter(&self) -> impl Iterator<Item = &Flag> {
        self.0.iter()
    }

    /// The flag of this name.
    pub fn get(&self, name: &str) -> Option<&Flag> {
        self.0.iter().find(|flag| flag.name == name)
    }

    /// Adds these flags to a command, with `help` for those that the program has words for.
    pub fn command(
        &self,
        mut command: Command,
        help: &BTreeMap<&'static str, &'static str>,
    ) -> Command {
        for flag in self.0.iter().filter(|flag| !matches!(flag.name, "help" | "version")) {
            let mut arg = Arg::new(flag.name)
                .long(flag.name)
                .help_heading(flag.section)
                .value_name(flag.kind.name())
                .action(ArgAction::Append)
                .value_parser(ValueParser::string())
                .allow_hyphen_values(true);
            if flag.name == "v" {
                arg = arg.short('v');
            }
            if matches!(flag.kind, Type::Bool) {
                arg = arg.num_args(0..=1).require_equals(true).default_missing_value("true");
            }
            let mut words = help
                .get(flag.name)
                .copied()
                .unwrap_or("Accepted for compatibility; nothing here reads it yet")
                .to_owned();
            if !flag.default.is_empty() {
                words.push_str(&format!(" (default {})", flag.default));
            }
            command = command.arg(arg.help(words));
        }
        command
    }

    /// Reads what was given. A flag that is repeated takes its last value, but for lists, which add up.
    pub fn read(&self, matches: &clap::ArgMatches) -> Result<Given, ValueError> {
        let mut given = BTreeMap::new();
        for flag in &self.0 {
            let Ok(Some(values)) = matches.try_get_many::<String>(flag.name) else { continue };
            let texts: Vec<&str> = values.map(String::as_str).collect();
            given.insert(flag.name, flag.kind.parse(flag.name, &texts)?);
        }
        Ok(Given { flags: self.clone(), given })
    }
}

/// Normalises an argument as pflag does: `--leader_elect` is `--leader-elect`.
pub fn normalise(argument: &str) -> String {
    let Some(flag) = argument.strip_prefix("--") else { return argument.to_owned() };
    match flag.split_once('=') {
        Some((name, value)) => format!("--{}={value}", name.replace('_', "-")),
        None => format!("--{}", flag.replace('_', "-")),
    }
}

/// What was given on the command line, with defaults behind it.
#[derive(Debug, Clone)]
pub struct Given {
    flags: Flags,
    given: BTreeMap<&'static str, Value>,
}

impl Given {
    /// Names that were given.
    pub fn names(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.given.keys().copied()
    }

    /// The value of a flag: as given, else its default.
    pub fn value(&self, name: &str) -> Result<Value, ValueError> {
        if let Some(value) = self.given.get(name) {
            return Ok(value.clone());
        }
        let flag = self.flags.get(name).ok_or_else(|| ValueError::unknown(name))?;
        flag.kind.default(flag.name, flag.default)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "section\tflag\ttype\tdefault\tdeprecated\nGeneric\tleader-elect\tbool\ttrue\t\nGeneric\tkube-api-qps\tfloat32\t20\t\n\
        Generic\tcontrollers\tstrings\t[*]\t\nGeneric\tmin-resync-period\tduration\t12h0m0s\t\nLogs\tv\tLevel\t\t\nMisc\tkubeconfig\tstring\t\t\n";

    fn read(arguments: &[&str]) -> Result<Given, String> {
        let flags = Flags::from_table(TABLE);
        let command = flags.command(Command::new("test").no_binary_name(true), &BTreeMap::new());
        let matches = command
            .try_get_matches_from(arguments.iter().map(|a| normalise(a)))
            .map_err(|e| e.to_string())?;
        flags.read(&matches).map_err(|e| e.to_string())
    }

    #[track_caller]
    fn check(arguments: &[&str], name: &str, want: Value) {
        assert_eq!(
            read(arguments).and_then(|g| g.value(name).map_err(|e| e.to_string())),
            Ok(want),
            "{arguments:?}"
        );
    }

    #[test]
    fn flags_are_read_as_pflag_reads_them() {
        check(&[], "leader-elect", Value::Bool(true));
        check(&["--leader-elect=false"], "leader-elect", Value::Bool(false));
        check(&["--leader_elect=F"], "leader-elect", Value::Bool(false));
        check(&["--leader-elect"], "leader-elect", Value::Bool(true));
        check(&["--kube-api-qps", "2000"], "kube-api-qps", Value::Float(2000.0));
        check(&["--kube-api-qps=-1"], "kube-api-qps", Value::Float(-1.0));
        check(
            &["--controllers=a,-b", "--controllers=c"],
            "controllers",
            Value::List(vec!["a".into(), "-b".into(), "c".into()]),
        );
        check(&[], "controllers", Value::List(vec!["*".into()]));
        check(
            &["--min-resync-period=1h"],
            "min-resync-period",
            Value::Duration(std::time::Duration::from_secs(3600)),
        );
        check(&["-v", "4"], "v", Value::Int(4));
        check(&["-v=4"], "v", Value::Int(4));
        check(&["--kubeconfig=a", "--kubeconfig=b"], "kubeconfig", Value::Text("b".into()));
    }

    #[test]
    fn bad_values_name_their_flag() {
        for arguments in
            [["--kube-api-qps=fast"], ["--min-resync-period=12"], ["--leader-elect=maybe"]]
        {
            let error = read(&arguments).expect_err("must be refused");
            let flag = arguments[0].split('=').next().expect("a flag");
            assert!(error.contains(flag), "{error}");
        }
    }
}
