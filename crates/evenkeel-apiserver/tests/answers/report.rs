//! What was tried, and how the answers compared: by kind, and each class of difference.

use std::collections::BTreeMap;
use std::fmt::{self, Display};

use serde_json::{Value, json};

use crate::accepted;
use crate::compare::Verdict;
use crate::generate::Attempt;

/// How often each verdict was given.
#[derive(Debug, Default, Clone, Copy)]
struct Counts {
    equal: u64,
    texts: u64,
    different: u64,
    /// Of the different ones: ours accepted what upstream refused.
    accepted: u64,
    /// Not counted among the others: upstream did not answer.
    unanswered: u64,
}

impl Counts {
    fn all(self) -> u64 {
        self.equal + self.texts + self.different
    }
}

/// The verdicts of a run.
#[derive(Debug, Default)]
pub(crate) struct Report {
    kinds: BTreeMap<String, Counts>,
    classes: BTreeMap<String, (u64, u64)>,
    /// How many differences are accepted, by the reason.
    accepted: BTreeMap<&'static str, u64>,
    /// All that differs, one JSON object each.
    pub(crate) differences: Vec<Value>,
}

impl Report {
    /// Notes how both answered an attempt.
    pub(crate) fn note(
        &mut self,
        attempt: &Attempt,
        verdict: Verdict,
        theirs: &Value,
        ours: &Value,
    ) {
        let counts = self.kinds.entry(attempt.kind.clone()).or_default();
        let codes = [theirs, ours].map(|answer| answer["code"].as_u64().unwrap_or_default());
        match verdict {
            Verdict::Equal => counts.equal += 1,
            Verdict::Texts => counts.texts += 1,
            Verdict::Different => {
                counts.different += 1;
                counts.accepted += u64::from(codes[0] >= 400 && codes[1] < 400);
            }
            Verdict::Unanswered => counts.unanswered += 1,
        }
        if verdict == Verdict::Equal {
            return;
        }
        let reason = accepted::class_of(attempt, theirs, ours);
        if let Some(reason) = reason.filter(|_| verdict != Verdict::Unanswered) {
            *self.accepted.entry(reason).or_default() += 1;
        }
        let place: Vec<&str> = attempt.class.split(" = ").collect();
        let class = format!(
            "{verdict:?} {:?} {} {}: {} and {}",
            attempt.verb, attempt.kind, place[0], codes[0], codes[1]
        );
        self.classes.entry(class).or_insert((0, attempt.seed)).0 += 1;
        self.differences.push(json!({
            "seed": attempt.seed, "kind": attempt.kind, "verb": format!("{:?}", attempt.verb), "change": attempt.class,
            "verdict": format!("{verdict:?}"), "upstream": theirs, "ours": ours, "path": attempt.sent.path,
            "accepted": reason,
        }));
    }

    pub(crate) fn add(&mut self, other: Self) {
        for (kind, counts) in other.kinds {
            let sum = self.kinds.entry(kind).or_default();
            sum.equal += counts.equal;
            sum.texts += counts.texts;
            sum.different += counts.different;
            sum.accepted += counts.accepted;
            sum.unanswered += counts.unanswered;
        }
        for (class, (n, seed)) in other.classes {
            self.classes.entry(class).or_insert((0, seed)).0 += n;
        }
        for (reason, n) in other.accepted {
            *self.accepted.entry(reason).or_default() += n;
        }
        self.differences.extend(other.differences);
    }

    fn total(&self) -> Counts {
        self.kinds.values().fold(Counts::default(), |sum, counts| Counts {
            equal: sum.equal + counts.equal,
            texts: sum.texts + counts.texts,
            different: sum.different + counts.different,
            accepted: sum.accepted + counts.accepted,
            unanswered: sum.unanswered + counts.unanswered,
        })
    }

    /// The share of answers that are equal with their texts, from 0 to 1.
    pub(crate) fn share_equal(&self) -> f64 {
        let total = self.total();
        total.equal as f64 / total.all().max(1) as f64
    }

    /// The share of answers that are equal but for texts, from 0 to 1.
    pub(crate) fn share_equal_but_texts(&self) -> f64 {
        let total = self.total();
        (total.equal + total.texts) as f64 / total.all().max(1) as f64
    }
}

impl Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:55} {:>8} {:>8} {:>9} {:>9} {:>9}",
            "kind", "requests", "equal, %", "+texts, %", "different", "accepted"
        )?;
        let total = ("all".to_owned(), self.total());
        let mut kinds: Vec<(String, Counts)> =
            self.kinds.iter().map(|(kind, counts)| (kind.clone(), *counts)).collect();
        kinds.sort_by(|a, b| (b.1.different * a.1.all()).cmp(&(a.1.different * b.1.all())));
        for (kind, counts) in kinds.into_iter().chain([total.clone()]) {
            let share = |n: u64| 100.0 * n as f64 / counts.all().max(1) as f64;
            let both = counts.equal + counts.texts;
            writeln!(
                f,
                "{kind:55} {:>8} {:>8.1} {:>9.1} {:>9} {:>9}",
                counts.all(),
                share(counts.equal),
                share(both),
                counts.different,
                counts.accepted
            )?;
        }
        writeln!(f, "{} requests upstream did not answer", total.1.unanswered)?;
        for (reason, n) in &self.accepted {
            writeln!(f, "{n:>5} accepted: {reason}")?;
        }
        let mut classes: Vec<_> = self.classes.iter().collect();
        classes.sort_by_key(|(_, (n, _))| std::cmp::Reverse(*n));
        for (class, (n, seed)) in classes.into_iter().take(60) {
            writeln!(f, "{n:>5} {class} (EVENKEEL_PARITY_SEED={seed})")?;
        }
        Ok(())
    }
}
