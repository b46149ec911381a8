//! Report of the requests and the comparisons of their responses: by kind, and by class of difference.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::io::Write as _;

use serde_json::{Value, json};

use super::compare::Verdict;

/// Number of comparisons with each verdict.
#[derive(Debug, Default, Clone, Copy)]
struct Counts {
    equal: u64,
    texts: u64,
    different: u64,
    /// Different responses where ours accepted a request that upstream refused.
    accepted: u64,
    /// Requests that upstream did not respond to. The other counts do not include them.
    unanswered: u64,
}

impl Counts {
    fn all(self) -> u64 {
        self.equal + self.texts + self.different
    }
}

/// A case of a run.
pub(crate) struct Case<'c> {
    pub(crate) seed: u64,
    pub(crate) kind: &'c str,
    pub(crate) verb: &'c str,
    pub(crate) change: &'c str,
    /// The part of the change that identifies the class of the case.
    pub(crate) place: &'c str,
    pub(crate) path: &'c str,
}

/// The verdicts of a run.
#[derive(Debug)]
pub(crate) struct Report {
    /// Name of the variable that repeats a case.
    seed_variable: &'static str,
    kinds: BTreeMap<String, Counts>,
    classes: BTreeMap<String, (u64, u64)>,
    /// Accepted differences, by reason.
    accepted: BTreeMap<&'static str, (u64, u64)>,
    /// All differences, one JSON object each.
    differences: Vec<Value>,
}

impl Report {
    /// Returns an empty report. The environment variable `seed_variable` repeats a case.
    pub(crate) fn new(seed_variable: &'static str) -> Self {
        let (kinds, classes) = (BTreeMap::new(), BTreeMap::new());
        let (accepted, differences) = (BTreeMap::new(), Vec::new());
        Self { seed_variable, kinds, classes, accepted, differences }
    }

    /// Records an accepted difference with its reason. It counts as equal.
    pub(crate) fn accept(&mut self, case: &Case<'_>, reason: &'static str) {
        self.kinds.entry(case.kind.to_owned()).or_default().equal += 1;
        self.accepted.entry(reason).or_insert((0, case.seed)).0 += 1;
    }

    /// Records the reason of an accepted difference. It still counts as "but for texts" or "different".
    pub(crate) fn explain(&mut self, case: &Case<'_>, reason: &'static str) {
        self.accepted.entry(reason).or_insert((0, case.seed)).0 += 1;
    }

    /// Records the responses of both servers to a case.
    pub(crate) fn note(&mut self, case: &Case<'_>, verdict: Verdict, theirs: &Value, ours: &Value) {
        let counts = self.kinds.entry(case.kind.to_owned()).or_default();
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
        let class = format!(
            "{verdict:?} {} {} {}: {} and {}",
            case.verb, case.kind, case.place, codes[0], codes[1]
        );
        self.classes.entry(class).or_insert((0, case.seed)).0 += 1;
        self.differences.push(json!({
            "seed": case.seed, "kind": case.kind, "verb": case.verb, "change": case.change,
            "verdict": format!("{verdict:?}"), "upstream": theirs, "ours": ours, "path": case.path,
        }));
    }

    /// Sums up the reports of a run's workers.
    pub(crate) fn sum(seed_variable: &'static str, reports: Vec<Self>) -> Self {
        reports.into_iter().fold(Self::new(seed_variable), |mut sum, report| {
            sum.add(report);
            sum
        })
    }

    /// Writes the differences to the file that the variable names, if it is set, and the figures to the one that
    /// `EVENKEEL_PARITY_TABLE` names.
    pub(crate) fn save(&self, variable: &str) {
        if let Some(file) = super::variable(variable) {
            let mut file = std::fs::File::create(file).expect("a file");
            self.differences.iter().for_each(|line| writeln!(file, "{line}").expect("written"));
        }
        if let Some(file) = super::variable("EVENKEEL_PARITY_TABLE") {
            std::fs::write(file, self.table()).expect("written");
        }
    }

    /// Returns the figures of each kind and the reasons of accepted differences, in Markdown.
    fn table(&self) -> String {
        let mut lines = vec![
            "| kind | requests | equal | but for texts | different | accepted by ours alone |"
                .into(),
            "|---|--:|--:|--:|--:|--:|".into(),
        ];
        let row = |kind: &str, counts: Counts| {
            let Counts { equal, texts, different, accepted, .. } = counts;
            format!("| {kind} | {} | {equal} | {texts} | {different} | {accepted} |", counts.all())
        };
        lines.extend(self.kinds.iter().map(|(kind, counts)| row(kind, *counts)));
        lines.push(row("all", self.total()));
        lines.push(String::new());
        lines.extend(self.accepted.iter().map(|(reason, (n, _))| format!("- {n}: {reason}")));
        lines.join("\n") + "\n"
    }

    fn add(&mut self, other: Self) {
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
        for (reason, (n, seed)) in other.accepted {
            self.accepted.entry(reason).or_insert((0, seed)).0 += n;
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

    /// Returns the share of equal responses, from 0 to 1.
    pub(crate) fn share_equal(&self) -> f64 {
        let total = self.total();
        total.equal as f64 / total.all().max(1) as f64
    }

    /// Returns the share of responses that are equal except for messages, from 0 to 1.
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
        for (reason, (n, seed)) in &self.accepted {
            writeln!(f, "{n:>5} accepted: {reason} ({}={seed})", self.seed_variable)?;
        }
        let mut classes: Vec<_> = self.classes.iter().collect();
        classes.sort_by_key(|(_, (n, _))| std::cmp::Reverse(*n));
        for (class, (n, seed)) in classes.into_iter().take(60) {
            writeln!(f, "{n:>5} {class} ({}={seed})", self.seed_variable)?;
        }
        Ok(())
    }
}
