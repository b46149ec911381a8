//! Pods that follow Stages instead of the built-in life cycle.

use evenkeel_api::{Text, views::Pod};
use evenkeel_runtime::{client::ApiError, plan::Key};
use std::{net::Ipv4Addr, time::Duration};

use super::{PodWorkers, State};
use crate::stages::{Governed, Played, Player, Subject};

/// A pod that follows Stages.
pub(super) struct StagedPod {
    uid: Text,
    /// Address of its own; `None` in the node's network.
    ip: Option<Ipv4Addr>,
}

impl PodWorkers {
    /// Returns what follows Stages if pods do.
    pub(super) fn player_of_pods(&self) -> Option<&Player> {
        self.player.as_deref().filter(|player| player.stages.govern(Governed::Pod))
    }

    /// Lets a pod of a node follow Stages. Returns the time until its next change by itself.
    pub(super) async fn play(
        &self,
        player: &Player,
        key: &Key,
        pod: &Pod,
        node: usize,
    ) -> Result<Option<Duration>, ApiError> {
        let node = &self.options.nodes[node];
        let pod_ip = self.lock().stage(key, pod).unwrap_or(node.ip);
        let subject = Subject {
            kind: Governed::Pod,
            key,
            uid: &pod.meta.uid,
            version: &pod.meta.resource_version,
            node,
            pod_ip: Some(pod_ip),
        };
        match player.play(&subject).await? {
            Played::Next(wait) => Ok(wait),
            Played::Gone => Ok(None),
        }
    }
}

impl State {
    /// Returns the own address of a pod that follows Stages from now on; `None` if it has none.
    fn stage(&mut self, key: &Key, pod: &Pod) -> Option<Ipv4Addr> {
        if let Some(staged) = self.staged.get(key).filter(|staged| *staged.uid == *pod.meta.uid) {
            return staged.ip;
        }
        self.unstage(key, None);
        let known = self.memories.remove(key);
        if let Some(known) = known.as_ref().filter(|known| *known.uid != *pod.meta.uid) {
            self.release_address(known);
        }
        let known = known.filter(|known| *known.uid == *pod.meta.uid && !known.host_network);
        let ip = if pod.spec.host_network {
            None
        } else if let Ok(ip) = pod.status.pod_ip.parse() {
            self.addresses.mark_in_use(ip);
            Some(ip)
        } else {
            Some(known.map_or_else(|| self.addresses.allocate(), |known| known.memory.ip))
        };
        self.staged.insert(key.clone(), StagedPod { uid: pod.meta.uid.clone(), ip });
        ip
    }

    /// Forgets that a pod follows Stages, and releases its address unless `kept` has it in its status.
    pub(super) fn unstage(&mut self, key: &Key, kept: Option<&Pod>) {
        if self.staged.is_empty() {
            return;
        }
        let Some(StagedPod { uid, ip: Some(ip) }) = self.staged.remove(key) else { return };
        let keeps = |pod: &Pod| *pod.meta.uid == *uid && *pod.status.pod_ip == ip.to_string();
        if !kept.is_some_and(keeps) {
            self.addresses.release(ip);
        }
    }
}
