//! Selectors of scale targets. Two autoscalers that select the same pods would scale against each other, so their
//! selectors are ambiguous.
//! Upstream: `selectors.BiMultimap`.

use super::plan::{Pods, SelectorError};
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
        let from_namespace = self.0.range(Key::new(namespace, "")..);
        let in_namespace = from_namespace.take_while(|(key, _)| *key.namespace == *namespace);
        Self(in_namespace.map(|(key, selector)| (key.clone(), selector.clone())).collect())
    }

    /// Returns the first two autoscalers that select any of `pods`, or `None` if fewer do.
    fn first_two(self, pods: &Pods) -> Option<[Key; 2]> {
        let mut matching = self
            .0
            .into_iter()
            .filter(|(_, selector)| pods.iter().any(|pod| selector.matches(&pod.meta.labels)))
            .map(|(key, _)| key);
        Some([matching.next()?, matching.next()?])
    }
}

/// Parses the selector of a scale.
///
/// # Errors
/// Fails if the selector is missing or invalid. Upstream: `validateAndParseSelector`.
pub(super) fn parse(text: &str) -> Result<Selector, SelectorError> {
    if text.is_empty() {
        return Err(SelectorError {
            event_reason: "SelectorRequired",
            condition_reason: "InvalidSelector",
            condition_message: "the HPA target's scale is missing a selector".to_owned(),
            error: "selector is required".to_owned(),
        });
    }
    Selector::parse(text).map_err(|error| {
        let error = format!(
            "couldn't convert selector into a corresponding internal selector object: {error}"
        );
        SelectorError {
            event_reason: "InvalidSelector",
            condition_reason: "InvalidSelector",
            condition_message: error.clone(),
            error,
        }
    })
}

/// Checks that no other autoscaler of the namespace selects any of `pods`. `key` is the autoscaler, with its selector
/// as text and parsed.
///
/// # Errors
/// Fails if the selector is ambiguous. Upstream: `validateAndParseSelector`.
pub(super) fn check_unambiguous(
    selectors: &Selectors,
    key: &Key,
    selector_text: &str,
    selector: &Selector,
    pods: &Pods,
) -> Result<(), SelectorError> {
    let mut selectors = selectors.of_namespace(&key.namespace);
    selectors.record(key, selector);
    let Some([first, second]) = selectors.first_two(pods) else { return Ok(()) };
    let error = format!(
        "pods by selector {selector_text} are controlled by more than one HPA (e.g. [{first} {second}])"
    );
    Err(SelectorError {
        event_reason: "AmbiguousSelector",
        condition_reason: "AmbiguousSelector",
        condition_message: error.clone(),
        error,
    })
}
