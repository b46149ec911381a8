//! A controller: its queue, last passes (reconciles) and failures, and caches.

use super::{ago::Ago, shorten};
use askama::Template;
use evenkeel_api::time::Timestamp;
use evenkeel_runtime::introspect::{ControllerReport, Fact, KeyState, Pass};

/// Maximum number of listed passes.
const MAX_PASSES: usize = 50;
/// Maximum length of a message.
const MAX_MESSAGE: usize = 500;

/// A key of the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyRow {
    /// The key, `namespace/name`.
    pub(crate) key: String,
    /// State of the key in the queue.
    pub(crate) state: String,
    /// Number of consecutive failures.
    pub(crate) failures: u32,
}

/// A pass, or a failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PassRow {
    /// The key, `namespace/name`.
    pub(crate) key: String,
    /// End of the pass.
    pub(crate) ago: Ago,
    /// Writes of the pass.
    pub(crate) did: Vec<String>,
    /// Result, or the error.
    pub(crate) ended: String,
    /// Whether it failed.
    pub(crate) failed: bool,
}

/// A cache that the controller reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CacheRow {
    /// Resource, with selectors.
    pub(crate) resource: String,
    /// Number of objects.
    pub(crate) objects: usize,
    /// `synced`, or why it is not.
    pub(crate) state: String,
}

/// Page of a controller.
#[derive(Debug, Clone, Template)]
#[template(path = "controller.html")]
pub(crate) struct ControllerPage {
    /// Name of the controller.
    pub(crate) name: String,
    /// Kind that the controller reconciles. Empty for none.
    pub(crate) kind: String,
    /// Number of workers.
    pub(crate) workers: usize,
    /// Names and numbers of the queue.
    pub(crate) counts: Vec<(&'static str, usize)>,
    /// Other facts that the controller reports.
    pub(crate) facts: Vec<Fact>,
    /// First keys of each state.
    pub(crate) keys: Vec<KeyRow>,
    /// Last passes with writes or a failure, newest first.
    pub(crate) passes: Vec<PassRow>,
    /// Last failures, newest first.
    pub(crate) errors: Vec<PassRow>,
    /// Caches that the controller reads.
    pub(crate) caches: Vec<CacheRow>,
}

/// Returns the page of a controller.
pub(crate) fn controller(now: Timestamp, report: ControllerReport) -> ControllerPage {
    let queue = &report.queue;
    let counts = vec![
        ("ready", queue.ready),
        ("in flight", queue.in_flight),
        ("delayed", queue.delayed),
        ("back-off", queue.backing_off),
        ("waiting for caches", queue.waiting_for_cache),
    ];
    let errors = report.errors.iter().map(|failed| PassRow {
        key: failed.key.clone(),
        ago: Ago::new(now, failed.at),
        did: Vec::new(),
        ended: shorten(&failed.error, MAX_MESSAGE),
        failed: true,
    });
    let caches = report.caches.iter().map(|cache| {
        let selectors = [&*cache.labels, &cache.fields].join(" ");
        CacheRow {
            resource: format!("{} {selectors}", cache.resource).trim().to_owned(),
            objects: cache.objects,
            state: match &cache.trouble {
                Some(trouble) => shorten(trouble, MAX_MESSAGE),
                None if cache.synced => "synced".to_owned(),
                None => "not synced".to_owned(),
            },
        }
    });
    ControllerPage {
        workers: report.workers,
        counts,
        keys: queue.keys.iter().map(|key| key_row(now, key)).collect(),
        passes: report.passes.iter().take(MAX_PASSES).map(|pass| pass_row(now, pass)).collect(),
        errors: errors.collect(),
        caches: caches.collect(),
        name: report.name,
        kind: report.kind,
        facts: report.facts,
    }
}

fn key_row(now: Timestamp, key: &KeyState) -> KeyRow {
    let since = |what: &str, time: Timestamp| format!("{what} since {}", Ago::new(now, time).text);
    let state = match (key.in_flight_since, key.ready_since, key.delayed_until) {
        (Some(time), _, _) => since("in flight", time),
        (_, Some(time), _) => since("ready", time),
        (_, _, Some(time)) => format!("due {}", Ago::new(now, time).text),
        _ => "not queued".to_owned(),
    };
    KeyRow { key: key.key.clone(), state, failures: key.failures }
}

/// Returns a pass in the form of a table.
pub(super) fn pass_row(now: Timestamp, pass: &Pass) -> PassRow {
    PassRow {
        key: pass.key.clone(),
        ago: Ago::new(now, pass.at),
        did: pass.did.clone(),
        ended: shorten(pass.error.as_deref().unwrap_or(&pass.ended), MAX_MESSAGE),
        failed: pass.error.is_some(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_runtime::introspect::{Failed, QueueState};

    #[test]
    fn the_page_has_queue_passes_and_failures() {
        let now = Timestamp::from_second(10_000).expect("a time");
        let at = |second| Timestamp::from_second(second).expect("a time");
        let key = KeyState {
            key: "a/<b>".to_owned(),
            delayed_until: Some(at(10_300)),
            failures: 4,
            ..KeyState::default()
        };
        let report = ControllerReport {
            name: "deployment-controller".to_owned(),
            queue: QueueState { delayed: 1, keys: vec![key], ..QueueState::default() },
            errors: vec![Failed {
                key: "a/b".to_owned(),
                at: at(9_400),
                error: "refused".to_owned(),
            }],
            ..ControllerReport::default()
        };
        let page = controller(now, report);
        assert_eq!(page.keys[0].state, "due in 5m");
        assert_eq!((&*page.errors[0].ended, &*page.errors[0].ago.text), ("refused", "10m"));
        assert!(page.counts.contains(&("delayed", 1)));
        let html = page.render().expect("rendered");
        assert!(html.contains("a/&#60;b&#62;") && !html.contains("<b>"), "{html}");
    }
}
