//! Pods that follow Stages instead of the built-in life cycle.

use evenkeel_api::{Text, views::Pod};
use evenkeel_runtime::{client::ApiError, plan::Key};
use std::{net::Ipv4Addr, time::Duration};

use super::{PodWorkers, State};
use crate::stages::{PlayResult, ResourceRef, StageController, StagedObject};

/// A pod that follows Stages.
pub(super) struct StagedPod {
    uid: Text,
    /// The pod's own IP. `None` with `hostNetwork`.
    ip: Option<Ipv4Addr>,
}

impl PodWorkers {
    /// Returns the stage controller if the cluster has Stages for pods.
    pub(super) fn pod_stage_controller(&self) -> Option<&StageController> {
        self.stage_controller
            .as_deref()
            .filter(|controller| controller.stages.exist_for(ResourceRef::Pod))
    }

    /// Runs the Stage that is due for the pod. Returns the delay until its next Stage; `None` if none is pending or the
    /// pod does not exist.
    ///
    /// # Errors
    /// Fails if a request failed that may succeed later.
    pub(super) async fn play_stage(
        &self,
        controller: &StageController,
        key: &Key,
        pod: &Pod,
        node_index: usize,
    ) -> Result<Option<Duration>, ApiError> {
        let node = &self.options.nodes[node_index];
        let pod_ip = self.lock().follow_stages(key, pod).unwrap_or(node.ip);
        let staged = StagedObject {
            resource: ResourceRef::Pod,
            key,
            uid: &pod.meta.uid,
            version: &pod.meta.resource_version,
            node,
            pod_ip: Some(pod_ip),
        };
        match controller.play_stage(&staged).await? {
            PlayResult::NextIn(delay) => Ok(delay),
            PlayResult::Gone => Ok(None),
        }
    }
}

impl State {
    /// Records that the pod follows Stages, and returns the pod's own IP; `None` with `hostNetwork`. A pod that followed
    /// the built-in life cycle keeps its IP.
    fn follow_stages(&mut self, key: &Key, pod: &Pod) -> Option<Ipv4Addr> {
        let uid = &pod.meta.uid;
        if let Some(staged) = self.staged_pods.get(key).filter(|staged| staged.uid == *uid) {
            return staged.ip;
        }
        self.stop_following_stages(key, None);
        // The pod leaves the built-in life cycle. A replaced pod of the same name releases its IP.
        let built_in_state = match self.synced_pods.remove(key) {
            Some(replaced) if replaced.uid != *uid => {
                self.release_address(&replaced);
                None
            }
            synced => synced.filter(|synced| !synced.host_network),
        };
        let ip = if pod.spec.host_network {
            None
        } else if let Ok(ip) = pod.status.pod_ip.parse() {
            self.addresses.mark_in_use(ip);
            Some(ip)
        } else {
            let ip = built_in_state.map(|synced| synced.memory.ip);
            Some(ip.unwrap_or_else(|| self.addresses.allocate()))
        };
        self.staged_pods.insert(key.clone(), StagedPod { uid: uid.clone(), ip });
        ip
    }

    /// Records that the pod no longer follows Stages. Releases its IP, unless the status of `kept`, the pod that continues
    /// with the built-in life cycle, has this IP.
    pub(super) fn stop_following_stages(&mut self, key: &Key, kept: Option<&Pod>) {
        if self.staged_pods.is_empty() {
            return;
        }
        let Some(StagedPod { uid, ip: Some(ip) }) = self.staged_pods.remove(key) else { return };
        let has_ip = |pod: &Pod| *pod.meta.uid == *uid && *pod.status.pod_ip == ip.to_string();
        if !kept.is_some_and(has_ip) {
            self.addresses.release(ip);
        }
    }
}
