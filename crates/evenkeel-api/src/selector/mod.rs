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

/// A parsed label selector. Both forms (the object with `matchLabels`/`matchExpressions` and the query string) parse
/// into it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Selector(State);

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
enum State {
    /// There is no selector, which selects nothing.
    #[default]
    Nothing,
    /// Requirements; an empty list selects everything. Those of `matchLabels` come first, by key.
    All(Box<[Requirement]>),
    /// The object's selector makes no sense, which selects nothing.
    Invalid(Box<str>),
}

/// A selector that makes no sense.
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
    /// Selects nothing, as an absent selector.
    pub fn nothing() -> Self {
        Self::default()
    }

    /// Selects everything, as an empty selector.
    pub fn everything() -> Self {
        Self(State::All(Box::default()))
    }

    /// Selects by all of the requirements.
    pub fn all(requirements: impl IntoIterator<Item = Requirement>) -> Self {
        Self(State::All(requirements.into_iter().collect()))
    }

    /// Selects what has all of these labels; everything when there are none. The labels are taken as they are.
    pub fn from_map(labels: &StrMap) -> Self {
        Self::all(labels.iter().map(|(key, value)| Requirement::equals(key, value)))
    }

    /// Parses the query-string form: `a=b,c!=d,e in (f,g),!h,i>1`.
    ///
    /// # Errors
    /// When it does not parse, or a key or value is not allowed.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        query::parse(text)
    }

    /// Whether it selects everything.
    pub fn is_everything(&self) -> bool {
        matches!(&self.0, State::All(requirements) if requirements.is_empty())
    }

    /// Whether it selects nothing, because it is absent or makes no sense.
    pub fn is_nothing(&self) -> bool {
        !matches!(self.0, State::All(_))
    }

    /// Whether it has no requirements, and so would select everything or nothing.
    pub fn is_empty(&self) -> bool {
        self.requirements().is_empty()
    }

    /// What is wrong with it, if it makes no sense.
    pub fn error(&self) -> Option<&str> {
        match &self.0 {
            State::Invalid(why) => Some(why),
            State::Nothing | State::All(_) => None,
        }
    }

    /// Requirements; empty when it selects everything or nothing.
    pub fn requirements(&self) -> &[Requirement] {
        match &self.0 {
            State::All(requirements) => requirements,
            State::Nothing | State::Invalid(_) => &[],
        }
    }

    /// Whether an object with these labels is selected.
    pub fn matches(&self, labels: &StrMap) -> bool {
        self.matches_by(|key| labels.get(key))
    }

    /// Whether an object is selected whose labels are found by `get`.
    pub fn matches_by<'a>(&self, get: impl Fn(&str) -> Option<&'a str>) -> bool {
        match &self.0 {
            State::All(requirements) => {
                requirements.iter().all(|requirement| requirement.holds(get(&requirement.key)))
            }
            State::Nothing | State::Invalid(_) => false,
        }
    }

    /// The one value that `key` must have, if there is only one; good for looking up an index.
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

    /// What `matchLabels` asked for.
    pub fn match_labels(&self) -> impl Iterator<Item = (&str, &str)> {
        let equal = self.requirements().iter().filter(|r| r.operator == Operator::Equals);
        equal.filter_map(|r| Some((&*r.key, &**r.values.first()?)))
    }

    /// This selector, which also requires that `key` is `value`, in place of what `matchLabels` said of `key`.
    #[must_use]
    pub fn with_label(&self, key: &str, value: &str) -> Self {
        let mut requirements = self.requirements().to_vec();
        requirements.retain(|requirement| {
            requirement.operator != Operator::Equals || *requirement.key != *key
        });
        let at = requirements
            .iter()
            .position(|requirement| {
                requirement.operator != Operator::Equals || *requirement.key > *key
            })
            .unwrap_or(requirements.len());
        requirements.insert(at, Requirement::equals(key, value));
        Self::all(requirements)
    }
}

impl fmt::Display for Selector {
    /// The canonical query string, by key. What selects nothing is shown empty, as what selects everything is.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut sorted: Vec<&Requirement> = self.requirements().iter().collect();
        sorted.sort_by(|a, b| a.key.cmp(&b.key));
        for (at, requirement) in sorted.into_iter().enumerate() {
            if at > 0 {
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
