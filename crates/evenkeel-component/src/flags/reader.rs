//! Turns parsed flags into typed options, records which flags were read, and collects the values that are not allowed.

use super::{ParsedFlags, Value};
use std::{
    cell::RefCell,
    collections::BTreeSet,
    fmt,
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

/// Returns typed values of flags. Problems are collected, so that all are reported together: [`Reader::done`]. A flag that is
/// set but never read is not implemented: [`Reader::unread`].
#[derive(Debug)]
pub struct Reader {
    given: ParsedFlags,
    read: RefCell<BTreeSet<String>>,
    idle: RefCell<BTreeSet<&'static str>>,
    problems: RefCell<Vec<(String, String)>>,
}

/// All that is not allowed, in upstream's form of several errors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problems(Vec<String>);

impl Problems {
    /// Returns the problems, a sentence each.
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
    /// A `bool`.
    bool -> bool: Some(Value::Bool(value)) => value, false;
    /// A whole number.
    int -> i64: Some(Value::Int(value)) => value, 0;
    /// A number.
    float -> f64: Some(Value::Float(value)) => value, 0.0;
    /// A duration.
    duration -> Duration: Some(Value::Duration(value)) => value, Duration::ZERO;
    /// A list.
    list -> Vec<String>: Some(Value::List(value)) => value, Vec::new();
    /// Pairs.
    map -> Vec<(String, String)>: Some(Value::Map(value)) => value, Vec::new();
    /// An address.
    ip -> IpAddr: Some(Value::Ip(value)) => value, IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    /// Text.
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

    /// Returns the parsed flags; reading one here does not count as read.
    pub fn given(&self) -> &ParsedFlags {
        &self.given
    }

    /// A flag that the program does not have is the program's mistake; a test that reads all of its options finds it.
    fn value(&self, flag: &str) -> Option<Value> {
        self.read.borrow_mut().insert(flag.to_owned());
        let value = self.given.value(flag);
        if value.is_none() {
            self.refuse(flag, format!("there is no flag --{flag}"));
        }
        value
    }

    /// Text, `None` where empty.
    pub fn path(&self, flag: &str) -> Option<String> {
        Some(self.text(flag)).filter(|text| !text.is_empty())
    }

    /// Returns an integer flag above zero; another value is refused.
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

    /// Records that a flag's value is not allowed. Only the first problem of a flag is reported.
    pub fn refuse(&self, flag: &str, problem: impl Into<String>) {
        let mut problems = self.problems.borrow_mut();
        if !problems.iter().any(|(of, _)| of == flag) {
            problems.push((flag.to_owned(), problem.into()));
        }
    }

    /// Says that these flags have nothing behind them yet, although their values are known.
    pub fn idle(&self, flags: &[&'static str]) {
        self.idle.borrow_mut().extend(flags);
    }

    /// Returns the flags on the command line that nothing has read.
    pub fn unread(&self) -> Vec<&'static str> {
        let (read, idle) = (self.read.borrow(), self.idle.borrow());
        let behind = |name: &&'static str| !read.contains(*name) || idle.contains(name);
        self.given
            .names()
            .filter(|name| !matches!(*name, "help" | "version"))
            .filter(behind)
            .collect()
    }

    /// Fails with all that is not allowed.
    ///
    /// # Errors
    /// When anything was refused.
    pub fn done(self) -> Result<ParsedFlags, Problems> {
        let problems = self.problems.into_inner();
        if problems.is_empty() {
            return Ok(self.given);
        }
        Err(Problems(problems.into_iter().map(|(_, problem)| problem).collect()))
    }
}
