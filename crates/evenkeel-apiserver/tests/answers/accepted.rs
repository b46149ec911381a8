//! Accepted differences, each with its reason: upstream's response is random, or equality would cost far more than it
//! is worth. The figures still count them as different.

use serde_json::Value;

use crate::generate::Attempt;

/// A class of accepted differences.
pub(crate) struct Accepted {
    /// The difference, and the reason why it is accepted.
    pub(crate) reason: &'static str,
    applies: fn(&Attempt, &Value, &Value) -> bool,
}

/// All classes. The first class that matches a difference applies.
const ACCEPTED: [Accepted; 5] = [
    Accepted {
        reason: "an empty list or map that a request writes out is not kept apart from an absent one: Go's structs do, but no \
                 client can read the difference back",
        applies: empties,
    },
    Accepted {
        reason: "errors in another order: upstream's depends on which of its rules are declarative, and at which stage",
        applies: order,
    },
    Accepted {
        reason: "of several errors of a strategic merge patch the first is named, in the order of Go's maps",
        applies: first_of_patch,
    },
    Accepted {
        reason: "cel-go goes on after an error in an expression, and its parser names the tokens that it expects",
        applies: expression,
    },
    Accepted {
        reason: "the internal form of a CustomResourceDefinition's versions, and of what upstream's JSON decoder leaves of a \
                 schema of another type",
        applies: definition,
    },
];

/// Returns the class of a difference, if it is an accepted one.
pub(crate) fn class_of(attempt: &Attempt, theirs: &Value, ours: &Value) -> Option<&'static str> {
    let found = ACCEPTED.iter().find(|accepted| (accepted.applies)(attempt, theirs, ours));
    found.map(|accepted| accepted.reason)
}

fn message(answer: &Value) -> &str {
    answer["body"]["message"].as_str().unwrap_or_default()
}

/// Returns whether the responses are equal except for empty fields and the generation. A change of a field from absent
/// to empty increments the generation.
fn empties(attempt: &Attempt, theirs: &Value, ours: &Value) -> bool {
    let is_written = ["= []", "= {}", "= removed", "= null", ":[]", ":{}"]
        .iter()
        .any(|part| attempt.class.contains(part));
    let alike = |answer: &Value| {
        let mut answer = answer.clone();
        if let Some(metadata) = answer["body"]["metadata"].as_object_mut() {
            metadata.remove("generation");
        }
        let text = answer.to_string();
        text.replace("[]", "null").replace("{}", "null")
    };
    is_written && alike(theirs) == alike(ours)
}

fn order(_: &Attempt, theirs: &Value, ours: &Value) -> bool {
    let causes = |answer: &Value| {
        let causes = answer["body"]["details"]["causes"].as_array().into_iter().flatten();
        let mut causes: Vec<String> = causes.map(Value::to_string).collect();
        causes.sort_unstable();
        causes
    };
    theirs["code"] == ours["code"] && !causes(theirs).is_empty() && causes(theirs) == causes(ours)
}

fn first_of_patch(_: &Attempt, theirs: &Value, ours: &Value) -> bool {
    let quoted = |answer: &Value| {
        let (quoted, _) = message(answer).rsplit_once("\": ")?;
        quoted.contains("patch: Invalid value: \"map[").then(|| quoted.to_owned())
    };
    quoted(theirs).is_some_and(|theirs| quoted(ours) == Some(theirs))
}

fn expression(_: &Attempt, theirs: &Value, ours: &Value) -> bool {
    [theirs, ours].iter().all(|answer| message(answer).contains("compilation failed"))
}

fn definition(attempt: &Attempt, theirs: &Value, ours: &Value) -> bool {
    let shows = |part: &str| message(theirs).contains(part);
    attempt.kind.ends_with(" CustomResourceDefinition")
        && theirs["code"] == ours["code"]
        && (shows("spec.versions: Invalid value: ") || shows("{\"Schema\":null"))
}
