//! Selectors of scale targets. They reveal autoscalers that select the same pods and would scale against each other.
//! Upstream: `selectors.BiMultimap`.

use super::plan::{Measured, Pods};
use evenkeel_api::selector::Selector;
use evenkeel_runtime::plan::Key;
use std::collections::BTreeMap;

/// Selectors of all autoscalers, as last observed.
#[derive(Debug, Clone, Default)]
pub(super) struct Selectors(BTreeMap<Key, Selector>);

impl Selectors {
    /// Forgets a deleted autoscaler.
    pub(super) fn forget(&mut self, key: &Key) {
        self.0.remove(key);
    }

    /// Records the selector of an autoscaler.
    pub(super) fn record(&mut self, key: &Key, selector: &Selector) {
        self.0.insert(key.clone(), selector.clone());
    }

    /// Returns the selectors of the autoscalers in a namespace.
    pub(super) fn of_namespace(&self, namespace: &str) -> Self {
        let all = self.0.range(Key::new(namespace, "")..);
        let in_namespace = all.take_while(|(key, _)| *key.namespace == *namespace);
        Self(in_namespace.map(|(key, selector)| (key.clone(), selector.clone())).collect())
    }

    /// Returns the first two autoscalers that select any of `pods`; `None` if fewer do.
    fn first_two(self, pods: &Pods) -> Option<[Key; 2]> {
        let mut matching = self
            .0
            .into_iter()
            .filter(|(_, selector)| pods.iter().any(|pod| selector.matches(&pod.meta.labels)))
            .map(|(other, _)| other);
        Some([matching.next()?, matching.next()?])
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

/// Checks that no other autoscaler of `selectors` selects the pods.
///
/// # Errors
/// The condition for an ambiguous selector. Upstream: `validateAndParseSelector`.
pub(super) fn check_unambiguous(
    selectors: &Selectors,
    key: &Key,
    text: &str,
    selector: &Selector,
    pods: &Pods,
) -> Result<(), Measured> {
    let mut selectors = selectors.of_namespace(&key.namespace);
    selectors.record(key, selector);
    let Some([one, other]) = selectors.first_two(pods) else { return Ok(()) };
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
