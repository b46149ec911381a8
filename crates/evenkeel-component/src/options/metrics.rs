//! Which metrics are shown, and which values of their labels.

use crate::{features::Version, flags::Reader};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// Which metrics are shown, and which values of their labels.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MetricsOptions {
    /// Whether those are shown that the last version hid.
    pub show_hidden: bool,
    /// Names of those that are not wanted.
    pub disabled: BTreeSet<String>,
    /// Values that a metric's label may have, by metric and label; all others are `unexpected`.
    pub allowed: BTreeMap<(String, String), BTreeSet<String>>,
}

/// Flags that nothing behind the metrics reads yet.
const IDLE: [&str; 4] = [
    "allow-metric-labels",
    "allow-metric-labels-manifest",
    "disabled-metrics",
    "show-hidden-metrics-for-version",
];

/// The file that `--allow-metric-labels-manifest` names.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Manifest {
    #[serde(default)]
    allow_list_mapping: BTreeMap<String, String>,
}

impl MetricsOptions {
    /// Checks what was given.
    pub fn check(read: &Reader) -> Self {
        read.idle(&IDLE);
        let before = Version::before_binary();
        let version = read.text("show-hidden-metrics-for-version");
        if !version.is_empty() && version != before.to_string() {
            let flag = "show-hidden-metrics-for-version";
            read.refuse(flag, format!(
                "metrics.showHiddenMetricsForVersion: Invalid value: {version:?}: must be omitted or have the value \
                 '{before}'; only the previous minor version is allowed"
            ));
        }
        let mut allowed = manifest(read);
        // What is given on the command line goes before the file's.
        allowed.extend(allow_list(
            "allow-metric-labels",
            "allowListMapping",
            read,
            read.map("allow-metric-labels"),
        ));
        Self {
            show_hidden: !version.is_empty(),
            disabled: read
                .list("disabled-metrics")
                .into_iter()
                .filter(|name| !name.is_empty())
                .collect(),
            allowed,
        }
    }
}

type Allowed = BTreeMap<(String, String), BTreeSet<String>>;

fn manifest(read: &Reader) -> Allowed {
    let flag = "allow-metric-labels-manifest";
    let Some(path) = read.path(flag) else { return Allowed::new() };
    let invalid = |error: String| {
        let field = "metrics.allowListMappingManifest";
        read.refuse(flag, format!("{field}: Invalid value: {path:?}: {error}"));
    };
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) => {
            invalid(format!("failed to read allow list manifest: {error}"));
            return Allowed::new();
        }
    };
    match serde_saphyr::from_str::<Manifest>(&text) {
        Ok(manifest) => allow_list(
            flag,
            "allowListMappingManifest",
            read,
            manifest.allow_list_mapping.into_iter().collect(),
        ),
        Err(error) => {
            invalid(format!("failed to parse allow list manifest: {error}"));
            Allowed::new()
        }
    }
}

/// From `metric,label` and `value,value`.
fn allow_list(flag: &str, field: &str, read: &Reader, pairs: Vec<(String, String)>) -> Allowed {
    let mut allowed = Allowed::new();
    for (key, values) in pairs {
        match key.split_once(',') {
            Some((metric, label)) if is_name(metric, true) && is_name(label, false) => {
                let values = values.split(',').map(str::to_owned).collect();
                allowed.insert((metric.to_owned(), label.to_owned()), values);
            }
            _ => read.refuse(flag, format!(
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
