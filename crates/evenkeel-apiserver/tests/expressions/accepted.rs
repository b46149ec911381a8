//! Accepted differences, each with its reason.

use serde_json::Value;

/// A class of differences.
struct Accepted {
    reason: &'static str,
    applies: fn(&[&str], &[&str]) -> bool,
}

const ACCEPTED: [Accepted; 3] = [
    Accepted {
        reason: "after a syntax error, cel-go's parser names other tokens that it expects, or goes on with a part that it lacks",
        applies: recovery,
    },
    Accepted {
        reason: "upstream's own mistake: some functions of lists fail on the error that their list is",
        applies: interface,
    },
    Accepted {
        reason: "upstream multiplies a quantity by a power of ten, which is not the nearest number",
        applies: rounded,
    },
];

/// Returns the reason of an accepted difference; `None` for any other one.
pub(crate) fn reason(theirs: &Value, ours: &Value) -> Option<&'static str> {
    let (theirs, ours) = (lines(theirs), lines(ours));
    let found = ACCEPTED.iter().find(|accepted| (accepted.applies)(&theirs, &ours));
    found.map(|accepted| accepted.reason)
}

/// Returns the lines of a response's message, except for those that show the expression.
fn lines(said: &Value) -> Vec<&str> {
    let texts = said["text"].as_array().into_iter().flatten();
    let texts = texts.filter_map(Value::as_str).chain(said["text"].as_str());
    texts.flat_map(str::lines).filter(|line| !line.starts_with(" | ")).collect()
}

/// Returns whether both have the same first syntax error, and differ only in later errors.
fn recovery(theirs: &[&str], ours: &[&str]) -> bool {
    let is_syntax = |line: &&str| line.contains("Syntax error: ");
    let same = theirs.iter().filter(|line| ours.contains(line)).any(is_syntax);
    let is_consequence = |line: &&str| {
        is_syntax(line)
            || ["invalid argument to has()", "unsupported ident kind", "can only be applied to"]
                .iter()
                .any(|part| line.contains(part))
    };
    let only = |some: &[&str], others: &[&str]| {
        some.iter().filter(|line| !others.contains(line)).all(&is_consequence)
    };
    same && only(theirs, ours) && only(ours, theirs)
}

fn interface(theirs: &[&str], ours: &[&str]) -> bool {
    ours.len() == theirs.len()
        && theirs.iter().any(|line| line.contains("internal error: interface conversion"))
}

/// Returns whether both are equal except for the last digits of one number.
fn rounded(theirs: &[&str], ours: &[&str]) -> bool {
    let number = |lines: &[&str]| -> Option<f64> {
        match lines {
            [line] => line.rsplit(' ').next()?.parse().ok(),
            _ => None,
        }
    };
    match (number(theirs), number(ours)) {
        (Some(theirs), Some(ours)) => (theirs - ours).abs() <= theirs.abs() * 1e-14,
        _ => false,
    }
}
