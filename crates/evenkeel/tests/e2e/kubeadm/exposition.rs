//! Reads Prometheus' text format, and checks the rules of `promtool check metrics`.

use std::collections::{BTreeMap, BTreeSet};

/// A metric with all its series.
#[derive(Debug, Default)]
pub(crate) struct Family {
    pub(crate) kind: String,
    pub(crate) help: String,
    pub(crate) samples: Vec<Sample>,
}

/// A sample: one line of a metric.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sample {
    pub(crate) name: String,
    pub(crate) labels: Vec<(String, String)>,
    pub(crate) value: f64,
}

impl Sample {
    pub(crate) fn label(&self, name: &str) -> Option<&str> {
        self.labels.iter().find(|(label, _)| label == name).map(|(_, value)| value.as_str())
    }

    /// Returns the labels except for the bound of a bucket.
    fn series(&self) -> Vec<(String, String)> {
        self.labels.iter().filter(|(name, _)| name != "le").cloned().collect()
    }
}

/// All metrics, by name.
pub(crate) type Families = BTreeMap<String, Family>;

/// Parses a scraped response.
///
/// # Errors
/// Returns the defect of the first invalid line.
pub(crate) fn read(text: &str) -> Result<Families, String> {
    let mut families = Families::new();
    let mut current = String::new();
    for line in text.lines() {
        let wrong = |what: &str| format!("{what}: {line}");
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').ok_or_else(|| wrong("no help"))?;
            if families.contains_key(name) {
                return Err(wrong("a second HELP, or one after the metric's lines"));
            }
            name.clone_into(&mut current);
            families.entry(current.clone()).or_default().help = help.to_owned();
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').ok_or_else(|| wrong("no type"))?;
            if name != current {
                return Err(wrong("TYPE does not follow its HELP"));
            }
            let family = families.get_mut(name).ok_or_else(|| wrong("no HELP"))?;
            if !family.kind.is_empty() {
                return Err(wrong("a second TYPE"));
            }
            kind.clone_into(&mut family.kind);
        } else {
            let sample = sample(line).ok_or_else(|| wrong("not a sample"))?;
            let family = families.get_mut(&current).ok_or_else(|| wrong("no HELP"))?;
            if family.kind.is_empty() || !belongs(&sample.name, &current, &family.kind) {
                return Err(wrong("not among its metric's lines"));
            }
            family.samples.push(sample);
        }
    }
    Ok(families)
}

fn belongs(sample: &str, family: &str, kind: &str) -> bool {
    match sample.strip_prefix(family) {
        Some("_bucket") => kind == "histogram",
        Some("_sum" | "_count") => matches!(kind, "histogram" | "summary"),
        Some("") => kind != "histogram",
        _ => false,
    }
}

fn is_name(text: &str, colons: bool) -> bool {
    let letter = |c: char| c.is_ascii_alphabetic() || c == '_' || (colons && c == ':');
    text.starts_with(letter) && text.chars().all(|c| letter(c) || c.is_ascii_digit())
}

fn sample(line: &str) -> Option<Sample> {
    let end = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = Vec::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        loop {
            let (label, after) = rest.split_once("=\"")?;
            let (value, after) = quoted(after)?;
            labels.push((label.to_owned(), value));
            match after.strip_prefix(',') {
                Some(more) => rest = more,
                None => break rest = after.strip_prefix('}')?,
            }
        }
    }
    let value = match rest.strip_prefix(' ')? {
        "+Inf" => f64::INFINITY,
        "-Inf" => f64::NEG_INFINITY,
        number => number.parse().ok()?,
    };
    is_name(name, true).then(|| Sample { name: name.to_owned(), labels, value })
}

/// Returns the unescaped string up to the closing quote, and the rest.
fn quoted(text: &str) -> Option<(String, &str)> {
    let (mut value, mut characters) = (String::new(), text.char_indices());
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => value.push(match characters.next()?.1 {
                'n' => '\n',
                same @ ('\\' | '"') => same,
                _ => return None,
            }),
            other => value.push(other),
        }
    }
    None
}

/// Returns the defects of parsed metrics: names, labels, series, histograms, and the conventions of promtool.
pub(crate) fn problems(families: &Families) -> Vec<String> {
    let mut problems = Vec::new();
    for (name, family) in families {
        let mut wrong = |what: String| problems.push(format!("{name}: {what}"));
        conventions(name, family).into_iter().for_each(&mut wrong);
        if family.samples.is_empty() {
            wrong("has no series".to_owned());
        }
        let mut seen = BTreeSet::new();
        for sample in &family.samples {
            if !seen.insert(format!("{} {:?}", sample.name, sample.labels)) {
                wrong(format!("twice {:?}", sample.labels));
            }
            let names: Vec<&str> = sample.labels.iter().map(|(name, _)| name.as_str()).collect();
            let of_series = names.strip_suffix(&["le"]).unwrap_or(&names);
            // Strictly rising: no name twice.
            if !of_series.is_sorted_by(|a, b| a < b) || of_series.contains(&"le") {
                wrong(format!("labels out of order: {names:?}"));
            }
            if names.iter().any(|name| !is_name(name, false) || name.starts_with("__")) {
                wrong(format!("labels with bad names: {names:?}"));
            }
            if family.kind == "counter" && (sample.value < 0.0 || sample.value.is_nan()) {
                wrong(format!("counts to {}", sample.value));
            }
        }
        if family.kind == "histogram" {
            histogram(name, family).into_iter().for_each(&mut wrong);
        }
    }
    problems
}

fn conventions(name: &str, family: &Family) -> Vec<String> {
    let mut wrong = Vec::new();
    let total = name.ends_with("_total");
    if family.help.trim().is_empty() {
        wrong.push("no help text".to_owned());
    }
    if (family.kind == "counter") != total {
        wrong.push("counters, and only they, end in _total".to_owned());
    }
    if family.kind != "histogram"
        && ["_bucket", "_count", "_sum"].iter().any(|suffix| name.ends_with(suffix))
    {
        wrong.push("ends as a histogram's series do".to_owned());
    }
    if name.split('_').any(|part| part == family.kind) {
        wrong.push("has its type in its name".to_owned());
    }
    if name.contains(':') || name.chars().any(|c| c.is_ascii_uppercase()) {
        wrong.push("has a colon or a capital in its name".to_owned());
    }
    let short = ["s", "ms", "us", "ns", "sec", "b", "kb", "mb", "m", "h", "d"];
    if name.split('_').any(|part| short.contains(&part)) {
        wrong.push("abbreviates its unit".to_owned());
    }
    let other = ["milliseconds", "microseconds", "minutes", "hours", "days", "kilobytes", "bits"];
    if name.split('_').any(|part| other.contains(&part)) {
        wrong.push("is not in a base unit".to_owned());
    }
    wrong
}

fn histogram(name: &str, family: &Family) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut series: BTreeMap<_, Vec<&Sample>> = BTreeMap::new();
    for sample in &family.samples {
        series.entry(sample.series()).or_default().push(sample);
    }
    for (labels, samples) in series {
        let of = |suffix: &str| {
            samples.iter().filter(|s| s.name.strip_prefix(name) == Some(suffix)).collect::<Vec<_>>()
        };
        let (buckets, count) = (of("_bucket"), of("_count"));
        let bounds: Vec<f64> = buckets
            .iter()
            .filter_map(|bucket| bucket.label("le"))
            .map(|le| if le == "+Inf" { f64::INFINITY } else { le.parse().unwrap_or(f64::NAN) })
            .collect();
        if !bounds.is_sorted_by(|a, b| a < b) || bounds.len() != buckets.len() {
            wrong.push(format!("{labels:?}: bounds do not rise"));
        }
        if !buckets.is_sorted_by(|a, b| a.value <= b.value) {
            wrong.push(format!("{labels:?}: buckets do not add up"));
        }
        let all = buckets.last().filter(|last| last.label("le") == Some("+Inf"));
        if count.len() != 1
            || of("_sum").len() != 1
            || all.map(|all| all.value) != Some(count[0].value)
        {
            wrong.push(format!("{labels:?}: the +Inf bucket is not the count"));
        }
    }
    wrong
}

#[test]
fn exposition_errors_are_found() {
    let check = |text: &str, want: &str| {
        let found = read(text).map_or_else(|error| vec![error], |families| problems(&families));
        assert!(found.iter().any(|problem| problem.contains(want)), "{text:?}: {found:?}");
    };
    let head = "# HELP a_total A.\n# TYPE a_total counter\n";
    assert_eq!(
        problems(&read(&format!("{head}a_total{{b=\"x\\\"\"}} 1\n")).expect("it is right")),
        [""; 0]
    );
    check("a_total 1\n", "no HELP");
    check(&format!("{head}{head}"), "a second HELP");
    check(&format!("{head}a_total{{x=\"1\"}} 1\na_total{{x=\"1\"}} 2\n"), "twice");
    check(&format!("{head}a_total{{x=\"1\",c=\"2\"}} 1\n"), "labels out of order");
    check(&format!("{head}a_total{{x=\"1\",x=\"2\"}} 1\n"), "labels out of order");
    check(&format!("{head}a_total -1\n"), "counts to -1");
    check(&format!("{head}a_total{{x=\"1}} 1\n"), "not a sample");
    check(&format!("{head}b_total 1\n"), "not among its metric's lines");
    check("# HELP a A.\n# TYPE a counter\na 1\n", "end in _total");
    check("# HELP a_count A.\n# TYPE a_count gauge\na_count 1\n", "as a histogram's series");
    check("# HELP a_ms A.\n# TYPE a_ms gauge\na_ms 1\n", "abbreviates");
    let histogram = |lines: &str| {
        format!("# HELP waits W.\n# TYPE waits histogram\n{lines}waits_sum 1\nwaits_count 2\n")
    };
    let right = histogram("waits_bucket{le=\"1\"} 1\nwaits_bucket{le=\"+Inf\"} 2\n");
    assert_eq!(problems(&read(&right).expect("it is right")), [""; 0]);
    check(&histogram("waits_bucket{le=\"1\"} 1\n"), "+Inf bucket");
    check(&histogram("waits_bucket{le=\"1\"} 3\nwaits_bucket{le=\"+Inf\"} 2\n"), "do not add up");
    check(
        &histogram(
            "waits_bucket{le=\"2\"} 1\nwaits_bucket{le=\"1\"} 1\nwaits_bucket{le=\"+Inf\"} 2\n",
        ),
        "do not rise",
    );
}
