//! Finds the series that a PromQL query selects.

use super::exposition::Families;
use std::{iter::Peekable, str::Chars};

/// A selector: a metric and the labels that it names.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Selector {
    pub(super) metric: String,
    pub(super) labels: Vec<String>,
}

/// Keywords of PromQL that are neither functions nor metrics.
const WORDS: [&str; 11] = [
    "and",
    "or",
    "unless",
    "bool",
    "offset",
    "by",
    "without",
    "on",
    "ignoring",
    "group_left",
    "group_right",
];

/// Aggregations, in which `by` may precede the parenthesis.
const AGGREGATIONS: [&str; 6] = ["sum", "min", "max", "avg", "count", "topk"];

/// Labels that Prometheus adds, or that a recording of the rules file keeps.
const ADDED: [&str; 5] = ["job", "instance", "cluster", "namespace", "pod"];

/// Series that Prometheus itself creates.
const MADE: [&str; 2] = ["up", "ALERTS"];

/// Returns all selectors of a query. Labels by which the query groups count for each of them.
pub(super) fn selectors(query: &str) -> Vec<Selector> {
    let (mut found, mut grouped): (Vec<Selector>, Vec<String>) = (Vec::new(), Vec::new());
    let mut rest = query.chars().peekable();
    while let Some(next) = rest.peek().copied() {
        match next {
            c if c.is_ascii_alphabetic() || c == '_' || c == ':' => {
                let word = word(&mut rest);
                skip_space(&mut rest);
                match (WORDS.contains(&word.as_str()), rest.peek().copied()) {
                    (true, Some('(')) if word != "bool" => grouped.extend(list(&mut rest)),
                    (true, _) | (false, Some('(')) => {}
                    (false, _) if AGGREGATIONS.contains(&word.as_str()) => {}
                    (false, Some('{')) => {
                        found.push(Selector { metric: word, labels: matchers(&mut rest) });
                    }
                    (false, _) => found.push(Selector { metric: word, labels: Vec::new() }),
                }
            }
            '"' | '\'' => text(&mut rest),
            '[' => while rest.next().is_some_and(|c| c != ']') {},
            // Numbers, with their exponents and units.
            c if c.is_ascii_digit() || c == '$' => {
                rest.next();
                word(&mut rest);
            }
            _ => drop(rest.next()),
        }
    }
    for selector in &mut found {
        selector.labels.extend(grouped.iter().cloned());
    }
    found
}

fn word(rest: &mut Peekable<Chars<'_>>) -> String {
    let mut word = String::new();
    while let Some(c) = rest.next_if(|c| c.is_ascii_alphanumeric() || *c == '_' || *c == ':') {
        word.push(c);
    }
    word
}

fn skip_space(rest: &mut Peekable<Chars<'_>>) {
    while rest.next_if(|c| c.is_whitespace()).is_some() {}
}

fn text(rest: &mut Peekable<Chars<'_>>) {
    let quote = rest.next();
    while let Some(c) = rest.next() {
        if c == '\\' {
            rest.next();
        } else if Some(c) == quote {
            return;
        }
    }
}

/// Reads the names between parentheses.
fn list(rest: &mut Peekable<Chars<'_>>) -> Vec<String> {
    let mut names = Vec::new();
    while let Some(c) = rest.next_if(|c| *c != ')') {
        if c.is_ascii_alphabetic() || c == '_' {
            names.push(format!("{c}{}", word(rest)));
        }
    }
    names
}

/// Returns the labels that are matched between braces.
fn matchers(rest: &mut Peekable<Chars<'_>>) -> Vec<String> {
    let mut names = Vec::new();
    rest.next();
    while let Some(c) = rest.peek().copied() {
        match c {
            '}' => {
                rest.next();
                break;
            }
            '"' | '\'' => text(rest),
            c if c.is_ascii_alphabetic() || c == '_' => names.push(word(rest)),
            _ => drop(rest.next()),
        }
    }
    names
}

/// Returns the query's series that are missing in `families`. `recorded` are the names that rules record.
pub(super) fn missing(query: &str, families: &Families, recorded: &[String]) -> Vec<String> {
    let mut missing = Vec::new();
    for selector in selectors(query) {
        let name = selector.metric.as_str();
        if MADE.contains(&name) || recorded.iter().any(|recorded| recorded == name) {
            continue;
        }
        let of = |family: &str| families.get(family).map(|family| &family.samples);
        let histogram =
            ["_bucket", "_sum", "_count"].iter().find_map(|end| of(name.strip_suffix(end)?));
        let Some(samples) = of(name).or(histogram) else {
            missing.push(format!("{name} in {query}"));
            continue;
        };
        for label in &selector.labels {
            let known = ADDED.contains(&label.as_str())
                || samples
                    .iter()
                    .any(|sample| sample.name == name && sample.label(label).is_some());
            if !known {
                missing.push(format!("{name}{{{label}}} in {query}"));
            }
        }
    }
    missing
}

#[test]
fn promql_selectors_are_parsed() {
    let query = r#"histogram_quantile(0.99, sum by (name, le) (rate(a_bucket{job="x",code=~"5..|}"}[5m]))) > 1e3
        and on (name) (b_total offset 5m) / $__interval > bool 2"#;
    let found = selectors(query);
    let names: Vec<&str> = found.iter().map(|selector| selector.metric.as_str()).collect();
    assert_eq!(names, ["a_bucket", "b_total"]);
    assert_eq!(found[0].labels, ["job", "code", "name", "le", "name"]);
    assert!(
        selectors("sum(up{job=\"a\"}) by (instance)")[0].labels.contains(&"instance".to_owned())
    );
}
