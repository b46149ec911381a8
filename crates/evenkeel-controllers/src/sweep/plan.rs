//! Deletes the expired objects of a kind. The controller that uses this plan decides which objects are expired.

use crate::wire;
use evenkeel_api::{View, time::Timestamp};
use evenkeel_runtime::plan::{Delete, Plan};
use std::sync::Arc;

/// Function that returns why an object is expired at a time, for the log; `None` if it is not expired.
pub(crate) type ExpirationReason<V> = fn(&V, Timestamp) -> Option<&'static str>;

/// Deletes the objects that are expired at `now`. The next period repeats a failed deletion.
pub(super) fn plan<V: View>(
    objects: &[Arc<V>],
    expiration_reason: ExpirationReason<V>,
    now: Timestamp,
) -> Plan {
    let is_expired = |object: &&Arc<V>| expiration_reason(object, now).is_some();
    let delete = |object: &Arc<V>| Delete::new(wire::target(&**object)).into();
    Plan::of(objects.iter().filter(is_expired).map(delete).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{T0, at, pod};
    use evenkeel_api::views::Pod;

    #[test]
    fn only_expired_objects_are_deleted() {
        let mut old = pod("old", None);
        old.meta.creation = Some(at(-60));
        let objects = [Arc::new(pod("new", None)), Arc::new(old)];
        let expiration_reason = |pod: &Pod, now| (pod.meta.creation < Some(now)).then_some("old");
        let plan = plan(&objects, expiration_reason, T0);
        assert_eq!(plan, Plan::one(Delete::new(wire::target(&*objects[1]))));
    }
}
