//! Reports as pages.

use evenkeel_whatif::{
    Amounts, EventKind, NodeRecord, Page, PageVariant, PodRecord, RecordedEvent, Recording, Write,
    charts, compare, report,
};
use std::{collections::BTreeMap, time::Duration};

/// Name that would be markup, a script or an attribute if it were not escaped.
const HOSTILE: &str = "</script><script>alert(1)</script>\"'><img src=x onerror=alert(1)>&amp;";

fn event(seconds: u64, kind: &'static str, object: &str, what: EventKind) -> RecordedEvent {
    RecordedEvent { after: Duration::from_secs(seconds), kind, object: object.to_owned(), what }
}

/// Returns a recording with every kind of event in a report, and with this string in every string field.
fn recording(text: &str) -> Recording {
    let workload = format!("Deployment {text}/web");
    let pod = PodRecord {
        workload: workload.clone(),
        node: text.to_owned(),
        requests: Amounts { cpu_millis: 900, memory: 1 << 30 },
        ready: true,
        ..PodRecord::default()
    };
    let new = PodRecord { node: String::new(), ready: false, ..pod.clone() };
    let node =
        NodeRecord { allocatable: Amounts { cpu_millis: 1000, memory: 1 << 32 }, ready: true };
    let text = || text.to_owned();
    let refused = EventKind::Refused { pod: text() };
    Recording {
        start: "2026-05-01T00:00:00Z".parse().expect("a time"),
        duration: Duration::from_hours(1),
        settling: Duration::ZERO,
        nodes: [(text(), node)].into(),
        pods: [(text(), pod)].into(),
        budgets: [(text(), 1)].into(),
        happened: vec![
            event(0, "Change", &text(), EventKind::Began),
            event(1, "PodDisruptionBudget", &text(), EventKind::Allows { disruptions: 0 }),
            event(1, "PodDisruptionBudget", &text(), refused),
            event(60, "Pod", &text(), EventKind::Evicted { reason: text() }),
            event(61, "Pod", &text(), EventKind::NotReady),
            event(62, "Pod", &text(), EventKind::Removed),
            event(62, "Pod", "new", EventKind::Created { pod: new }),
            event(62, "Pod", "new", EventKind::Unschedulable { message: text() }),
            event(70, "Change", &text(), EventKind::Failed { message: text() }),
        ],
        unrecorded: 0,
        writes: BTreeMap::from([(
            Write { component: text(), verb: "create", resource: text() },
            3,
        )]),
        remarks: vec![text()],
    }
}

fn page(names: &[&str], recordings: &[Recording]) -> String {
    let made: Vec<_> =
        recordings.iter().map(|recording| (report(recording), charts(recording))).collect();
    let variants: Vec<PageVariant<'_>> = names
        .iter()
        .zip(&made)
        .map(|(name, (report, charts))| PageVariant { name, report, charts })
        .collect();
    let comparison = match &*made {
        [(a, _), (b, _)] => Some(compare([a, b])),
        _ => None,
    };
    let page = Page { variants: &variants, comparison: comparison.as_ref() };
    page.html().expect("a page")
}

/// Returns the tags of a page, and checks that they are closed in their order.
fn tags(html: &str) -> Vec<&str> {
    const VOID: [&str; 3] = ["!doctype", "meta", "input"];
    let (mut open, mut tags) = (Vec::new(), Vec::new());
    let mut rest = html;
    while let Some((_, after)) = rest.split_once('<') {
        let (tag, after) = after.split_once('>').expect("the end of a tag");
        let name = tag.split([' ', '/']).find(|part| !part.is_empty()).expect("a name");
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "{tag}");
        } else if !tag.ends_with('/') && !VOID.contains(&name) {
            open.push(name);
        }
        tags.push(tag);
        // Style and script hold no markup.
        rest = match name {
            "style" | "script" if !tag.starts_with('/') => {
                after.find(&format!("</{name}>")).map_or("", |end| &after[end..])
            }
            _ => after,
        };
    }
    assert_eq!(open, [""; 0]);
    tags
}

#[test]
fn hostile_names_stay_text() {
    let recordings = [recording(HOSTILE), recording("web")];
    let html = page(&[HOSTILE, "b"], &recordings);
    let tags = tags(&html);
    let scripts = tags.iter().filter(|tag| tag.starts_with("script")).count();
    assert_eq!(scripts, 1, "the page has one script");
    assert!(!tags.iter().any(|tag| tag.starts_with("img")), "{tags:?}");
    // Each place in the report has the name, each time escaped.
    assert!(html.matches("onerror").count() > 25, "{}", html.matches("onerror").count());
    assert!(!html.contains("<img") && !html.contains(HOSTILE));
    for tag in tags {
        // Content in quotes is an attribute's value; outside of it, there is no event handler.
        let outside: String = tag.split('"').step_by(2).collect();
        assert!(!outside.contains(" on"), "{tag}");
        assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
    }
}

#[test]
fn a_page_needs_nothing_else() {
    let html = page(&["default"], &[recording("web")]);
    for outside in ["http:", "https:", "src=", "url(", "@import", "<link", "<iframe"] {
        assert!(!html.contains(outside), "{outside}");
    }
    assert!(html.contains("default-src 'none'"));
}

#[test]
fn the_policy_allows_the_pages_script() {
    let html = page(&["default"], &[recording("web")]);
    let (_, script) = html.split_once("<script>").expect("a script");
    let (script, _) = script.split_once("</script>").expect("its end");
    let digest = ring::digest::digest(&ring::digest::SHA256, script.as_bytes());
    use base64::Engine as _;
    let hash = base64::engine::general_purpose::STANDARD.encode(digest);
    assert!(html.contains(&format!("script-src 'sha256-{hash}'")), "the policy needs {hash}");
}

#[test]
fn headings_tables_and_plots_have_texts() {
    let html = page(&["a.yaml", "b.yaml"], &[recording("web"), recording("web")]);
    let tags = tags(&html);
    let mut level = 0;
    for tag in &tags {
        let Some(next) = tag.strip_prefix('h').and_then(|rest| rest.get(..1)?.parse::<u32>().ok())
        else {
            continue;
        };
        assert!(next <= level + 1, "{tag} follows a heading of level {level}");
        level = next;
    }
    let count = |start: &str| tags.iter().filter(|tag| tag.starts_with(start)).count();
    assert_eq!(count("table"), count("caption"));
    assert_eq!(count("svg"), count("figcaption"));
    for svg in tags.iter().filter(|tag| tag.starts_with("svg")) {
        assert!(svg.contains("role=\"img\"") && svg.contains("aria-label=\""), "{svg}");
    }
    let ids: Vec<&str> =
        tags.iter().filter_map(|tag| tag.split_once(" id=\"")?.1.split('"').next()).collect();
    let unique: std::collections::BTreeSet<_> = ids.iter().collect();
    assert_eq!(ids.len(), unique.len(), "{ids:?}");
    assert!(html.contains("a.yaml and b.yaml do not differ."));
}

#[test]
fn a_page_says_what_the_text_says() {
    let html = page(&["default"], &[recording("web")]);
    for expected in [
        "<title>What if: web · Evenkeel</title>",
        "The cluster settles 1m10s after the change (1h0m0s simulated).",
        "1 ready before, 0 at least, 0 at the end",
        "1 pod evicted between 1m0s and 1m0s after the change",
        "1 budget allowed no disruption for some time; web the longest, for 59m59s",
        "1 node; the fullest had 90 percent of its CPU requested",
    ] {
        assert!(html.contains(expected), "{expected}");
    }
    let nothing = Recording { happened: Vec::new(), ..recording("web") };
    let html = page(&["default"], &[nothing]);
    assert!(html.contains("<title>What if nothing is changed? · Evenkeel</title>"));
    assert!(html.contains("no pod is evicted, and no budget is at its limit"));
}
