//! Strings of objects: short ones are stored inline, long ones are shared.

use std::{borrow::Borrow, borrow::Cow, cell::RefCell, fmt, ops::Deref, sync::Arc};

use crate::shared::{Recent, fingerprint_of};
use ecow::EcoString;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// An immutable string: up to 15 bytes inline, otherwise reference-counted, so that cloning never copies it.
///
/// Most strings in objects are short words (`Ready`, `True`, `cpu`) or occur in many objects (an image, an owner's
/// uid, a label value). [`Text::interned`] shares strings that occur often.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Text(EcoString);

/// Number of long strings that a thread remembers. A small number suffices, because consecutive items of a list mostly
/// have the same owner, image and labels.
const REMEMBERED: usize = 1024;

/// Minimum length in bytes of strings that are not remembered, because long strings rarely recur.
const TOO_LONG: usize = 8192;

thread_local! {
    static RECENT: RefCell<Recent<EcoString, REMEMBERED>> = RefCell::default();
}

impl Text {
    /// Returns an empty string.
    pub const fn new() -> Self {
        Self(EcoString::new())
    }

    /// Returns the string as a slice.
    #[inline]
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// Creates a `Text`. A long string shares its bytes with an equal one that this thread decoded recently.
    pub fn interned(text: &str) -> Self {
        let is_inline = text.len() <= EcoString::INLINE_LIMIT;
        if is_inline || text.len() >= TOO_LONG {
            return Self(text.into());
        }
        RECENT.with_borrow_mut(|recent| {
            let is_equal = |known: &EcoString, new: &&str| known.as_str() == *new;
            Self(recent.intern(fingerprint_of(&text), text, is_equal, EcoString::from))
        })
    }
}

impl Deref for Text {
    type Target = str;

    #[inline]
    fn deref(&self) -> &str {
        self.0.as_str()
    }
}

impl Borrow<str> for Text {
    #[inline]
    fn borrow(&self) -> &str {
        self.0.as_str()
    }
}

impl AsRef<str> for Text {
    #[inline]
    fn as_ref(&self) -> &str {
        self.0.as_str()
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.as_str(), f)
    }
}

macro_rules! from {
    ($($type:ty),*) => {
        $(impl From<$type> for Text {
            fn from(text: $type) -> Self {
                Self(EcoString::from(AsRef::<str>::as_ref(&text)))
            }
        })*
    };
}

from!(&str, &mut str, &String, String, Box<str>, Arc<str>, &Arc<str>, &Box<str>, Cow<'_, str>);

impl From<&Self> for Text {
    fn from(text: &Self) -> Self {
        text.clone()
    }
}

impl From<Text> for String {
    fn from(text: Text) -> Self {
        text.as_str().into()
    }
}

impl From<Text> for Box<str> {
    fn from(text: Text) -> Self {
        text.as_str().into()
    }
}

impl From<Text> for Arc<str> {
    fn from(text: Text) -> Self {
        text.as_str().into()
    }
}

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self)
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Visitor)
    }
}

/// Visitor that deserializes a string.
pub(crate) struct Visitor;

impl serde::de::Visitor<'_> for Visitor {
    type Value = Text;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E>(self, text: &str) -> Result<Text, E> {
        Ok(Text::interned(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn size_equals_that_of_a_boxed_string() {
        assert_eq!(size_of::<Text>(), size_of::<Box<str>>());
    }

    #[test]
    fn equal_long_strings_share_their_bytes() {
        let [a, b] = [(); 2].map(|()| Text::interned("a name of more than fifteen bytes"));
        assert_eq!(a.as_ptr(), b.as_ptr());
        let other = Text::interned("another name of more than fifteen bytes");
        assert_ne!(a, other);
    }

    proptest! {
        #[test]
        fn interned_text_equals_its_source(texts in proptest::collection::vec(".{0,40}", 0..50)) {
            let interned: Vec<Text> = texts.iter().map(|text| Text::interned(text)).collect();
            for (interned, text) in interned.iter().zip(&texts) {
                prop_assert_eq!(interned.as_str(), text);
                prop_assert_eq!(interned, &Text::from(text));
            }
        }
    }
}
