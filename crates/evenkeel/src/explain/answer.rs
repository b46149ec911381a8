//! The whole answer of `evenkeel explain`, and its output formats: text, JSON and YAML.

use anyhow::{Context, Result};
use evenkeel_api::time::Timestamp;
use evenkeel_explain::{Cause, Explained, Sections, sections};
use evenkeel_runtime::introspect::{ObjectReport, Subject};
use serde::Serialize;
use std::fmt::Write as _;

/// Maximum number of causes in the text output.
const MAX_CAUSES: usize = 10;

/// Explanation of an object's state.
#[derive(Debug)]
pub struct Answer {
    /// Reports of the controllers.
    pub explained: Explained,
    /// Owner of the object, the owner's owner, and so on.
    pub owners: Vec<Subject>,
    /// Reasons why the object or its dependents are not as desired, from their own status and events.
    pub why: Vec<Cause>,
    /// The scheduler's view of a pod.
    pub scheduler: Option<evenkeel_scheduler::explain::Explained>,
    /// Whether the pod waits for a node, so that the scheduler's view matters most.
    pub is_pending: bool,
}

/// Answer as JSON or YAML. As in the text output, the most important part is first.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Encoded<'a> {
    object: &'a Subject,
    asked: &'a str,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    owners: &'a [Subject],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    why: &'a [Cause],
    #[serde(skip_serializing_if = "Option::is_none")]
    scheduler: Option<&'a evenkeel_scheduler::explain::Explained>,
    reports: Vec<&'a ObjectReport>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    children: &'a [Explained],
    #[serde(skip_serializing_if = "Option::is_none")]
    more: Option<usize>,
}

impl Serialize for Answer {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Explained { object, asked, reports, children, more } = &self.explained;
        let Sections { attention, managing, observing, silent } = sections(reports);
        Encoded {
            object,
            asked,
            owners: &self.owners,
            why: &self.why,
            scheduler: self.scheduler.as_ref(),
            reports: [attention, managing, observing, silent].concat(),
            children,
            more: (*more > 0).then_some(*more),
        }
        .serialize(serializer)
    }
}

impl Answer {
    /// Formats the answer in one of the formats of `--output`.
    ///
    /// # Errors
    /// Fails if the answer cannot be encoded.
    pub fn format(&self, output: &str, now: Timestamp) -> Result<String> {
        match output {
            "json" => Ok(serde_json::to_string_pretty(self)? + "\n"),
            "yaml" => serde_saphyr::to_string(self).context("the answer cannot be written as YAML"),
            _ => Ok(self.text(now)),
        }
    }

    /// Formats the answer as text: causes first, then the scheduler of a pod that waits for a node, then the controllers.
    pub fn text(&self, now: Timestamp) -> String {
        let mut out = self.explained.heading();
        if !self.owners.is_empty() {
            let owners: Vec<String> = self.owners.iter().map(Subject::to_string).collect();
            let _ = writeln!(out, "  of   {}", owners.join(", of "));
        }
        for (index, cause) in self.why.iter().take(MAX_CAUSES).enumerate() {
            let head = if index == 0 { "why" } else { "" };
            let _ = writeln!(out, "  {head:<4} {}", cause.line(&self.explained.object));
        }
        if self.why.len() > MAX_CAUSES {
            let _ = writeln!(out, "       and {} more", self.why.len() - MAX_CAUSES);
        }
        let scheduler = self.scheduler.as_ref().map(|scheduled| {
            let note = if self.is_pending { "" } else { ", if the pod were scheduled now" };
            let table = crate::schedule::table(scheduled);
            format!("scheduler {}{note}:\n{table}", scheduled.scheduler)
        });
        let mut body = self.explained.body(now);
        if self.explained.reports.is_empty() {
            body += "  no controller that was asked has anything to say of it\n";
        }
        match scheduler {
            Some(scheduler) if self.is_pending => out + "\n" + &scheduler + "\n" + &body,
            Some(scheduler) => out + &body + "\n" + &scheduler,
            None => out + &body,
        }
    }

    /// Returns the answer's text without times and durations, so that a comparison shows only other changes.
    pub fn key(&self) -> String {
        without_times(&self.text(Timestamp::UNIX_EPOCH))
    }
}

/// Replaces durations and times in a text (`9m57s`, `3 s`, `2026-11-27T22:21:55Z`).
fn without_times(text: &str) -> String {
    let mut words: Vec<&str> = Vec::new();
    for word in text.split_whitespace() {
        let bare = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
        let starts_with_digit = bare.starts_with(|c: char| c.is_ascii_digit());
        let is_duration = starts_with_digit
            && bare.ends_with(['s', 'm', 'h'])
            && bare
                .chars()
                .all(|c| c.is_ascii_digit() || matches!(c, '.' | 'h' | 'm' | 's' | 'µ' | 'n'));
        let is_time = starts_with_digit && bare.contains('T') && bare.contains(':');
        // The number before a separate unit.
        if matches!(bare, "s" | "ago")
            && words.last().is_some_and(|last| last.chars().all(|c| c.is_ascii_digit() || c == '.'))
        {
            words.pop();
        }
        words.push(if is_duration || is_time { "~" } else { word });
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(is_pending: bool) -> Answer {
        let object = Subject::new("", "Pod", "ns", "p");
        let report = ObjectReport {
            controller: "taint-eviction-controller".to_owned(),
            object: object.clone(),
            exists: true,
            ..ObjectReport::default()
        };
        let cause =
            Cause { object: object.clone(), others: 0, text: "it is not scheduled".to_owned() };
        Answer {
            explained: Explained {
                object,
                asked: "asked the manager at X".to_owned(),
                reports: vec![report],
                ..Explained::default()
            },
            owners: vec![
                Subject::new("apps", "ReplicaSet", "ns", "w-1"),
                Subject::new("apps", "Deployment", "ns", "w"),
            ],
            why: vec![cause],
            scheduler: Some(evenkeel_scheduler::explain::Explained {
                scheduler: "default-scheduler".to_owned(),
                overall: None,
                nodes: Vec::new(),
                message: Some("0/0 nodes are available".to_owned()),
                evictions: Vec::new(),
            }),
            is_pending,
        }
    }

    #[test]
    fn what_matters_comes_first() {
        let text = answer(true).text(Timestamp::UNIX_EPOCH);
        assert_eq!(
            text,
            "Pod ns/p (asked the manager at X)\n  of   ReplicaSet ns/w-1, of Deployment ns/w\n  why  it is not scheduled\n\nscheduler default-scheduler:\n  \
             0/0 nodes are available\n\n  nothing to do: taint-eviction-controller\n"
        );
        let text = answer(false).text(Timestamp::UNIX_EPOCH);
        let place = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part} in {text}"));
        assert!(place("nothing to do") < place("scheduler default-scheduler, if the pod"));
    }

    #[test]
    fn json_and_yaml_have_the_same_content() {
        let mut answer = answer(true);
        answer.explained.reports.push(ObjectReport {
            controller: "busy".to_owned(),
            exists: true,
            waits: vec!["something".to_owned()],
            ..ObjectReport::default()
        });
        let json = answer.format("json", Timestamp::UNIX_EPOCH).expect("JSON");
        let yaml = answer.format("yaml", Timestamp::UNIX_EPOCH).expect("YAML");
        let (json_text, yaml_text) = (json, yaml);
        let json: serde_json::Value = serde_json::from_str(&json_text).expect("JSON");
        let yaml: serde_json::Value = serde_saphyr::from_str(&yaml_text).expect("YAML");
        assert_eq!(json, yaml);
        // Causes and the scheduler come before the controllers.
        for text in [&json_text, &yaml_text] {
            let place = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part} in {text}"));
            assert!(
                place("why") < place("scheduler") && place("default-scheduler") < place("reports")
            );
            assert!(place("busy") < place("taint-eviction-controller"), "{text}");
        }
        assert_eq!(json["why"][0]["text"], "it is not scheduled");
        assert_eq!(json["object"]["kind"], "Pod", "the fields of the explanation are its own");
        assert_eq!(json["scheduler"]["scheduler"], "default-scheduler");
    }

    #[test]
    fn the_key_ignores_times_and_nothing_else() {
        let a = "last 3.012s ago: x\n comes again in 9m57s (at 2026-11-27T22:21:55Z), last sign of life  3 s ago, 2 pods";
        let b = "last 13.5s ago: x\n comes again in 57s (at 2026-11-28T22:21:55Z), last sign of life  41 s ago, 2 pods";
        assert_eq!(without_times(a), without_times(b));
        assert_ne!(without_times("2 pods"), without_times("3 pods"));
        assert_ne!(without_times("web-5s1 3"), without_times("web-6s1 3"));
    }
}
