//! The same pods on the same nodes: upstream's scheduler places generated pods on generated clusters, one after the other, and
//! ours says of each which nodes will do and how good they are. Both must agree on that, on the node (any of the best), and on
//! the words where there is none. Needs upstream's programs: `EVENKEEL_UPSTREAM_BIN`.

#![expect(clippy::unwrap_used, reason = "the whole binary is tests")]

mod cluster;
mod generate;
mod told;

use cluster::Cluster;
use evenkeel_api::views::Pod;
use evenkeel_scheduler::explain::Explained;
use generate::Generator;
use std::{collections::BTreeMap, sync::Arc};
use told::Told;

/// Clusters, unless `EVENKEEL_PARITY_CLUSTERS` says how many, and pods in each.
const CLUSTERS: u64 = 8;
const PODS: usize = 50;

#[test]
fn parity() {
    let Some(binaries) = cluster::binaries() else {
        cluster::tell("SKIPPED: EVENKEEL_UPSTREAM_BIN is not set");
        return;
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let differences = runtime.block_on(run(&Cluster::start(binaries)));
    assert!(differences.is_empty(), "{}:\n{}", differences.len(), differences.join("\n"));
}

async fn run(cluster: &Cluster) -> Vec<String> {
    let mut looker = cluster.looker().await;
    let (mut placed, mut differences) = (Vec::new(), Vec::new());
    for seed in 0..cluster::wanted().unwrap_or(CLUSTERS) {
        let mut generator = Generator::new(seed);
        let nodes = generator.nodes();
        cluster.create_nodes(&nodes).await;
        for n in 0..PODS {
            let (name, pod) = generator.pod(n);
            cluster.create("/api/v1/namespaces/default/pods", &pod).await;
            let pod = cluster.settled(&name).await;
            let Some(ours) = looker.explain("default", &name) else {
                differences.push(format!("{name}: ours has nothing to say"));
                continue;
            };
            differences.extend(compare(&pod, &ours));
            if pod.spec.node_name.is_empty() {
                cluster.delete(&format!("/api/v1/namespaces/default/pods/{name}")).await;
                cluster.until(|| cluster.pod(&name).is_none()).await;
            } else {
                placed.push((name, ours));
            }
        }
        cluster.clear().await;
    }
    // The log has it all by now.
    let told = Told::read(&cluster.log());
    differences.extend(placed.iter().filter_map(|(name, ours)| scores(name, ours, &told)));
    let n_scored = placed.iter().filter(|(name, _)| told.scores(name).is_some()).count();
    cluster::tell(&format!("{} pods were placed, of {n_scored} scores were told", placed.len()));
    assert!(n_scored > placed.len() / 3, "upstream's log can be read");
    differences
}

/// What became of a pod, beside what ours says.
fn compare(pod: &Arc<Pod>, ours: &Explained) -> Option<String> {
    let (name, node) = (&pod.meta.name, &*pod.spec.node_name);
    if !node.is_empty() {
        let best = ours.best();
        let why = ours.nodes.iter().find(|known| *known.node == *node);
        return (!best.contains(&node))
            .then(|| format!("{name}: upstream takes {node}, ours one of {best:?}; {why:?}"));
    }
    let conditions = &pod.status.conditions;
    let told = conditions.iter().find(|condition| &*condition.type_ == "PodScheduled");
    let told = told.map_or("", |condition| &*condition.message);
    match &ours.message {
        Some(message) if told.starts_with(&**message) => None,
        message => Some(format!("{name}: upstream says {told:?}, ours {message:?}")),
    }
}

/// The nodes that will do and what they are worth, where upstream had to say it.
fn scores(name: &str, ours: &Explained, told: &Told) -> Option<String> {
    let theirs = told.scores(name)?;
    let fit = ours.nodes.iter().filter(|node| node.refused.is_none());
    let ours_total: BTreeMap<&str, i64> = fit.map(|node| (&*node.node, node.total)).collect();
    if ours_total == theirs {
        return None;
    }
    let differ = theirs
        .iter()
        .find(|(node, score)| ours_total.get(**node) != Some(score))
        .map_or_else(String::new, |(node, _)| {
            let own = ours.nodes.iter().find(|known| *known.node == **node);
            format!("{node}: upstream {:?}, ours {:?}", told.by_plugin(name, node), own)
        });
    Some(format!(
        "{name}: {} nodes will do with upstream, {} with ours; {differ}",
        theirs.len(),
        ours_total.len()
    ))
}
