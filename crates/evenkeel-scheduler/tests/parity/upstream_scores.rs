//! What upstream's scheduler tells at `--v=10`: the score of each node for each pod, and of each plugin.

use std::collections::BTreeMap;

/// Scores by pod and node.
pub(crate) struct UpstreamScores {
    totals: BTreeMap<String, BTreeMap<String, i64>>,
    plugins: BTreeMap<(String, String), Vec<(String, i64)>>,
}

impl UpstreamScores {
    /// Reads klog's lines; the last attempt's scores count.
    pub(crate) fn read(log: &str) -> Self {
        let mut scores = Self { totals: BTreeMap::new(), plugins: BTreeMap::new() };
        for line in log.lines() {
            let whole = line.contains("\"Calculated node's final score for pod\"");
            if !whole && !line.contains("\"Plugin scored node for pod\"") {
                continue;
            }
            let (Some(pod), Some(node)) = (field(line, "pod"), field(line, "node")) else {
                continue;
            };
            let Some(score) = field(line, "score").and_then(|score| score.parse().ok()) else {
                continue;
            };
            let pod = pod.rsplit('/').next().unwrap_or_default().to_owned();
            if whole {
                scores.totals.entry(pod).or_default().insert(node, score);
            } else {
                let plugin = field(line, "plugin").unwrap_or_default();
                scores.plugins.entry((pod, node)).or_default().push((plugin, score));
            }
        }
        scores
    }

    /// What nodes were worth for a pod; none where there was no choice.
    pub(crate) fn scores(&self, pod: &str) -> Option<BTreeMap<&str, i64>> {
        let totals = self.totals.get(pod)?;
        Some(totals.iter().map(|(node, score)| (&**node, *score)).collect())
    }

    /// What each plugin thought.
    pub(crate) fn by_plugin(&self, pod: &str, node: &str) -> Option<&Vec<(String, i64)>> {
        self.plugins.get(&(pod.to_owned(), node.to_owned()))
    }
}

/// `name="value"` or `name=value`.
fn field(line: &str, name: &str) -> Option<String> {
    let (_, rest) = line.split_once(&format!(" {name}="))?;
    let value = match rest.strip_prefix('"') {
        Some(quoted) => quoted.split('"').next(),
        None => rest.split_whitespace().next(),
    };
    value.map(str::to_owned)
}
