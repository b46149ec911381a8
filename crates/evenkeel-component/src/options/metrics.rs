//! Options of metrics: hidden metrics, disabled metrics, and allowed label values.

use crate::{features::Version, flags::Reader};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// Options of metrics (upstream's `component-base/metrics`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MetricsOptions {
    /// Whether metrics that the previous version hid are exposed (`--show-hidden-metrics-for-version`).
    pub show_hidden: bool,
    /// Names of disabled metrics (`--disabled-metrics`).
    pub disabled: BTreeSet<String>,
    /// Allowed label values by metric and label (`--allow-metric-labels`). All other values become
    /// `unexpected`.
    pub allowed: BTreeMap<(String, String), BTreeSet<String>>,
}

/// Content of the file that `--allow-metric-labels-manifest` names.
///
/// Upstream's help describes the first form, and upstream's program reads the second.
#[derive(Deserialize)]
#[serde(untagged)]
enum Manifest {
    Documented {
        #[serde(rename = "allowListMapping")]
        mapping: BTreeMap<String, String>,
    },
    Plain(BTreeMap<String, String>),
}

impl MetricsOptions {
    /// Reads and validates the flags.
    pub fn from_flags(read: &Reader) -> Self {
        let before = Version::before_binary();
        let version = read.text("show-hidden-metrics-for-version");
        if !version.is_empty() && version != before.to_string() {
            let flag = "show-hidden-metrics-for-version";
            read.record_invalid(flag, format!(
                "metrics.showHiddenMetricsForVersion: Invalid value: {version:?}: must be omitted or have the value \
                 '{before}'; only the previous minor version is allowed"
            ));
        }
        let lists = read.map("allow-metric-labels");
        if !lists.is_empty() && read.non_empty_text("allow-metric-labels-manifest").is_some() {
            read.record_invalid(
                "allow-metric-labels",
                "metrics: Invalid value: cannot specify both allowListMapping and allowListMappingManifest",
            );
        }
        let mut allowed = manifest(read);
        allowed.extend(allow_list("allow-metric-labels", "allowListMapping", read, lists));
        Self { show_hidden: !version.is_empty(), disabled: disabled(read), allowed }
    }
}

fn disabled(read: &Reader) -> BTreeSet<String> {
    let flag = "disabled-metrics";
    let names = read.list(flag);
    for name in names.iter().filter(|name| !is_name(name, true)) {
        read.record_invalid(flag, format!(
            "metrics.disabledMetrics: Invalid value: {name:?}: must be fully qualified metric names matching \
             \"^[a-zA-Z_:][a-zA-Z0-9_:]*$\", got {name:?}"
        ));
    }
    names.into_iter().collect()
}

type Allowed = BTreeMap<(String, String), BTreeSet<String>>;

fn manifest(read: &Reader) -> Allowed {
    let flag = "allow-metric-labels-manifest";
    let Some(path) = read.non_empty_text(flag) else { return Allowed::new() };
    let invalid = |error: String| {
        let field = "metrics.allowListMappingManifest";
        read.record_invalid(flag, format!("{field}: Invalid value: {path:?}: {error}"));
    };
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) => {
            invalid(format!("failed to read allow list manifest: {error}"));
            return Allowed::new();
        }
    };
    match serde_saphyr::from_str::<Manifest>(&text) {
        Ok(Manifest::Documented { mapping } | Manifest::Plain(mapping)) => {
            allow_list(flag, "allowListMappingManifest", read, mapping.into_iter().collect())
        }
        Err(error) => {
            invalid(format!("failed to parse allow list manifest: {error}"));
            Allowed::new()
        }
    }
}

/// Parses pairs of `metric,label` and `value,value`.
fn allow_list(flag: &str, field: &str, read: &Reader, pairs: Vec<(String, String)>) -> Allowed {
    let mut allowed = Allowed::new();
    for (key, values) in pairs {
        match key.split_once(',') {
            Some((metric, label)) if is_name(metric, true) && is_name(label, false) => {
                let values = values.split(',').map(str::to_owned).collect();
                allowed.insert((metric.to_owned(), label.to_owned()), values);
            }
            _ => read.record_invalid(flag, format!(
                "metrics.{field}: Invalid value: {key:?}: must have keys with format `metricName,labelName` where \
                 metricName matches \"[a-zA-Z_:][a-zA-Z0-9_:]*\" and labelName matches \"[a-zA-Z_][a-zA-Z0-9_]*\""
            )),
        }
    }
    allowed
}

fn is_name(text: &str, colons: bool) -> bool {
    let letter = |c: char| c.is_ascii_alphabetic() || c == '_' || (colons && c == ':');
    text.starts_with(letter) && text.chars().all(|c| letter(c) || c.is_ascii_digit())
}
