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
/// flag on the command line that no option reads is not implemented, see [`Reader::unread`].
#[derive(Debug)]
pub struct Reader {
    parsed: ParsedFlags,
    read: RefCell<BTreeSet<String>>,
    unimplemented: RefCell<BTreeSet<&'static str>>,
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
    ($($(#[$doc:meta])* $name:ident -> $type:ty: $pattern:pat => $value:expr, $default:expr;)*) => {
        impl Reader {$(
            $(#[$doc])*
            pub fn $name(&self, flag: &str) -> $type {
                match self.value(flag) {
                    $pattern => $value,
                    _ => $default,
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
    /// Returns the value of a float flag.
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
    pub fn new(parsed: ParsedFlags) -> Self {
        Self {
            parsed,
            read: RefCell::default(),
            unimplemented: RefCell::default(),
            problems: RefCell::default(),
        }
    }

    /// Returns the parsed flags. Reading a flag through them does not mark it as read.
    pub fn given(&self) -> &ParsedFlags {
        &self.parsed
    }

    /// Returns the value of a flag, and marks the flag as read. A name that the flag table lacks is a programming
    /// error. It is recorded as a problem, so that a test that reads all options fails.
    fn value(&self, flag: &str) -> Option<Value> {
        self.read.borrow_mut().insert(flag.to_owned());
        let value = self.parsed.value(flag);
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
    pub fn mark_unimplemented(&self, flags: &[&'static str]) {
        self.unimplemented.borrow_mut().extend(flags);
    }

    /// Returns the flags on the command line that are not implemented.
    pub fn unread(&self) -> Vec<&'static str> {
        let (read, unimplemented) = (self.read.borrow(), self.unimplemented.borrow());
        let is_unimplemented =
            |name: &&'static str| !read.contains(*name) || unimplemented.contains(name);
        self.parsed
            .names()
            .filter(|name| !matches!(*name, "help" | "version"))
            .filter(is_unimplemented)
            .collect()
    }

    /// Returns the parsed flags, if no value is invalid.
    ///
    /// # Errors
    /// Fails if any value was refused.
    pub fn done(self) -> Result<ParsedFlags, Problems> {
        let problems = self.problems.into_inner();
        if problems.is_empty() {
            return Ok(self.parsed);
        }
        Err(Problems(problems.into_iter().map(|(_, problem)| problem).collect()))
    }
}
