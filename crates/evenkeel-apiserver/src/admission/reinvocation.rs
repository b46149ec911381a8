//! Reinvocation: the second pass of mutating admission calls policies and webhooks again if their `reinvocationPolicy`
//! is `IfNeeded` and the object changed after their first call.

use std::collections::BTreeSet;

use serde_json::Value;

/// State of one plug-in (for policies or for webhooks) across its two passes over an object. A key `K` identifies a
/// policy with its binding, or a webhook.
///
/// Upstream: `policyReinvokeContext` and `webhookReinvokeContext`.
#[derive(Debug)]
pub(super) struct Reinvocation<K> {
    /// Number of passes that have begun.
    pass: u8,
    /// Keys with `reinvocationPolicy: IfNeeded` that were called, and after whose calls the object has not changed so
    /// far.
    invoked: BTreeSet<K>,
    /// Policies and webhooks that the second pass calls, because the object changed after their first call.
    reinvoked: BTreeSet<K>,
    /// Object at the end of the first pass, if `invoked` was not empty then.
    output: Option<Value>,
}

impl<K> Default for Reinvocation<K> {
    fn default() -> Self {
        Self { pass: 0, invoked: BTreeSet::new(), reinvoked: BTreeSet::new(), output: None }
    }
}

impl<K: Ord> Reinvocation<K> {
    /// Begins a pass. If other plug-ins changed the object since the end of the first pass, all invoked keys are called
    /// again.
    ///
    /// Upstream: `IsOutputChangedSinceLastWebhookInvocation`.
    pub(super) fn begin(&mut self, object: &Value) {
        self.pass += 1;
        if self.output.take().is_some_and(|output| output != *object) {
            self.reinvoked.append(&mut self.invoked);
        }
    }

    /// Returns the index of the current pass: 0 or 1.
    pub(super) fn round(&self) -> u8 {
        self.pass.saturating_sub(1)
    }

    /// Returns whether the current pass calls a policy or a webhook. The first pass calls all of them, the second pass
    /// only those to reinvoke.
    pub(super) fn calls(&self, key: &K) -> bool {
        self.pass == 1 || self.reinvoked.contains(key)
    }

    /// Records a call. If the call changed the object, the second pass will reinvoke the keys that were called before
    /// it. `reinvoke_if_needed` is whether the key has `reinvocationPolicy: IfNeeded`.
    pub(super) fn record(&mut self, key: K, reinvoke_if_needed: bool, changed: bool) {
        if changed {
            self.reinvoked.append(&mut self.invoked);
        }
        if reinvoke_if_needed {
            self.invoked.insert(key);
        }
    }

    /// Ends a pass. Keeps the object to notice changes before the second pass.
    pub(super) fn end(&mut self, object: &Value) {
        self.output = (self.pass == 1 && !self.invoked.is_empty()).then(|| object.clone());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Runs two passes of webhooks, each given as `(if_needed, changes)`. Returns the indexes of the webhooks that the
    /// second pass calls.
    fn second_pass(webhooks: &[(bool, bool)], changed_between: bool) -> Vec<usize> {
        let mut passes = Reinvocation::default();
        passes.begin(&json!({}));
        for (key, (if_needed, changes)) in webhooks.iter().enumerate() {
            assert!(passes.calls(&key));
            passes.record(key, *if_needed, *changes);
        }
        passes.end(&json!({"a": 1}));
        passes.begin(&json!({"a": if changed_between { 2 } else { 1 }}));
        (0..webhooks.len()).filter(|key| passes.calls(key)).collect()
    }

    #[test]
    fn only_those_before_a_change_that_want_it_are_called_again() {
        type Row<'a> = (&'a [(bool, bool)], bool, &'a [usize]);
        let table: [Row<'_>; 8] = [
            (&[], true, &[]),
            (&[(true, false), (false, false)], false, &[]),
            // Its own change is not a later one.
            (&[(true, true)], false, &[]),
            (&[(true, true), (false, true)], false, &[0]),
            (&[(true, false), (false, false), (true, true)], false, &[0]),
            (&[(false, false), (false, true)], false, &[]),
            // A built-in plug-in changed the object in between.
            (&[(true, true), (false, false), (true, false)], true, &[0, 2]),
            (&[(false, true)], true, &[]),
        ];
        for (webhooks, changed_between, expected) in table {
            assert_eq!(second_pass(webhooks, changed_between), expected, "{webhooks:?}");
        }
    }
}
