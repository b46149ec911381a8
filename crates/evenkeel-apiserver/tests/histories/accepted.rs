//! Accepted differences, each with its reason.

use crate::generate::Step;
use crate::kinds::Kind;

/// A class of differences.
struct Accepted {
    /// Part of a kind's name.
    kind: &'static str,
    /// Beginning of the step in one line.
    step: &'static str,
    /// Beginning of the place of the first difference.
    place: &'static str,
    reason: &'static str,
}

const NULL_OF_MAP: &str =
    "upstream leaves null of a map all of whose fields an apply removes, and refuses that";

/// Upstream: `Store.Delete` returns the object that no update has filled if the deletion removes the last finalizer.
const EMPTY_DRY_RUN: &str = "upstream answers the dry run of some deletions with an empty object";

const ACCEPTED: &[Accepted] = &[
    Accepted {
        kind: "PersistentVolumeClaim",
        step: "",
        place: "/body/metadata/resourceVersion",
        reason: "upstream writes a new claim again at its first update, even if that changes nothing",
    },
    Accepted {
        kind: "Service",
        step: "apply status",
        place: "/code",
        reason: "upstream takes the status of no Service for a new Service, which is invalid",
    },
    Accepted {
        kind: "Service",
        step: "update status",
        place: "/code",
        reason: "upstream takes the status of no Service for a new Service, which is invalid",
    },
    Accepted { kind: "Thing", step: "apply ", place: "/code", reason: NULL_OF_MAP },
    Accepted { kind: "Thing", step: "apply ", place: "/body/details/causes", reason: NULL_OF_MAP },
];

/// Returns why a difference is accepted, if it is.
pub(crate) fn reason(kind: &Kind, step: &Step, place: &str) -> Option<&'static str> {
    let shown = step.shown();
    let is_body =
        ["/body/apiVersion", "/body/details"].iter().any(|start| place.starts_with(start));
    if is_body && shown.starts_with("delete ") && shown.contains(r#""dryRun""#) {
        return Some(EMPTY_DRY_RUN);
    }
    ACCEPTED
        .iter()
        .find(|known| {
            kind.kind.contains(known.kind)
                && shown.starts_with(known.step)
                && place.starts_with(known.place)
        })
        .map(|known| known.reason)
}
