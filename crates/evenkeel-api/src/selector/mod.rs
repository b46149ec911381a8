//! Label and field selectors.
//!
//! Upstream: `k8s.io/apimachinery/pkg/labels`, `…/fields`, and `LabelSelectorAsSelector` of `…/apis/meta/v1`.

mod field;
mod object;
mod query;
mod requirement;

use std::fmt;

pub use field::{FieldSelector, FieldTerm};
pub use object::MapSelector;
pub use requirement::{Operator, Requirement};

use crate::StrMap;

/// A parsed label selector, from either the object form (`matchLabels`, `matchExpressions`) or the query string.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Selector(State);

/// State of a selector.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
enum State {
    /// An absent selector, which matches nothing.
    #[default]
    Nothing,
    /// Requirements. An object must meet all of them. The requirements of `matchLabels` come first, sorted by key. An
    /// empty list matches everything.
    All(Box<[Requirement]>),
    /// An invalid selector, which matches nothing.
    Invalid(Box<str>),
}

/// Error for an invalid selector.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SelectorError(pub(crate) Box<str>);

impl SelectorError {
    #[cold]
    fn new(why: impl Into<Box<str>>) -> Self {
        Self(why.into())
    }
}

impl Selector {
    /// Returns a selector that matches nothing, like an absent one.
    pub fn nothing() -> Self {
        Self::default()
    }

    /// Returns a selector that matches everything, like an empty one.
    pub fn everything() -> Self {
        Self(State::All(Box::default()))
    }

    /// Returns a selector with these requirements.
    pub fn all(requirements: impl IntoIterator<Item = Requirement>) -> Self {
        Self(State::All(requirements.into_iter().collect()))
    }

    /// Returns a selector that requires all these labels, without validation. Without labels, it matches everything.
    ///
    /// Upstream: `SelectorFromSet`.
    pub fn from_map(labels: &StrMap) -> Self {
        Self::all(labels.iter().map(|(key, value)| Requirement::equals(key, value)))
    }

    /// Parses a query string such as `a=b,c!=d,e in (f,g),!h,i>1`.
    ///
    /// # Errors
    /// Fails if the syntax is invalid, or a key or value is invalid.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        query::parse(text)
    }

    /// Returns whether the selector matches everything.
    pub fn is_everything(&self) -> bool {
        matches!(&self.0, State::All(requirements) if requirements.is_empty())
    }

    /// Returns whether the selector matches nothing, because it is absent or invalid.
    pub fn is_nothing(&self) -> bool {
        !matches!(self.0, State::All(_))
    }

    /// Returns whether the selector has no requirements: it matches everything or nothing.
    pub fn is_empty(&self) -> bool {
        self.requirements().is_empty()
    }

    /// Returns why the selector is invalid; `None` if it is valid.
    pub fn error(&self) -> Option<&str> {
        match &self.0 {
            State::Invalid(why) => Some(why),
            State::Nothing | State::All(_) => None,
        }
    }

    /// Returns the requirements; empty if the selector matches everything or nothing.
    pub fn requirements(&self) -> &[Requirement] {
        match &self.0 {
            State::All(requirements) => requirements,
            State::Nothing | State::Invalid(_) => &[],
        }
    }

    /// Returns whether the selector matches an object with these labels.
    pub fn matches(&self, labels: &StrMap) -> bool {
        self.matches_by(|key| labels.get(key))
    }

    /// Returns whether the selector matches an object. `get` returns the value of a label.
    pub fn matches_by<'a>(&self, get: impl Fn(&str) -> Option<&'a str>) -> bool {
        match &self.0 {
            State::All(requirements) => {
                requirements.iter().all(|requirement| requirement.matches(get(&requirement.key)))
            }
            State::Nothing | State::Invalid(_) => false,
        }
    }

    /// Returns the only value that `key` can have, for index lookups; `None` if there may be several.
    ///
    /// Upstream: `RequiresExactMatch`.
    pub fn exact(&self, key: &str) -> Option<&str> {
        self.requirements().iter().find_map(|requirement| {
            match (requirement.operator, &*requirement.values) {
                (Operator::Equals | Operator::DoubleEquals | Operator::In, [value])
                    if *requirement.key == *key =>
                {
                    Some(&**value)
                }
                _ => None,
            }
        })
    }

    /// Returns the labels of `matchLabels`.
    pub fn match_labels(&self) -> impl Iterator<Item = (&str, &str)> {
        let equalities = self
            .requirements()
            .iter()
            .filter(|requirement| requirement.operator == Operator::Equals);
        equalities
            .filter_map(|requirement| Some((&*requirement.key, &**requirement.values.first()?)))
    }

    /// Returns this selector with a required label. The label replaces the `matchLabels` entry with the same key.
    #[must_use]
    pub fn with_label(&self, key: &str, value: &str) -> Self {
        let mut requirements = self.requirements().to_vec();
        requirements.retain(|requirement| {
            requirement.operator != Operator::Equals || *requirement.key != *key
        });
        // Insert the label in the order of keys, before all requirements with other operators.
        let index = requirements
            .iter()
            .position(|requirement| {
                requirement.operator != Operator::Equals || *requirement.key > *key
            })
            .unwrap_or(requirements.len());
        requirements.insert(index, Requirement::equals(key, value));
        Self::all(requirements)
    }
}

impl fmt::Display for Selector {
    /// Formats the canonical query string, sorted by key. The string is empty for a selector that matches everything
    /// or nothing.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut sorted: Vec<&Requirement> = self.requirements().iter().collect();
        sorted.sort_by(|a, b| a.key.cmp(&b.key));
        for (index, requirement) in sorted.into_iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            requirement.fmt(f)?;
        }
        Ok(())
    }
}

impl std::str::FromStr for Selector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<Self, SelectorError> {
        Self::parse(text)
    }
}
