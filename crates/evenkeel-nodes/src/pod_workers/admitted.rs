//! Pods that count when a kubelet admits another pod: the pods that it has admitted or is admitting.

use evenkeel_api::views::Pod;
use evenkeel_runtime::plan::Key;
use std::sync::Arc;

use super::{State, key};

impl State {
    /// Begins the admission of a pod. Returns the node's pods that were admitted before it. From now on, the pod itself
    /// counts, so that only one of two pods that arrive together takes the last resources.
    ///
    /// Upstream: `HandlePodAdditions`, which admits one pod after the other.
    pub(super) fn begin_admission(
        &mut self,
        admitted: &Key,
        pod: &Pod,
        mut pods_on_node: Vec<Arc<Pod>>,
    ) -> Vec<Arc<Pod>> {
        pods_on_node.retain(|other| other.meta.uid != pod.meta.uid && self.is_admitted(other));
        self.admissions.insert(admitted.clone(), pod.meta.uid.clone());
        pods_on_node
    }

    /// Ends the admission of a pod: it is rejected, or its memory is stored.
    pub(super) fn end_admission(&mut self, key: &Key) {
        self.admissions.remove(key);
    }

    /// Returns whether a pod was admitted, or is being admitted. The first status of an admitted pod has its start
    /// time. The cache may lag behind, and show neither this status nor that of a rejected pod. Therefore, this also
    /// checks the kubelet's own records.
    fn is_admitted(&self, pod: &Pod) -> bool {
        if pod.status.start_time.is_some() {
            return true;
        }
        let key = key(pod);
        let is_remembered = self
            .synced_pods
            .get(&key)
            .is_some_and(|known| *known.uid == *pod.meta.uid && !known.memory.rejected);
        is_remembered || self.admissions.get(&key).is_some_and(|uid| *uid == pod.meta.uid)
    }
}
