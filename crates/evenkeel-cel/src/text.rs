//! Text of string values.

use std::fmt;
use std::ops::Deref;
use std::rc::Rc;

/// A string value. Copies share the bytes, because an expression may read a string any number of times.
#[derive(Debug, Clone)]
pub enum Text<'a> {
    /// Text of an object or an expression.
    Borrowed(&'a str),
    /// Text that an expression created.
    Shared(Rc<str>),
}

impl Text<'_> {
    /// Converts the value to an owned string.
    pub fn into_owned(self) -> String {
        self.to_string()
    }
}

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Self::Borrowed(text) => text,
            Self::Shared(text) => text,
        }
    }
}

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

impl PartialEq for Text<'_> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<'a> From<&'a str> for Text<'a> {
    fn from(text: &'a str) -> Self {
        Self::Borrowed(text)
    }
}

impl From<String> for Text<'_> {
    fn from(text: String) -> Self {
        Self::Shared(text.into())
    }
}
