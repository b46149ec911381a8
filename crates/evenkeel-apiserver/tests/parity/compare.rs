//! Compares two responses, except for values that always differ: identifiers, times, versions, addresses and ports.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::servers::Answer;

/// Result of the comparison of two responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verdict {
    Equal,
    /// Equal except for messages.
    Texts,
    /// Another code, reason, cause or object.
    Different,
    /// Upstream did not respond: its handler panicked.
    Unanswered,
}

/// Compares upstream's response with ours.
pub(crate) fn compare(upstream: &Answer, ours: &Answer) -> Verdict {
    let (theirs, mine) = (normalised(upstream), normalised(ours));
    if upstream.code == 0 {
        Verdict::Unanswered
    } else if theirs == mine {
        Verdict::Equal
    } else if without_texts(theirs) == without_texts(mine) {
        Verdict::Texts
    } else {
        Verdict::Different
    }
}

/// Returns a response without values that always differ.
pub(crate) fn normalised(answer: &Answer) -> Value {
    let mut body = answer.body.clone();
    mask("", &mut body);
    let warnings: Vec<Value> = answer.warnings.iter().map(|text| mask_text(text).into()).collect();
    json!({"code": answer.code, "warnings": warnings, "body": body})
}

/// Fields of ports that the server allocates.
const PORTS: [&str; 2] = ["nodePort", "healthCheckNodePort"];

/// Cluster IPs: of the default range, and of the ServiceCIDR of the examples.
const ADDRESSES: [&str; 2] = ["10.96.", "10.200."];

/// Masks parts of a field's value that always differ.
pub(crate) fn mask(name: &str, value: &mut Value) {
    match (name, &mut *value) {
        ("uid" | "resourceVersion", Value::String(_)) => *value = json!("<id>"),
        ("token", Value::String(text)) if text.starts_with("eyJ") => *value = json!("<token>"),
        ("expirationTimestamp", Value::String(_)) => *value = json!("<time>"),
        (name, Value::Number(number))
            if PORTS.contains(&name) && number.as_i64() >= Some(30_000) =>
        {
            *value = json!("<port>");
        }
        (_, Value::String(text)) => *text = sorted(mask_text(text)),
        (_, Value::Array(items)) => items.iter_mut().for_each(|item| mask(name, item)),
        (_, Value::Object(fields)) => {
            // A key may be an identifier, or a generated name.
            let masked: Vec<(String, Value)> = std::mem::take(fields)
                .into_iter()
                .map(|(key, mut value)| {
                    mask(&key, &mut value);
                    (mask_text(&key), value)
                })
                .collect();
            fields.extend(masked);
        }
        _ => {}
    }
}

/// Sorts the lines of a message after the first. Their order is random, because upstream iterates over Go maps for the
/// errors of applied objects.
fn sorted(text: String) -> String {
    match text.split_once(": errors:\n") {
        Some((head, errors)) => {
            let mut errors: Vec<&str> = errors.lines().collect();
            errors.sort_unstable();
            format!("{head}: errors:\n{}", errors.join("\n"))
        }
        None => text,
    }
}

/// Masks identifiers, current times, versions in quoted objects, and generated names and addresses in a string.
pub(crate) fn mask_text(text: &str) -> String {
    let (mut is_version, mut is_port) = (false, false);
    let words = text.split_inclusive(|c: char| !(c.is_ascii_alphanumeric() || "-.:".contains(c)));
    words
        .map(|word| {
            let end = word
                .find(|c: char| !(c.is_ascii_alphanumeric() || "-.:".contains(c)))
                .unwrap_or(word.len());
            let (word, rest) = word.split_at(end);
            let masked = if is_uuid(word) {
                "<id>"
            } else if is_now(word) {
                "<now>"
            } else if ADDRESSES.iter().any(|range| word.starts_with(range)) {
                "<address>"
            } else if word.starts_with("kube-api-access-") {
                "kube-api-access-<made>"
            } else if is_version && is_number(word) {
                "<version>"
            } else if is_port && is_number(word.trim_start_matches(':')) && word.len() >= 5 {
                "<port>"
            } else {
                word
            };
            let is_between = matches!(word, "" | ":");
            is_version =
                ["resourceVersion", "meta:", "record"].contains(&word) || is_version && is_between;
            is_port = PORTS.contains(&word) || is_port && is_between;
            format!("{masked}{rest}")
        })
        .collect()
}

fn is_number(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_uuid(word: &str) -> bool {
    word.len() == 36
        && word.chars().enumerate().all(|(index, c)| match index {
            8 | 13 | 18 | 23 => c == '-',
            _ => c.is_ascii_hexdigit(),
        })
}

/// Returns whether a word is a recent time. No example has a time of the last days.
fn is_now(word: &str) -> bool {
    let Ok(time) = word.parse::<jiff::Timestamp>() else { return false };
    let now = evenkeel_apiserver::Clock::system().now();
    time <= now + jiff::SignedDuration::from_hours(1) && now.duration_since(time).as_hours() < 24
}

/// Returns the response without messages. A refusal keeps its code, its reason, and the fields and reasons of its
/// causes in any order.
fn without_texts(mut answer: Value) -> Value {
    let body = &mut answer["body"];
    if body["kind"] != "Status" {
        // Warnings are messages.
        answer["warnings"] = Value::Null;
        return answer;
    }
    let causes: BTreeSet<(String, String)> = body["details"]["causes"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|cause| (cause["field"].to_string(), cause["reason"].to_string()))
        .collect();
    json!({"code": answer["code"], "reason": answer["body"]["reason"], "details": {
        "kind": answer["body"]["details"]["kind"], "group": answer["body"]["details"]["group"],
        "name": answer["body"]["details"]["name"], "causes": format!("{causes:?}"),
    }})
}

/// Returns the place of the first difference of two responses, with `*` for every index; empty if they are equal.
pub(crate) fn first_difference(theirs: &Value, ours: &Value) -> String {
    let mut place = String::new();
    let (mut theirs, mut ours) = (theirs, ours);
    loop {
        let (name, next) = match (theirs, ours) {
            (Value::Object(a), Value::Object(b)) => {
                let names: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
                let Some(name) = names.into_iter().find(|name| a.get(*name) != b.get(*name)) else {
                    return place;
                };
                (name.as_str(), (&theirs[name], &ours[name]))
            }
            (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
                let Some(index) = (0..a.len()).find(|index| a[*index] != b[*index]) else {
                    return place;
                };
                ("*", (&a[index], &b[index]))
            }
            (Value::Array(_), Value::Array(_)) => return format!("{place}/length"),
            _ => return place,
        };
        place = format!("{place}/{name}");
        (theirs, ours) = next;
    }
}
