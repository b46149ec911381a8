//! Label and field selectors.

use crate::StrMap;

/// A parsed label selector. Both forms (the object with `matchLabels`/`matchExpressions` and the query string) parse into it.
///
/// It is kept as it was written: a workload's selector is immutable, and a controller that writes the workload back, or
/// makes another one from it, must give the server the very same form.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selector {
    /// `matchLabels`.
    pub match_labels: StrMap,
    requirements: Box<[Requirement]>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Requirement {
    key: Box<str>,
    operator: Operator,
    values: Box<[Box<str>]>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

impl Selector {
    /// Whether it selects everything.
    pub fn is_everything(&self) -> bool {
        self.match_labels.is_empty() && self.requirements.is_empty()
    }

    /// This selector, and the label `key=value` in its `matchLabels`.
    #[must_use]
    pub fn with_label(&self, key: &str, value: &str) -> Self {
        Self {
            match_labels: self.match_labels.with(key, value),
            requirements: self.requirements.clone(),
        }
    }

    /// Whether an object with these labels is selected.
    pub fn matches(&self, labels: &StrMap) -> bool {
        self.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.requirements.iter().all(|r| {
                let value = labels.get(&r.key);
                match r.operator {
                    Operator::In => value.is_some_and(|v| r.values.iter().any(|x| **x == *v)),
                    Operator::NotIn => !value.is_some_and(|v| r.values.iter().any(|x| **x == *v)),
                    Operator::Exists => value.is_some(),
                    Operator::DoesNotExist => value.is_none(),
                }
            })
    }
}

impl serde::Serialize for Selector {
    /// The object form, as it was written.
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeMap;
        let mut map = serializer.serialize_map(None)?;
        if !self.match_labels.is_empty() {
            let labels: std::collections::BTreeMap<_, _> = self.match_labels.iter().collect();
            map.serialize_entry("matchLabels", &labels)?;
        }
        if !self.requirements.is_empty() {
            map.serialize_entry("matchExpressions", &self.requirements)?;
        }
        map.end()
    }
}

impl serde::Serialize for Requirement {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeMap;
        let operator = match self.operator {
            Operator::In => "In",
            Operator::NotIn => "NotIn",
            Operator::Exists => "Exists",
            Operator::DoesNotExist => "DoesNotExist",
        };
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("key", &self.key)?;
        map.serialize_entry("operator", operator)?;
        if !self.values.is_empty() {
            map.serialize_entry("values", &self.values)?;
        }
        map.end()
    }
}
