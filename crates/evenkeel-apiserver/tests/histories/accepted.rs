//! Differences that stay, each with its reason.

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
    Accepted {
        kind: "Thing",
        step: "delete ",
        place: "/body/apiVersion",
        reason: "upstream answers the dry run of some deletions with an empty object",
    },
    Accepted {
        kind: "ConfigMap",
        step: "delete ",
        place: "/body/details",
        reason: "upstream answers the dry run of some deletions with an empty object",
    },
    Accepted {
        kind: "Secret",
        step: "delete ",
        place: "/body/details",
        reason: "upstream answers the dry run of some deletions with an empty object",
    },
    Accepted {
        kind: "Thing",
        step: "apply ",
        place: "/code",
        reason: "upstream leaves null of a map all of whose fields an apply removes, and refuses that",
    },
];

/// Returns why a difference is accepted, if it is.
pub(crate) fn reason(kind: &Kind, step: &Step, place: &str) -> Option<&'static str> {
    let shown = step.shown();
    ACCEPTED
        .iter()
        .find(|known| {
            kind.kind.contains(known.kind)
                && shown.starts_with(known.step)
                && place.starts_with(known.place)
        })
        .map(|known| known.reason)
}
