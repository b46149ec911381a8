//! Comparison with upstream's scheduler. It schedules generated pods on generated clusters, one pod after another, and a
//! dry run of ours explains each pod. For each pod, the two must agree on the feasible nodes and their scores, on the
//! node (upstream's must be one of the best), on the message of a failure, and on the victims of a preemption. Needs
//! upstream's programs: `EVENKEEL_UPSTREAM_BIN`.

#![expect(clippy::unwrap_used, reason = "the whole binary is tests")]

mod cluster;
mod generate;
mod upstream_scores;

use cluster::Cluster;
use evenkeel_api::views::Pod;
use evenkeel_scheduler::explain::Explained;
use generate::Generator;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};
use upstream_scores::UpstreamScores;

/// Number of clusters if `EVENKEEL_PARITY_CLUSTERS` is not set.
const DEFAULT_CLUSTERS: u64 = 8;
/// Number of pods in each cluster.
const PODS_PER_CLUSTER: usize = 50;

#[test]
fn parity() {
    let Some(binaries) = cluster::binaries() else {
        cluster::print("SKIPPED: EVENKEEL_UPSTREAM_BIN is not set");
        return;
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let differences = runtime.block_on(run(&Cluster::start(binaries)));
    assert!(differences.is_empty(), "{}:\n{}", differences.len(), differences.join("\n"));
}

async fn run(cluster: &Cluster) -> Vec<String> {
    let mut looker = cluster.looker().await;
    let (mut placed, mut differences) = (Vec::new(), Vec::new());
    let (mut n_preemptors, mut n_with_devices) = (0, 0);
    for seed in 0..cluster::requested_clusters().unwrap_or(DEFAULT_CLUSTERS) {
        let mut generator = Generator::new(seed);
        let nodes = generator.nodes();
        cluster.create_slices_and_budgets(&generator.slices(&nodes), &generator.budgets()).await;
        cluster.create_nodes(&nodes).await;
        let mut running: BTreeSet<String> = BTreeSet::new();
        for n in 0..PODS_PER_CLUSTER {
            let generated = generator.pod(n);
            let name = &generated.name;
            let explained = if generated.explain_first {
                cluster.create_gated(&generated).await;
                let explained = looker.explain("default", name);
                cluster.remove_gate(name).await;
                explained
            } else {
                cluster.create(cluster::PODS, &generated.pod).await;
                cluster.wait_until_attempted(name).await;
                looker.explain("default", name)
            };
            let Some(ours) = explained else {
                differences.push(format!("{name}: ours does not know the pod"));
                continue;
            };
            let pod = if ours.evictions.is_empty() {
                let pod = cluster.wait_until_attempted(name).await;
                differences.extend(compare_result(&pod, &ours));
                pod
            } else {
                n_preemptors += 1;
                let pod = cluster.wait_until_placed(name).await;
                let evicted = cluster.deleted_pods(&running);
                differences.extend(compare_evictions(&pod, &ours, &evicted));
                running.retain(|pod| !evicted.contains(pod));
                pod
            };
            if pod.spec.node_name.is_empty() {
                cluster.delete(&format!("{}/{name}", cluster::PODS)).await;
                cluster.wait_until(|| cluster.pod(name).is_none()).await;
                continue;
            }
            cluster.start_pod(name, generated.start_second).await;
            running.insert(format!("default/{name}"));
            n_with_devices += usize::from(generated.claim.is_some());
            if ours.evictions.is_empty() {
                placed.push((generated.name, ours));
            }
        }
        cluster.clear().await;
    }
    // The log is complete: the last pod has been scheduled.
    let upstream = UpstreamScores::read(&cluster.log());
    differences
        .extend(placed.iter().filter_map(|(name, ours)| compare_scores(name, ours, &upstream)));
    let n_scored = placed.iter().filter(|(name, _)| upstream.totals(name).is_some()).count();
    cluster::print(&format!(
        "{} pods were placed; upstream logged scores of {n_scored}; {n_with_devices} got devices, {n_preemptors} preempted others",
        placed.len() + n_preemptors
    ));
    assert!(n_scored > placed.len() / 3, "upstream's log can be read");
    assert!(n_preemptors > 0 && n_with_devices > 0, "there is something to compare");
    differences
}

/// Compares the pods that upstream evicted for a pod with ours. Returns the difference.
fn compare_evictions(
    pod: &Arc<Pod>,
    ours: &Explained,
    evicted: &BTreeSet<String>,
) -> Option<String> {
    let (name, node) = (&pod.meta.name, &*pod.spec.node_name);
    let on_node = ours.evictions.iter().find(|candidate| *candidate.node == *node);
    let is_same = on_node.is_some_and(|candidate| {
        candidate.pods.iter().collect::<BTreeSet<_>>() == evicted.iter().collect()
    });
    (!is_same).then(|| {
        let our_node = ours.nodes.iter().find(|candidate| *candidate.node == *node);
        format!(
            "{name}: upstream takes {node} and evicts {evicted:?}, ours one of {:?}; {our_node:?}",
            ours.evictions
        )
    })
}

/// Compares the node or message that upstream's scheduler gave a pod with ours. Returns the difference.
fn compare_result(pod: &Arc<Pod>, ours: &Explained) -> Option<String> {
    let (name, node) = (&pod.meta.name, &*pod.spec.node_name);
    if !node.is_empty() {
        let best = ours.best();
        let our_node = ours.nodes.iter().find(|candidate| *candidate.node == *node);
        return (!best.contains(&node))
            .then(|| format!("{name}: upstream takes {node}, ours one of {best:?}; {our_node:?}"));
    }
    let conditions = &pod.status.conditions;
    let condition = conditions.iter().find(|condition| &*condition.type_ == "PodScheduled");
    let theirs = condition.map_or("", |condition| &*condition.message);
    match &ours.message {
        Some(message) if *theirs == **message => None,
        message => Some(format!("{name}: upstream says {theirs:?}, ours {message:?}")),
    }
}

/// Compares the feasible nodes and their scores, if upstream logged them. It does not if only one node is feasible.
/// Returns the difference.
fn compare_scores(name: &str, ours: &Explained, upstream: &UpstreamScores) -> Option<String> {
    let theirs = upstream.totals(name)?;
    let feasible = ours.nodes.iter().filter(|node| node.refused.is_none());
    let ours_total: BTreeMap<&str, i64> = feasible.map(|node| (&*node.node, node.total)).collect();
    if ours_total == theirs {
        return None;
    }
    let difference = theirs
        .iter()
        .find(|(node, score)| ours_total.get(**node) != Some(score))
        .map_or_else(String::new, |(node, _)| {
            let our_node = ours.nodes.iter().find(|candidate| *candidate.node == **node);
            format!("{node}: upstream {:?}, ours {our_node:?}", upstream.by_plugin(name, node))
        });
    Some(format!(
        "{name}: {} nodes are feasible with upstream, {} with ours; {difference}",
        theirs.len(),
        ours_total.len()
    ))
}
