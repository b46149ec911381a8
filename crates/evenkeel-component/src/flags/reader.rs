//! Converts parsed flags to typed options, records which flags were read, and collects invalid values.

use super::{ParsedFlags, Value};
use std::{
    cell::RefCell,
    collections::BTreeSet,
    fmt,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::Duration,
};

/// Reader of typed flag values. It collects invalid values, so that [`Reader::done`] reports all of them together. A
/// flag on the command line that no option reads is not implemented, see [`Reader::unimplemented_flags`].
#[derive(Debug)]
pub struct Reader {
    parsed: ParsedFlags,
    read: RefCell<BTreeSet<String>>,
    unimplemented: RefCell<BTreeSet<&'static str>>,
    /// Invalid flags, each with its message.
    invalid: RefCell<Vec<(String, String)>>,
}

/// Messages about all flags with invalid values. Formatted like `utilerrors.Aggregate`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidFlags(Vec<String>);

impl InvalidFlags {
    /// Returns the message for each invalid flag.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

impl fmt::Display for InvalidFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [one] => f.write_str(one),
            several => write!(f, "[{}]", several.join(", ")),
        }
    }
}

impl std::error::Error for InvalidFlags {}

macro_rules! readers {
    ($($(#[$doc:meta])* $name:ident -> $type:ty: $pattern:pat => $value:expr, $default:expr;)*) => {
        impl Reader {$(
            $(#[$doc])*
            pub fn $name(&self, flag: &str) -> $type {
                match self.value(flag) {
                    Some($pattern) => $value,
                    Some(_) => {
                        self.record_wrong_type(flag, stringify!($name));
                        $default
                    }
                    None => $default,
                }
            }
        )*}
    };
}

readers! {
    /// Returns the value of a `bool` flag.
    bool -> bool: Value::Bool(value) => value, false;
    /// Returns the value of an integer flag.
    int -> i64: Value::Int(value) => value, 0;
    /// Returns the value of a float flag.
    float -> f64: Value::Float(value) => value, 0.0;
    /// Returns the value of a duration flag.
    duration -> Duration: Value::Duration(value) => value, Duration::ZERO;
    /// Returns the value of a list flag.
    list -> Vec<String>: Value::List(value) => value, Vec::new();
    /// Returns the pairs of a map flag.
    map -> Vec<(String, String)>: Value::Map(value) => value, Vec::new();
    /// Returns the value of a string flag.
    text -> String: Value::Text(value) => value, String::new();
}

impl Reader {
    /// Returns a reader of parsed flags.
    pub fn new(parsed: ParsedFlags) -> Self {
        Self {
            parsed,
            read: RefCell::default(),
            unimplemented: RefCell::default(),
            invalid: RefCell::default(),
        }
    }

    /// Returns the parsed flags. Reading a flag through them does not mark it as read.
    pub fn parsed(&self) -> &ParsedFlags {
        &self.parsed
    }

    /// Returns the value of a flag, and marks the flag as read. A name that the flag table lacks is a programming
    /// error. It is recorded as an invalid flag, so that a test that reads all options fails.
    fn value(&self, flag: &str) -> Option<Value> {
        self.read.borrow_mut().insert(flag.to_owned());
        let value = self.parsed.value(flag);
        if value.is_none() {
            self.record_invalid(flag, format!("there is no flag --{flag}"));
        }
        value
    }

    /// Records that an option reads a flag with a function for another type, which is a programming error.
    fn record_wrong_type(&self, flag: &str, expected: &str) {
        self.record_invalid(flag, format!("flag --{flag} is not of type {expected}"));
    }

    /// Returns the value of an IP address flag, or `0.0.0.0` if the flag is not given and has no default.
    pub fn ip(&self, flag: &str) -> IpAddr {
        const UNSPECIFIED: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        match self.value(flag) {
            Some(Value::Ip(value)) => value,
            // An absent default is the empty string.
            Some(Value::Text(text)) if text.is_empty() => UNSPECIFIED,
            Some(_) => {
                self.record_wrong_type(flag, "ip");
                UNSPECIFIED
            }
            None => UNSPECIFIED,
        }
    }

    /// Returns the IP address and port of a string flag, or `None` if it is empty.
    pub fn socket_address(&self, flag: &str) -> Option<SocketAddr> {
        let text = self.non_empty_text(flag)?;
        let address = text.parse();
        if address.is_err() {
            let rule = "must be an IP address with a port, such as 127.0.0.1:10261 or [::1]:10261";
            self.record_invalid(flag, format!("--{flag} {text} {rule}"));
        }
        address.ok()
    }

    /// Returns the value of a string flag, or `None` if it is empty.
    pub fn non_empty_text(&self, flag: &str) -> Option<String> {
        Some(self.text(flag)).filter(|text| !text.is_empty())
    }

    /// Returns the value of an integer flag, which must be greater than zero.
    pub fn positive(&self, flag: &str) -> usize {
        let value = self.int(flag);
        match usize::try_from(value) {
            Ok(number) if number > 0 => number,
            _ => {
                self.record_invalid(
                    flag,
                    format!("{flag} must be greater than 0, but got {value}"),
                );
                1
            }
        }
    }

    /// Records that a flag's value is invalid. Only the first message about a flag is reported.
    pub fn record_invalid(&self, flag: &str, message: impl Into<String>) {
        let mut invalid = self.invalid.borrow_mut();
        if !invalid.iter().any(|(recorded, _)| recorded == flag) {
            invalid.push((flag.to_owned(), message.into()));
        }
    }

    /// Marks flags that are validated but not implemented yet.
    pub fn mark_unimplemented(&self, flags: &[&'static str]) {
        self.unimplemented.borrow_mut().extend(flags);
    }

    /// Marks flags that upstream's program accepts without an effect too, so that they need no warning.
    pub fn mark_inert(&self, flags: &[&str]) {
        self.read.borrow_mut().extend(flags.iter().map(|flag| (*flag).to_owned()));
    }

    /// Returns the flags on the command line that are not implemented.
    pub fn unimplemented_flags(&self) -> Vec<&'static str> {
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
    /// Fails if any value is invalid.
    pub fn done(self) -> Result<ParsedFlags, InvalidFlags> {
        let invalid = self.invalid.into_inner();
        if invalid.is_empty() {
            return Ok(self.parsed);
        }
        Err(InvalidFlags(invalid.into_iter().map(|(_, message)| message).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::{Flags, Invocation};

    const TABLE: &str = "section\tflag\ttype\tdefault\nMisc\tname\tstring\t\nMisc\taddress\tip\t\n";

    fn reader(arguments: &[&str]) -> Reader {
        let arguments = arguments.iter().map(|argument| (*argument).to_owned());
        match Flags::from_table(TABLE, "").parse("test", arguments) {
            Ok(Invocation::Run(parsed)) => Reader::new(parsed),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn reading_a_flag_as_another_type_is_an_error() {
        let read = reader(&["--name=x"]);
        assert!(!read.bool("name"));
        assert_eq!(read.done().unwrap_err().to_string(), "flag --name is not of type bool");
        let read = reader(&["--address=::1"]);
        assert_eq!(read.text("address"), "");
        assert_eq!(read.ip("name"), Ipv4Addr::UNSPECIFIED);
        assert_eq!(read.done().unwrap_err().to_string(), "flag --address is not of type text");
    }

    #[test]
    fn address_without_default_is_unspecified() {
        let read = reader(&[]);
        assert_eq!(read.ip("address"), Ipv4Addr::UNSPECIFIED);
        assert!(read.done().is_ok());
    }

    #[test]
    fn first_message_of_each_invalid_flag_is_reported() {
        let read = reader(&[]);
        read.record_invalid("name", "no name");
        read.record_invalid("name", "no name either");
        read.record_invalid("address", "no address");
        assert_eq!(read.done().unwrap_err().to_string(), "[no name, no address]");
    }
}
