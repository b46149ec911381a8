//! Object forms of label selectors: `metav1.LabelSelector`, and the plain map of older kinds.

use std::ops::Deref;

use serde_json::map::Entry;

use super::{Operator, Requirement, Selector, SelectorError, State};
use crate::StrMap;
use crate::decode::{DecodedAs, Field, Message, Reader, Shape, Slot, Wire, WireError, message};
use crate::text::Text;

message! {
    /// Wire form of a label selector.
    pub struct LabelSelector("k8s.io.apimachinery.pkg.apis.meta.v1.LabelSelector") {
        /// Labels that an object must have with these values.
        match_labels: StrMap = 1 "matchLabels",
        /// Further requirements. All of them must match.
        match_expressions: Box<[Expression]> = 2 "matchExpressions",
    }
}

message! {
    /// Wire form of a requirement.
    pub struct Expression("k8s.io.apimachinery.pkg.apis.meta.v1.LabelSelectorRequirement") {
        /// Key of the label.
        key: Text = 1 "key",
        /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
        operator: Text = 2 "operator",
        /// Values to compare the label with.
        values: Box<[Text]> = 3 "values",
    }
}

impl From<LabelSelector> for Selector {
    fn from(object: LabelSelector) -> Self {
        let labels = object
            .match_labels
            .iter()
            .map(|(key, value)| Requirement::new(key, Operator::Equals, Box::new([value.into()])));
        let expressions = object.match_expressions.into_vec().into_iter().map(requirement);
        match labels.chain(expressions).collect() {
            Ok(requirements) => Self(State::All(requirements)),
            Err(SelectorError(why)) => Self(State::Invalid(why)),
        }
    }
}

fn requirement(expression: Expression) -> Result<Requirement, SelectorError> {
    let operator = match &*expression.operator {
        "In" => Operator::In,
        "NotIn" => Operator::NotIn,
        "Exists" => Operator::Exists,
        "DoesNotExist" => Operator::DoesNotExist,
        other => {
            return Err(SelectorError::new(format!(
                "{other:?} is not a valid label selector operator"
            )));
        }
    };
    Requirement::new(&expression.key, operator, expression.values)
}

impl Selector {
    /// Returns the object form. `None` if the selector is absent or invalid, or has an operator that only the query
    /// string supports.
    pub fn to_json(&self) -> Option<serde_json::Value> {
        let State::All(requirements) = &self.0 else { return None };
        let mut labels = serde_json::Map::new();
        let mut expressions = Vec::new();
        for requirement in requirements {
            let operator = match requirement.operator {
                Operator::Equals | Operator::DoubleEquals => {
                    let value =
                        requirement.values.first().map(|value| &**value).unwrap_or_default();
                    // A map has only one value per key. A second value for the same key becomes an expression instead,
                    // because both requirements must hold.
                    if let Entry::Vacant(entry) = labels.entry(requirement.key.to_string()) {
                        entry.insert(value.into());
                        continue;
                    }
                    "In"
                }
                Operator::In => "In",
                Operator::NotIn | Operator::NotEquals => "NotIn",
                Operator::Exists => "Exists",
                Operator::DoesNotExist => "DoesNotExist",
                Operator::GreaterThan | Operator::LessThan => return None,
            };
            let mut expression = serde_json::json!({"key": requirement.key, "operator": operator});
            if !requirement.values.is_empty() {
                expression["values"] = requirement.values.iter().map(|value| &**value).collect();
            }
            expressions.push(expression);
        }
        let mut object = serde_json::Map::new();
        if !labels.is_empty() {
            object.insert("matchLabels".into(), labels.into());
        }
        if !expressions.is_empty() {
            object.insert("matchExpressions".into(), expressions.into());
        }
        Some(object.into())
    }
}

impl serde::Serialize for Selector {
    /// Serializes the object form; null if the selector has none.
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.to_json().serialize(serializer)
    }
}

impl serde::Serialize for MapSelector {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.to_json().map(|object| object["matchLabels"].clone()).serialize(serializer)
    }
}

impl DecodedAs for Selector {
    type Source = LabelSelector;
}

/// Decodes a selector. A parsed selector cannot be merged with another one. If a protobuf message comes in several
/// parts, the last part with a selector therefore wins. No Kubernetes encoder sends such messages.
impl Field for Selector {
    const SHAPE: Shape = Shape::Message(&<LabelSelector as Message>::DEFINITION);
    type Partial = (Self, Option<LabelSelector>);

    fn absent() -> Self {
        Self::nothing()
    }

    fn slot(&mut self) -> Slot<'_> {
        Slot::Converted(self)
    }

    fn into_partial(self) -> Self::Partial {
        (self, None)
    }

    fn merge(
        (_, object): &mut Self::Partial,
        wire: Wire,
        reader: &mut Reader<'_>,
    ) -> Result<(), WireError> {
        LabelSelector::merge(object.get_or_insert_default(), wire, reader)
    }

    fn finish((earlier, object): Self::Partial) -> Result<Self, WireError> {
        Ok(object.map_or(earlier, Self::from))
    }
}

/// A selector that the API represents as a plain map of labels. An absent selector matches nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MapSelector(Selector);

impl Deref for MapSelector {
    type Target = Selector;

    fn deref(&self) -> &Selector {
        &self.0
    }
}

impl From<StrMap> for MapSelector {
    fn from(labels: StrMap) -> Self {
        Self(LabelSelector { match_labels: labels, ..LabelSelector::default() }.into())
    }
}

impl DecodedAs for MapSelector {
    type Source = StrMap;
}

impl Field for MapSelector {
    const SHAPE: Shape = StrMap::SHAPE;
    type Partial = (Self, Vec<(Text, Text)>);

    fn absent() -> Self {
        Self::default()
    }

    fn slot(&mut self) -> Slot<'_> {
        Slot::Converted(self)
    }

    fn into_partial(self) -> Self::Partial {
        (self, Vec::new())
    }

    fn merge(
        (_, labels): &mut Self::Partial,
        wire: Wire,
        reader: &mut Reader<'_>,
    ) -> Result<(), WireError> {
        StrMap::merge(labels, wire, reader)
    }

    fn finish((earlier, labels): Self::Partial) -> Result<Self, WireError> {
        Ok(if labels.is_empty() { earlier } else { labels.into_iter().collect::<StrMap>().into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn two_requirements_of_one_key_stay_two() {
        let object = |text: &str| Selector::parse(text).expect("valid").to_json();
        let both = json!({"matchLabels": {"a": "b"},
            "matchExpressions": [{"key": "a", "operator": "In", "values": ["c"]}]});
        assert_eq!(object("a=b,a=c"), Some(both));
        assert_eq!(object("a=b,c==d"), Some(json!({"matchLabels": {"a": "b", "c": "d"}})));
    }
}
