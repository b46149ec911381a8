//! Turns what was given into typed options, and remembers which flags were asked for.

use super::{Given, Value, ValueError};
use std::{cell::RefCell, collections::BTreeSet, time::Duration};

/// Hands out typed values. A flag that was given but that nobody asked for has nothing behind it: [`Reader::unread`].
pub struct Reader {
    given: Given,
    read: RefCell<BTreeSet<String>>,
}

macro_rules! readers {
    ($($(#[$doc:meta])* $name:ident -> $type:ty: $pattern:pat => $value:expr;)*) => {
        impl Reader {$(
            $(#[$doc])*
            pub fn $name(&self, flag: &str) -> Result<$type, ValueError> {
                match self.value(flag)? {
                    $pattern => Ok($value),
                    other => Err(ValueError::refused(flag, format!("{other:?}"), "is of another type")),
                }
            }
        )*}
    };
}

readers! {
    /// A `bool`.
    bool -> bool: Value::Bool(value) => value;
    /// A whole number.
    int -> i64: Value::Int(value) => value;
    /// A number.
    float -> f64: Value::Float(value) => value;
    /// A duration.
    duration -> Duration: Value::Duration(value) => value;
    /// A list.
    list -> Vec<String>: Value::List(value) => value;
    /// Text.
    text -> String: Value::Text(value) => value;
}

impl Reader {
    /// A reader of what was given.
    pub fn new(given: Given) -> Self {
        Self { given, read: RefCell::default() }
    }

    fn value(&self, flag: &str) -> Result<Value, ValueError> {
        self.read.borrow_mut().insert(flag.to_owned());
        self.given.value(flag)
    }

    /// Text, `None` where empty.
    pub fn path(&self, flag: &str) -> Result<Option<String>, ValueError> {
        Ok(Some(self.text(flag)?).filter(|text| !text.is_empty()))
    }

    /// A whole number above zero.
    pub fn workers(&self, flag: &str) -> Result<usize, ValueError> {
        let value = self.int(flag)?;
        match usize::try_from(value) {
            Ok(workers) if workers > 0 => Ok(workers),
            _ => Err(ValueError::refused(flag, value.to_string(), "must be greater than zero")),
        }
    }

    /// A port, 0 for none.
    pub fn port(&self, flag: &str) -> Result<u16, ValueError> {
        let value = self.int(flag)?;
        u16::try_from(value).map_err(|_| {
            ValueError::refused(flag, value.to_string(), "must be between 0 and 65535, inclusive")
        })
    }

    /// Flags that were given but not asked for.
    pub fn unread(&self) -> Vec<&'static str> {
        let read = self.read.borrow();
        self.given.names().filter(|name| !read.contains(*name)).collect()
    }
}
