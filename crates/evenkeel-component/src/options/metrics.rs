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
        let previous = Version::before_binary();
        let version = read.text("show-hidden-metrics-for-version");
        if !version.is_empty() && version != previous.to_string() {
            let flag = "show-hidden-metrics-for-version";
            read.record_invalid(flag, format!(
                "metrics.showHiddenMetricsForVersion: Invalid value: {version:?}: must be omitted or have the value \
                 '{previous}'; only the previous minor version is allowed"
            ));
        }
        let lists = read.map("allow-metric-labels");
        if !lists.is_empty() && read.non_empty_text("allow-metric-labels-manifest").is_some() {
            read.record_invalid(
                "allow-metric-labels",
                "metrics: Invalid value: cannot specify both allowListMapping and allowListMappingManifest",
            );
        }
        let mut allowed = read_manifest(read);
        allowed.extend(parse_allow_list("allow-metric-labels", "allowListMapping", read, lists));
        Self { show_hidden: !version.is_empty(), disabled: read_disabled(read), allowed }
    }
}

fn read_disabled(read: &Reader) -> BTreeSet<String> {
    let flag = "disabled-metrics";
    let names = read.list(flag);
    for name in names.iter().filter(|name| !is_metric_name(name)) {
        read.record_invalid(flag, format!(
            "metrics.disabledMetrics: Invalid value: {name:?}: must be fully qualified metric names matching \
             \"^[a-zA-Z_:][a-zA-Z0-9_:]*$\", got {name:?}"
        ));
    }
    names.into_iter().collect()
}

/// Allowed label values by metric and label.
type Allowed = BTreeMap<(String, String), BTreeSet<String>>;

/// Reads the file of `--allow-metric-labels-manifest`.
fn read_manifest(read: &Reader) -> Allowed {
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
            parse_allow_list(flag, "allowListMappingManifest", read, mapping.into_iter().collect())
        }
        Err(error) => {
            invalid(format!("failed to parse allow list manifest: {error}"));
            Allowed::new()
        }
    }
}

/// Parses pairs of `metric,label` and `value,value`.
fn parse_allow_list(
    flag: &str,
    field: &str,
    read: &Reader,
    pairs: Vec<(String, String)>,
) -> Allowed {
    let mut allowed = Allowed::new();
    for (key, values) in pairs {
        match key.split_once(',') {
            Some((metric, label)) if is_metric_name(metric) && is_label_name(label) => {
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

fn is_metric_name(text: &str) -> bool {
    is_name(text, |c| c.is_ascii_alphabetic() || matches!(c, '_' | ':'))
}

fn is_label_name(text: &str) -> bool {
    is_name(text, |c| c.is_ascii_alphabetic() || c == '_')
}

/// Returns whether a name consists of letters and digits, and begins with a letter.
fn is_name(text: &str, is_letter: fn(char) -> bool) -> bool {
    text.starts_with(is_letter) && text.chars().all(|c| is_letter(c) || c.is_ascii_digit())
}
