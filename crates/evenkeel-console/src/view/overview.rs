//! The first page: nodes, plots and controllers.

use super::{Link, ago::Ago, heatmap::HeatMap, plot::Plot, shorten};
use crate::route::controller_href;
use askama::Template;
use evenkeel_api::{time::Timestamp, views::Pod};
use evenkeel_runtime::introspect::{Failed, Listing, Summary};
use std::{collections::BTreeMap, sync::Arc};

/// Time for which a failure keeps a controller among those that need attention, in seconds.
const RECENT_FAILURE: i64 = 300;
/// Maximum length of an error in the table.
const MAX_ERROR: usize = 160;
/// Maximum number of caches that are named as not synced.
const MAX_CACHES: usize = 20;

/// A number with its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tile {
    /// Name of the number, with the page that lists what it counts.
    pub(crate) link: Link,
    /// The number, or a short text.
    pub(crate) value: String,
    /// Class in the style sheet: `good`, `quiet`, `warn` or `bad`.
    pub(crate) tone: &'static str,
}

/// Failure of a controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LastError {
    /// Key of the object, and the message.
    pub(crate) text: String,
    /// Time of the failure.
    pub(crate) ago: Ago,
}

/// A controller in the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ControllerRow {
    /// Name, with the controller's page.
    pub(crate) link: Link,
    /// Kind that it reconciles.
    pub(crate) kind: String,
    /// Numbers of keys: ready, in flight, delayed, in back-off.
    pub(crate) counts: [usize; 4],
    /// Whether all its caches have synced.
    pub(crate) synced: bool,
    /// The last failure that is kept.
    pub(crate) error: Option<LastError>,
}

/// The first page.
#[derive(Debug, Clone, Template)]
#[template(path = "overview.html")]
pub(crate) struct Overview {
    /// Name of the cluster.
    pub(crate) cluster: String,
    /// Numbers of objects.
    pub(crate) tiles: Vec<Tile>,
    /// Nodes as a heat map.
    pub(crate) nodes: HeatMap,
    /// Writes, latencies, queues.
    pub(crate) plots: Vec<Plot>,
    /// Controllers that work, wait or failed.
    pub(crate) busy: Vec<ControllerRow>,
    /// Controllers that do neither.
    pub(crate) quiet: Vec<ControllerRow>,
}

/// Returns the first page.
pub(crate) fn overview(
    cluster: &str,
    nodes: HeatMap,
    pods: &[Arc<Pod>],
    listing: &Listing,
    plots: Vec<Plot>,
) -> Overview {
    let rows = listing.controllers.iter().map(|summary| {
        (needs_attention(listing.now, summary), controller_row(listing.now, summary))
    });
    let (busy, quiet): (Vec<_>, Vec<_>) = rows.partition(|(attention, _)| *attention);
    let rows = |rows: Vec<(bool, ControllerRow)>| rows.into_iter().map(|(_, row)| row).collect();
    let (busy, quiet): (Vec<ControllerRow>, Vec<ControllerRow>) = (rows(busy), rows(quiet));
    let tiles = tiles(&nodes, pods, listing);
    Overview { cluster: cluster.to_owned(), tiles, nodes, plots, busy, quiet }
}

fn tiles(nodes: &HeatMap, pods: &[Arc<Pod>], listing: &Listing) -> Vec<Tile> {
    let pods_page = "/objects?kind=pods";
    let tile = |name: &str, href: &str, value: String, tone| Tile {
        link: Link::new(name, href),
        value,
        tone,
    };
    let is_bad = nodes.ready < nodes.total;
    let mut tiles = vec![tile(
        "nodes Ready",
        "/objects?kind=nodes",
        format!("{} / {}", nodes.ready, nodes.total),
        if is_bad { "bad" } else { "good" },
    )];
    let mut phases: BTreeMap<&str, usize> = BTreeMap::new();
    for pod in pods {
        let phase = if pod.meta.deleting() { "Terminating" } else { &*pod.status.phase };
        *phases.entry(phase).or_default() += 1;
    }
    for (phase, tone, always) in [
        ("Running", "good", true),
        ("Pending", "warn", true),
        ("Failed", "bad", false),
        ("Succeeded", "quiet", false),
        ("Terminating", "warn", false),
    ] {
        let count = phases.get(phase).copied().unwrap_or_default();
        if count > 0 || always {
            let tone = if count > 0 { tone } else { "quiet" };
            tiles.push(tile(&format!("pods {phase}"), pods_page, count.to_string(), tone));
        }
    }
    let depth: usize = listing.controllers.iter().map(|c| c.queue.ready + c.queue.in_flight).sum();
    let failing: usize = listing.controllers.iter().map(|c| c.queue.backing_off).sum();
    tiles.push(tile("keys in queues", "", depth.to_string(), "quiet"));
    let tone = if failing > 0 { "bad" } else { "quiet" };
    tiles.push(tile("keys in back-off", "", failing.to_string(), tone));
    let unsynced: Vec<&str> = listing
        .caches
        .iter()
        .filter(|cache| !cache.synced || cache.trouble.is_some())
        .map(|cache| &*cache.resource)
        .take(MAX_CACHES)
        .collect();
    if !unsynced.is_empty() {
        tiles.push(tile("caches not synced", "", unsynced.join(", "), "bad"));
    }
    tiles
}

fn needs_attention(now: Timestamp, summary: &Summary) -> bool {
    let failed_lately = summary
        .last_error
        .as_ref()
        .is_some_and(|failed| now.as_second() - failed.at.as_second() < RECENT_FAILURE);
    !summary.queue.is_idle() || summary.queue.backing_off > 0 || failed_lately || !summary.synced
}

fn controller_row(now: Timestamp, summary: &Summary) -> ControllerRow {
    let queue = &summary.queue;
    ControllerRow {
        link: Link::new(&*summary.name, controller_href(&summary.name)),
        kind: summary.kind.clone(),
        counts: [queue.ready, queue.in_flight, queue.delayed, queue.backing_off],
        synced: summary.synced,
        error: summary.last_error.as_ref().map(|failed| last_error(now, failed)),
    }
}

fn last_error(now: Timestamp, failed: &Failed) -> LastError {
    let text = shorten(&format!("{}: {}", failed.key, failed.error), MAX_ERROR);
    LastError { text, ago: Ago::new(now, failed.at) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::heatmap::heat_map;
    use evenkeel_runtime::introspect::QueueState;

    fn summary(name: &str, queue: QueueState, error: Option<(i64, &str)>) -> Summary {
        Summary {
            name: name.to_owned(),
            cluster: String::new(),
            kind: "Pod".to_owned(),
            workers: 1,
            queue,
            synced: true,
            last_error: error.map(|(at, error)| Failed {
                key: "a/b".to_owned(),
                at: Timestamp::from_second(at).expect("a time"),
                error: error.to_owned(),
            }),
        }
    }

    #[test]
    fn quiet_controllers_are_apart_and_hostile_texts_escaped() {
        let now = Timestamp::from_second(10_000).expect("a time");
        let idle = QueueState { delayed: 3, ..QueueState::default() };
        let failing = QueueState { backing_off: 1, ..QueueState::default() };
        let listing = Listing {
            now,
            controllers: vec![
                summary("quiet", idle.clone(), Some((9_000, "old"))),
                summary("failing", failing, None),
                summary("recent", idle, Some((9_990, "<script>alert(1)</script>"))),
            ],
            caches: Vec::new(),
        };
        let page = overview("a", heat_map(Vec::new(), &[], listing.now), &[], &listing, Vec::new());
        let names =
            |rows: &[ControllerRow]| rows.iter().map(|r| r.link.text.clone()).collect::<Vec<_>>();
        assert_eq!(names(&page.busy), ["failing", "recent"]);
        assert_eq!(names(&page.quiet), ["quiet"]);
        let failing = page.tiles.iter().find(|tile| tile.link.text == "keys in back-off");
        assert_eq!(failing.map(|tile| (&*tile.value, tile.tone)), Some(("1", "bad")));
        let html = page.render().expect("rendered");
        assert!(!html.contains("<script"), "{html}");
        assert!(html.contains("&#60;script&#62;alert(1)"), "{html}");
    }
}
