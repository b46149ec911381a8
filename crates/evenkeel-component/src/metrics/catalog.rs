//! Stability levels and deprecations of upstream's metrics.

use crate::features::Version;
use std::collections::BTreeMap;

/// Stability level of a metric (KEP-1209).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stability {
    Internal,
    Alpha,
    Beta,
    Stable,
}

impl Stability {
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Internal => "INTERNAL",
            Self::Alpha => "ALPHA",
            Self::Beta => "BETA",
            Self::Stable => "STABLE",
        }
    }

    /// Returns the number of minor versions for which a deprecated metric is still exposed.
    fn exposed_minor_versions(self) -> u32 {
        match self {
            Self::Internal | Self::Alpha => 0,
            Self::Beta => 1,
            Self::Stable => 3,
        }
    }
}

/// Entry of a metric in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    /// Stability level. `None` for metrics that are not Kubernetes' own (`process_…`).
    pub(super) stability: Option<Stability>,
    /// The version that deprecated the metric, and the version's name in upstream's help text.
    pub(super) deprecated: Option<(Version, &'static str)>,
}

/// Entry of a metric that upstream does not have.
pub(super) const OWN: Entry = Entry { stability: Some(Stability::Alpha), deprecated: None };

impl Entry {
    /// Returns whether the metric is hidden in this version.
    pub(super) fn hidden_in(&self, current: Version) -> bool {
        let (Some((since, _)), Some(stability)) = (self.deprecated, self.stability) else {
            return false;
        };
        match since.major.cmp(&current.major) {
            std::cmp::Ordering::Less => true,
            std::cmp::Ordering::Equal => {
                since.minor + stability.exposed_minor_versions() <= current.minor
            }
            std::cmp::Ordering::Greater => false,
        }
    }

    /// Returns the deprecating version, if the metric is deprecated in this version.
    pub(super) fn deprecated_in(&self, current: Version) -> Option<&'static str> {
        self.deprecated.filter(|(since, _)| *since <= current).map(|(_, text)| text)
    }
}

/// Entries of metrics by name.
pub(super) type Catalog = BTreeMap<&'static str, Entry>;

/// Parses a table of metrics. A metric with an invalid version counts as not deprecated.
pub(super) fn parse(table: &'static str) -> Catalog {
    let row = |line: &'static str| {
        let mut cells = line.split('\t');
        let name = cells.next()?;
        let (stability, deprecated) = (cells.nth(1)?, cells.next()?);
        let stability = match stability {
            "INTERNAL" => Some(Stability::Internal),
            "ALPHA" => Some(Stability::Alpha),
            "BETA" => Some(Stability::Beta),
            "STABLE" => Some(Stability::Stable),
            _ => None,
        };
        let without_patch = deprecated.rsplit_once('.').map(|(version, _)| version);
        let version = without_patch.and_then(Version::parse);
        let deprecated = version.map(|version| (version, deprecated));
        Some((name, Entry { stability, deprecated }))
    };
    table.lines().skip(1).filter_map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Version = Version { major: 1, minor: 37 };

    #[test]
    fn deprecated_metric_is_exposed_for_its_grace_period() {
        for (stability, since, hidden) in [
            ("ALPHA", "1.37.0", true),
            ("ALPHA", "1.38.0", false),
            ("BETA", "1.37.0", false),
            ("BETA", "1.36.0", true),
            ("STABLE", "1.35.0", false),
            ("STABLE", "1.34.0", true),
            ("STABLE", "", false),
        ] {
            let line = format!("h\nm\tcounter\t{stability}\t{since}\t\t\n");
            let entry = parse(Box::leak(line.into_boxed_str()))["m"];
            assert_eq!(entry.hidden_in(NOW), hidden, "{stability} {since}");
        }
    }

    #[test]
    fn rows_without_stability_are_read_and_broken_ones_skipped() {
        let table =
            "h\nprocess_open_fds\tgauge\t\t\t\t\nx_total\tcounter\tBETA\t1.36.0\tname\t\nbroken\n";
        let catalog = parse(table);
        assert_eq!(catalog["process_open_fds"], Entry { stability: None, deprecated: None });
        assert_eq!(catalog["x_total"].deprecated_in(NOW), Some("1.36.0"));
        assert_eq!(catalog.len(), 2);
    }
}
