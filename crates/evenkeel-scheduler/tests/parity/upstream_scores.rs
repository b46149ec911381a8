//! Scores in the log of upstream's scheduler with `--v=10`: each node's score for each pod, in total and by plugin.

use std::collections::BTreeMap;

/// Scores by pod and node.
pub(crate) struct UpstreamScores {
    totals: BTreeMap<String, BTreeMap<String, i64>>,
    /// Scores of each plugin, by pod and node.
    by_plugin: BTreeMap<(String, String), Vec<(String, i64)>>,
}

impl UpstreamScores {
    /// Reads the scores from a klog. Totals of later attempts replace earlier ones.
    pub(crate) fn read(log: &str) -> Self {
        let mut scores = Self { totals: BTreeMap::new(), by_plugin: BTreeMap::new() };
        for line in log.lines() {
            let is_total = line.contains("\"Calculated node's final score for pod\"");
            if !is_total && !line.contains("\"Plugin scored node for pod\"") {
                continue;
            }
            let (Some(pod), Some(node)) = (field(line, "pod"), field(line, "node")) else {
                continue;
            };
            let Some(score) = field(line, "score").and_then(|score| score.parse().ok()) else {
                continue;
            };
            let pod = pod.rsplit('/').next().unwrap_or_default().to_owned();
            if is_total {
                scores.totals.entry(pod).or_default().insert(node, score);
            } else {
                let plugin = field(line, "plugin").unwrap_or_default();
                scores.by_plugin.entry((pod, node)).or_default().push((plugin, score));
            }
        }
        scores
    }

    /// Returns the total scores of nodes for a pod; `None` if upstream did not score nodes.
    pub(crate) fn totals(&self, pod: &str) -> Option<BTreeMap<&str, i64>> {
        let totals = self.totals.get(pod)?;
        Some(totals.iter().map(|(node, score)| (&**node, *score)).collect())
    }

    /// Returns the score of each plugin.
    pub(crate) fn by_plugin(&self, pod: &str, node: &str) -> Option<&Vec<(String, i64)>> {
        self.by_plugin.get(&(pod.to_owned(), node.to_owned()))
    }
}

/// Returns the value of a field, which is written `name="value"` or `name=value`.
fn field(line: &str, name: &str) -> Option<String> {
    let (_, rest) = line.split_once(&format!(" {name}="))?;
    let value = match rest.strip_prefix('"') {
        Some(quoted) => quoted.split('"').next(),
        None => rest.split_whitespace().next(),
    };
    value.map(str::to_owned)
}
