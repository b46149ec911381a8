//! The first page: nodes, plots and controllers.

use super::{
    Link, ago::Ago, attention::Item, heatmap::HeatMap, plot::Plot, podlist::NOT_READY,
    podstatus::PodStatus, shorten,
};
use crate::route::controller_href;
use askama::Template;
use evenkeel_api::{
    time::Timestamp,
    views::{Deployment, Pod},
};
use evenkeel_runtime::introspect::{Failed, Listing, Summary};
use std::sync::Arc;

/// Time for which a failure keeps a controller among those that need attention, in seconds.
const RECENT_FAILURE: i64 = 300;
/// Maximum length of an error in the table.
const MAX_ERROR: usize = 160;
/// Maximum number of caches that are named as not synced.
const MAX_CACHES: usize = 20;

/// A number with its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tile {
    /// Name of the number, with the page that lists the counted objects.
    pub(crate) link: Link,
    /// The number, or a short label.
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
    /// What the page is about.
    pub(crate) heading: String,
    /// Reason why the process is on standby. Empty if it is active.
    pub(crate) standby: String,
    /// Objects that need attention, among those that the user may see.
    pub(crate) attention: Vec<Item>,
    /// Number of objects that need attention and are not listed.
    pub(crate) more: usize,
    /// Whether the user may see all objects that could need attention.
    pub(crate) sees_all: bool,
    /// Numbers of objects.
    pub(crate) tiles: Vec<Tile>,
    /// Errors of parts that the user may not see.
    pub(crate) refused: Vec<String>,
    /// Nodes as a heat map. `None` if the user may not see nodes and pods.
    pub(crate) nodes: Option<HeatMap>,
    /// Writes, latencies, queues. Empty if the user may not see metrics.
    pub(crate) plots: Vec<Plot>,
    /// The same for some hours. Also empty in the first minutes.
    pub(crate) history: Vec<Plot>,
    /// Whether the user may see controllers.
    pub(crate) has_controllers: bool,
    /// Controllers that are busy, wait or have failed.
    pub(crate) busy: Vec<ControllerRow>,
    /// Controllers that are idle and have not failed.
    pub(crate) quiet: Vec<ControllerRow>,
}

/// Number of warnings, and whether there are more.
pub(crate) type Warnings = (usize, bool);

/// Objects of the cluster that the user may see. `None` stands for a kind that the user may not list.
#[derive(Debug, Default)]
pub(crate) struct VisibleObjects<'a> {
    /// Objects that need attention, and the number of further ones.
    pub(crate) attention: (Vec<Item>, usize),
    /// Whether these are complete: whether the user may list nodes, pods and workloads.
    pub(crate) sees_all: bool,
    /// Nodes. Their shades are the requests of `pods`.
    pub(crate) nodes: Option<HeatMap>,
    /// Pods of all namespaces.
    pub(crate) pods: Option<&'a [Arc<Pod>]>,
    /// Deployments of all namespaces.
    pub(crate) deployments: Option<&'a [Arc<Deployment>]>,
    /// Warnings of the last hour.
    pub(crate) warnings: Option<Warnings>,
}

/// Returns the first page. A part that the user may not see, or that the process does not have, is `None` or empty. The reasons
/// for parts that the user may not see are in `refused`.
pub(crate) fn overview(
    heading: String,
    objects: VisibleObjects<'_>,
    listing: Option<&Listing>,
    plots: Vec<Plot>,
    refused: Vec<String>,
) -> Overview {
    let controllers = listing
        .iter()
        .flat_map(|listing| listing.controllers.iter().map(|summary| (listing.now, summary)));
    let rows = controllers
        .map(|(now, summary)| (needs_attention(now, summary), controller_row(now, summary)));
    let (busy, quiet): (Vec<_>, Vec<_>) = rows.partition(|(attention, _)| *attention);
    let rows = |rows: Vec<(bool, ControllerRow)>| rows.into_iter().map(|(_, row)| row).collect();
    let (busy, quiet): (Vec<ControllerRow>, Vec<ControllerRow>) = (rows(busy), rows(quiet));
    let mut tiles = tiles_of_objects(&objects);
    if let Some(listing) = listing {
        tiles.extend(tiles_of_controllers(listing));
    }
    let VisibleObjects { attention: (attention, more), sees_all, nodes, pods, .. } = objects;
    Overview {
        heading,
        standby: String::new(),
        attention,
        more,
        sees_all,
        tiles,
        refused,
        nodes: nodes.filter(|_| pods.is_some()),
        plots,
        history: Vec::new(),
        has_controllers: listing.is_some(),
        busy,
        quiet,
    }
}

fn tile(name: &str, href: &str, value: String, tone: &'static str) -> Tile {
    Tile { link: Link::new(name, href), value, tone }
}

/// Returns a noun after a number: in the singular after 1.
fn noun(count: usize, singular: &str, plural: &str) -> String {
    if count == 1 { singular.to_owned() } else { plural.to_owned() }
}

fn ready_tile(name: &str, href: &str, ready: usize, total: usize) -> Tile {
    let tone = if ready < total {
        "bad"
    } else if total == 0 {
        "quiet"
    } else {
        "good"
    };
    tile(name, href, format!("{ready} / {total}"), tone)
}

fn tiles_of_objects(objects: &VisibleObjects<'_>) -> Vec<Tile> {
    let mut tiles = Vec::new();
    if let Some(nodes) = &objects.nodes {
        tiles.push(ready_tile("nodes Ready", "/objects?kind=nodes", nodes.ready, nodes.total));
    }
    if let Some(deployments) = objects.deployments {
        let ready = deployments.iter().filter(|deployment| {
            deployment.status.ready_replicas >= deployment.spec.replicas.unwrap_or(1)
        });
        let href = "/objects?kind=deployments.apps";
        tiles.push(ready_tile("Deployments ready", href, ready.count(), deployments.len()));
    }
    if let Some(pods) = objects.pods {
        tiles.extend(tiles_of_pods(pods));
    }
    if let Some((count, more)) = objects.warnings {
        let tone = if count > 0 { "warn" } else { "quiet" };
        let plus = if more { "+" } else { "" };
        let name = format!("{} in the last hour", noun(count, "warning", "warnings"));
        tiles.push(tile(&name, "/events?warnings=true", format!("{count}{plus}"), tone));
    }
    tiles
}

fn tiles_of_pods(pods: &[Arc<Pod>]) -> Vec<Tile> {
    let statuses: Vec<PodStatus> = pods.iter().map(|pod| PodStatus::of(pod)).collect();
    let count =
        |is: &dyn Fn(&PodStatus) -> bool| statuses.iter().filter(|status| is(status)).count();
    let page = |status: &str| format!("/objects?kind=pods&status={status}");
    let (not_ready, bad) =
        (count(&PodStatus::is_not_ready), count(&|status| status.tone() == "bad"));
    let tone = match (not_ready, bad) {
        (0, _) => "quiet",
        (_, 0) => "warn",
        _ => "bad",
    };
    let ready = count(&|status| status.tone() == "good");
    let mut tiles = vec![
        tile(
            &format!("{} ready", noun(ready, "pod", "pods")),
            "/objects?kind=pods",
            ready.to_string(),
            if ready > 0 { "good" } else { "quiet" },
        ),
        tile(
            &format!("{} not ready", noun(not_ready, "pod", "pods")),
            &page(NOT_READY),
            not_ready.to_string(),
            tone,
        ),
    ];
    for (word, tone) in [("Pending", "warn"), ("Completed", "quiet")] {
        let count = count(&|status| status.word == word);
        let tone = if count > 0 { tone } else { "quiet" };
        if count > 0 || word == "Pending" {
            let name = format!("{} {word}", noun(count, "pod", "pods"));
            tiles.push(tile(&name, &page(word), count.to_string(), tone));
        }
    }
    tiles
}

/// Returns the problems of controllers, if there are any. The plots show the lengths of their queues.
fn tiles_of_controllers(listing: &Listing) -> Vec<Tile> {
    let mut tiles = Vec::new();
    let failing: usize = listing.controllers.iter().map(|c| c.queue.backing_off).sum();
    if failing > 0 {
        let name = format!("{} in back-off", noun(failing, "key", "keys"));
        tiles.push(tile(&name, "", failing.to_string(), "bad"));
    }
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
    use evenkeel_nodes::NodeFaults;
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
        let objects = VisibleObjects {
            attention: (Vec::new(), 3),
            nodes: Some(heat_map(Vec::new(), &[], &NodeFaults::default(), listing.now)),
            pods: Some(&[]),
            warnings: Some((500, true)),
            ..VisibleObjects::default()
        };
        let page =
            overview("Cluster a".to_owned(), objects, Some(&listing), Vec::new(), Vec::new());
        let warnings = page.tiles.iter().find(|tile| tile.link.text == "warnings in the last hour");
        assert_eq!(warnings.map(|tile| &*tile.value), Some("500+"));
        let names =
            |rows: &[ControllerRow]| rows.iter().map(|r| r.link.text.clone()).collect::<Vec<_>>();
        assert_eq!(names(&page.busy), ["failing", "recent"]);
        assert_eq!(names(&page.quiet), ["quiet"]);
        let failing = page.tiles.iter().find(|tile| tile.link.text == "key in back-off");
        assert_eq!(failing.map(|tile| (&*tile.value, tile.tone)), Some(("1", "bad")));
        let html = page.render().expect("rendered");
        assert!(!html.contains("<script"), "{html}");
        assert!(html.contains("&#60;script&#62;alert(1)"), "{html}");
        let refused = vec!["User ann may not list nodes.".to_owned()];
        let page =
            overview("Cluster a".to_owned(), VisibleObjects::default(), None, Vec::new(), refused);
        let html = page.render().expect("rendered");
        assert!(html.contains("User ann may not list nodes."), "{html}");
        for part in ["attention", "tiles", "nodes", "plots", "history", "controllers"] {
            assert!(!html.contains(&format!("id=\"{part}\"")), "{part} in {html}");
        }
        // The shades of nodes would reveal the pods' requests.
        let nodes = Some(heat_map(Vec::new(), &[], &NodeFaults::default(), now));
        let objects = VisibleObjects { nodes, ..VisibleObjects::default() };
        let page = overview("Cluster a".to_owned(), objects, None, Vec::new(), Vec::new());
        let tiles: Vec<_> = page.tiles.iter().map(|tile| &*tile.link.text).collect();
        assert_eq!((tiles, page.nodes.is_none()), (vec!["nodes Ready"], true));
    }

    #[test]
    fn tiles_count_by_the_status_of_pods() {
        use serde_json::json;
        let pod = |phase: &str, waiting: &str| {
            let state = if waiting.is_empty() {
                json!({"running": {}})
            } else {
                json!({"waiting": {"reason": waiting}})
            };
            Arc::new(crate::view::decoded::<Pod>(&json!({
                "spec": {"containers": [{"name": "c"}]},
                "status": {"phase": phase, "containerStatuses": [{"name": "c", "ready": waiting.is_empty(), "state": state}]},
            })))
        };
        let pods = [
            pod("Running", ""),
            pod("Running", "CrashLoopBackOff"),
            pod("Pending", "ContainerCreating"),
            Arc::new(crate::view::decoded::<Pod>(
                &json!({"spec": {"containers": [{"name": "c"}]}, "status": {"phase": "Pending"}}),
            )),
        ];
        let map = heat_map(
            Vec::new(),
            &[],
            &NodeFaults::default(),
            Timestamp::from_second(0).expect("a time"),
        );
        let objects = VisibleObjects {
            nodes: Some(map),
            pods: Some(&pods),
            deployments: Some(&[]),
            ..VisibleObjects::default()
        };
        let tiles = tiles_of_objects(&objects);
        let shown: Vec<_> = tiles
            .iter()
            .map(|tile| (&*tile.link.text, &*tile.value, tile.tone, &*tile.link.href))
            .collect();
        let want = [
            ("nodes Ready", "0 / 0", "quiet", "/objects?kind=nodes"),
            ("Deployments ready", "0 / 0", "quiet", "/objects?kind=deployments.apps"),
            ("pod ready", "1", "good", "/objects?kind=pods"),
            ("pods not ready", "3", "bad", "/objects?kind=pods&status=not-ready"),
            ("pod Pending", "1", "warn", "/objects?kind=pods&status=Pending"),
        ];
        assert_eq!(shown, want);
    }
}
