//! Selectors of scale targets, to detect autoscalers with common pods, which would scale against each other. Upstream:
//! `selectors.BiMultimap`.

use super::plan::{Measured, Pods};
use evenkeel_api::selector::Selector;
use evenkeel_runtime::plan::Key;
use std::collections::BTreeMap;

/// Selectors of all autoscalers, as last observed.
#[derive(Debug, Default)]
pub(super) struct Selectors(BTreeMap<Key, Selector>);

impl Selectors {
    /// Forgets a deleted autoscaler.
    pub(super) fn forget(&mut self, key: &Key) {
        self.0.remove(key);
    }

    /// Records the selector, and returns two autoscalers that select one of `pods`, if there are two.
    fn others(&mut self, key: &Key, selector: &Selector, pods: &Pods) -> Option<[Key; 2]> {
        let all = &mut self.0;
        all.insert(key.clone(), selector.clone());
        let start = Key::new(&key.namespace, "");
        let near = all.range(start..).take_while(|(other, _)| other.namespace == key.namespace);
        let mut meant = near
            .filter(|(_, selector)| pods.iter().any(|pod| selector.matches(&pod.meta.labels)))
            .map(|(other, _)| other.clone());
        Some([meant.next()?, meant.next()?])
    }
}

/// Parses the selector of a scale.
///
/// # Errors
/// The condition for a missing or invalid selector. Upstream: `validateAndParseSelector`.
pub(super) fn parse(text: &str) -> Result<Selector, Measured> {
    if text.is_empty() {
        return Err(Measured::Unselected {
            event: "SelectorRequired",
            reason: "InvalidSelector",
            message: "the HPA target's scale is missing a selector".to_owned(),
            error: "selector is required".to_owned(),
        });
    }
    Selector::parse(text).map_err(|error| {
        let error = format!(
            "couldn't convert selector into a corresponding internal selector object: {error}"
        );
        Measured::Unselected {
            event: "InvalidSelector",
            reason: "InvalidSelector",
            message: error.clone(),
            error,
        }
    })
}

/// Checks that no other autoscaler selects the pods.
///
/// # Errors
/// The condition for an ambiguous selector. Upstream: `validateAndParseSelector`.
pub(super) fn alone(
    selectors: &mut Selectors,
    key: &Key,
    text: &str,
    selector: &Selector,
    pods: &Pods,
) -> Result<(), Measured> {
    let Some([one, other]) = selectors.others(key, selector, pods) else { return Ok(()) };
    let error = format!(
        "pods by selector {text} are controlled by more than one HPA (e.g. [{one} {other}])"
    );
    Err(Measured::Unselected {
        event: "AmbiguousSelector",
        reason: "AmbiguousSelector",
        message: error.clone(),
        error,
    })
}
