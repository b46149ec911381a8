//! The same pods on the same nodes: upstream's scheduler places generated pods on generated clusters, one after the other, and
//! ours says of each which nodes will do and how good they are. Both must agree on that, on the node (any of the best), and on
//! the words where there is none, and on whom to evict. Needs upstream's programs: `EVENKEEL_UPSTREAM_BIN`.

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
    let (mut n_evicting, mut n_devices) = (0, 0);
    for seed in 0..cluster::wanted().unwrap_or(CLUSTERS) {
        let mut generator = Generator::new(seed);
        let nodes = generator.nodes();
        cluster.create_others(&generator.slices(&nodes), &generator.budgets()).await;
        cluster.create_nodes(&nodes).await;
        let mut living: BTreeSet<String> = BTreeSet::new();
        for n in 0..PODS {
            let made = generator.pod(n);
            let name = &made.name;
            let explained = if made.first {
                cluster.create_gated(&made).await;
                let explained = looker.explain("default", name);
                cluster.open_gate(name).await;
                explained
            } else {
                cluster.create(cluster::PODS, &made.pod).await;
                cluster.settled(name).await;
                looker.explain("default", name)
            };
            let Some(ours) = explained else {
                differences.push(format!("{name}: ours has nothing to say"));
                continue;
            };
            let pod = if ours.evictions.is_empty() {
                let pod = cluster.settled(name).await;
                differences.extend(compare(&pod, &ours));
                pod
            } else {
                n_evicting += 1;
                let pod = cluster.placed(name).await;
                let gone = cluster.gone(&living);
                differences.extend(evictions(&pod, &ours, &gone));
                living.retain(|pod| !gone.contains(pod));
                pod
            };
            if pod.spec.node_name.is_empty() {
                cluster.delete(&format!("{}/{name}", cluster::PODS)).await;
                cluster.until(|| cluster.pod(name).is_none()).await;
                continue;
            }
            cluster.start_pod(name, made.starts).await;
            living.insert(format!("default/{name}"));
            n_devices += usize::from(made.claim.is_some());
            if ours.evictions.is_empty() {
                placed.push((made.name, ours));
            }
        }
        cluster.clear().await;
    }
    // The log has it all by now.
    let upstream = UpstreamScores::read(&cluster.log());
    differences.extend(placed.iter().filter_map(|(name, ours)| scores(name, ours, &upstream)));
    let n_scored = placed.iter().filter(|(name, _)| upstream.scores(name).is_some()).count();
    cluster::tell(&format!(
        "{} pods were placed, of {n_scored} scores were logged; {n_devices} got devices, {n_evicting} had others evicted",
        placed.len() + n_evicting
    ));
    assert!(n_scored > placed.len() / 3, "upstream's log can be read");
    assert!(n_evicting > 0 && n_devices > 0, "there is something to compare");
    differences
}

/// Whom upstream has evicted for a pod, beside whom ours would have.
fn evictions(pod: &Arc<Pod>, ours: &Explained, gone: &BTreeSet<String>) -> Option<String> {
    let (name, node) = (&pod.meta.name, &*pod.spec.node_name);
    let expected = ours.evictions.iter().find(|one| *one.node == *node);
    let same = expected
        .is_some_and(|one| one.pods.iter().collect::<BTreeSet<_>>() == gone.iter().collect());
    (!same).then(|| {
        let why = ours.nodes.iter().find(|known| *known.node == *node);
        format!(
            "{name}: upstream takes {node} and evicts {gone:?}, ours one of {:?}; {why:?}",
            ours.evictions
        )
    })
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
    let condition = conditions.iter().find(|condition| &*condition.type_ == "PodScheduled");
    let theirs = condition.map_or("", |condition| &*condition.message);
    match &ours.message {
        Some(message) if *theirs == **message => None,
        message => Some(format!("{name}: upstream says {theirs:?}, ours {message:?}")),
    }
}

/// The nodes that will do and what they are worth, where upstream had to say it.
fn scores(name: &str, ours: &Explained, upstream: &UpstreamScores) -> Option<String> {
    let theirs = upstream.scores(name)?;
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
            format!("{node}: upstream {:?}, ours {:?}", upstream.by_plugin(name, node), own)
        });
    Some(format!(
        "{name}: {} nodes will do with upstream, {} with ours; {differ}",
        theirs.len(),
        ours_total.len()
    ))
}
