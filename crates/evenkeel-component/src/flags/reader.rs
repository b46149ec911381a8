//! Converts parsed flags to typed options, records which flags were read, and collects invalid values.

use super::{ParsedFlags, Value};
use std::{
    cell::RefCell,
    collections::BTreeSet,
    fmt,
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

/// Reader of typed flag values. It collects problems, so that [`Reader::done`] reports all of them together. A
/// flag that is set but never read is not implemented, see [`Reader::unread`].
#[derive(Debug)]
pub struct Reader {
    given: ParsedFlags,
    read: RefCell<BTreeSet<String>>,
    idle: RefCell<BTreeSet<&'static str>>,
    problems: RefCell<Vec<(String, String)>>,
}

/// All invalid values, formatted as upstream formats several errors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problems(Vec<String>);

impl Problems {
    /// Returns the problems, one sentence each.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [one] => f.write_str(one),
            several => write!(f, "[{}]", several.join(", ")),
        }
    }
}

impl std::error::Error for Problems {}

macro_rules! readers {
    ($($(#[$doc:meta])* $name:ident -> $type:ty: $pattern:pat => $value:expr, $otherwise:expr;)*) => {
        impl Reader {$(
            $(#[$doc])*
            pub fn $name(&self, flag: &str) -> $type {
                match self.value(flag) {
                    $pattern => $value,
                    _ => $otherwise,
                }
            }
        )*}
    };
}

readers! {
    /// Returns the value of a `bool` flag.
    bool -> bool: Some(Value::Bool(value)) => value, false;
    /// Returns the value of an integer flag.
    int -> i64: Some(Value::Int(value)) => value, 0;
    /// Returns the value of a number flag.
    float -> f64: Some(Value::Float(value)) => value, 0.0;
    /// Returns the value of a duration flag.
    duration -> Duration: Some(Value::Duration(value)) => value, Duration::ZERO;
    /// Returns the value of a list flag.
    list -> Vec<String>: Some(Value::List(value)) => value, Vec::new();
    /// Returns the pairs of a map flag.
    map -> Vec<(String, String)>: Some(Value::Map(value)) => value, Vec::new();
    /// Returns the value of an IP address flag.
    ip -> IpAddr: Some(Value::Ip(value)) => value, IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    /// Returns the value of a text flag.
    text -> String: Some(Value::Text(value)) => value, String::new();
}

impl Reader {
    /// Returns a reader of parsed flags.
    pub fn new(given: ParsedFlags) -> Self {
        Self {
            given,
            read: RefCell::default(),
            idle: RefCell::default(),
            problems: RefCell::default(),
        }
    }

    /// Returns the parsed flags. Reading a flag through them does not count.
    pub fn given(&self) -> &ParsedFlags {
        &self.given
    }

    /// Returns the value of a flag, and marks the flag as read. An unknown flag is a bug in the program, which
    /// a test of all its options detects.
    fn value(&self, flag: &str) -> Option<Value> {
        self.read.borrow_mut().insert(flag.to_owned());
        let value = self.given.value(flag);
        if value.is_none() {
            self.refuse(flag, format!("there is no flag --{flag}"));
        }
        value
    }

    /// Returns the value of a text flag, or `None` if it is empty.
    pub fn path(&self, flag: &str) -> Option<String> {
        Some(self.text(flag)).filter(|text| !text.is_empty())
    }

    /// Returns the value of an integer flag, which must be greater than zero.
    pub fn positive(&self, flag: &str) -> usize {
        let value = self.int(flag);
        match usize::try_from(value) {
            Ok(number) if number > 0 => number,
            _ => {
                self.refuse(flag, format!("{flag} must be greater than 0, but got {value}"));
                1
            }
        }
    }

    /// Records that a flag's value is invalid. Only the first problem of a flag is reported.
    pub fn refuse(&self, flag: &str, problem: impl Into<String>) {
        let mut problems = self.problems.borrow_mut();
        if !problems.iter().any(|(of, _)| of == flag) {
            problems.push((flag.to_owned(), problem.into()));
        }
    }

    /// Marks flags that are validated but not implemented yet.
    pub fn idle(&self, flags: &[&'static str]) {
        self.idle.borrow_mut().extend(flags);
    }

    /// Returns the flags on the command line that are not implemented.
    pub fn unread(&self) -> Vec<&'static str> {
        let (read, idle) = (self.read.borrow(), self.idle.borrow());
        let behind = |name: &&'static str| !read.contains(*name) || idle.contains(name);
        self.given
            .names()
            .filter(|name| !matches!(*name, "help" | "version"))
            .filter(behind)
            .collect()
    }

    /// Returns the parsed flags, if no value is invalid.
    ///
    /// # Errors
    /// When any value was refused.
    pub fn done(self) -> Result<ParsedFlags, Problems> {
        let problems = self.problems.into_inner();
        if problems.is_empty() {
            return Ok(self.given);
        }
        Err(Problems(problems.into_iter().map(|(_, problem)| problem).collect()))
    }
}
