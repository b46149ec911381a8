//! Options of the volume binder.

use crate::options::Flags;
use std::{sync::Arc, time::Duration};

/// Options of the persistent volume binder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// How often claims and volumes that wait for something are looked at again; `--pvclaimbinder-sync-period`. Upstream
    /// looks at all of them so often; here those that are at rest are looked at when something changes that concerns them.
    pub sync_period: Duration,
    /// Whether claims without a volume are handed to provisioners; `--enable-dynamic-provisioning`.
    pub dynamic_provisioning: bool,
    /// Whether folders below `/tmp` are made for claims, for single-node clusters; `--enable-hostpath-provisioner`.
    pub host_path_provisioning: bool,
    /// Whether there is a disk behind hostPath volumes that may be written and deleted from. Not so with simulated nodes.
    pub host_path_files: bool,
    /// How NFS volumes are scrubbed; `--pv-recycler-…-nfs`.
    pub recycle_nfs: Recycling,
    /// How hostPath volumes are scrubbed; `--pv-recycler-…-hostpath`.
    pub recycle_host_path: Recycling,
}

/// How volumes of one sort are scrubbed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recycling {
    /// It may take at least so long.
    pub least: Duration,
    /// And so long for each Gi of the volume.
    pub each_gi: Duration,
    /// The file that the pod's template is in, if it is not upstream's.
    pub template_file: Option<Arc<str>>,
    /// The template itself, JSON; the program reads it.
    pub template: Option<Arc<str>>,
}

impl Default for Options {
    fn default() -> Self {
        let recycling = |least, each_gi| Recycling {
            least: Duration::from_secs(least),
            each_gi: Duration::from_secs(each_gi),
            template_file: None,
            template: None,
        };
        Self {
            sync_period: Duration::from_secs(15),
            dynamic_provisioning: true,
            host_path_provisioning: false,
            host_path_files: true,
            recycle_nfs: recycling(300, 30),
            recycle_host_path: recycling(60, 30),
        }
    }
}

impl Options {
    /// What the flags say.
    pub(crate) fn read(flags: &dyn Flags) -> Self {
        let recycling = |sort: &str, increment: &str| {
            let seconds = |flag: &str| {
                Duration::from_secs(u64::try_from(flags.int(flag)).unwrap_or_default())
            };
            let file = flags.path(&format!("pv-recycler-pod-template-filepath-{sort}"));
            Recycling {
                least: seconds(&format!("pv-recycler-minimum-timeout-{sort}")),
                each_gi: seconds(increment),
                template_file: file.map(Arc::from),
                template: None,
            }
        };
        Self {
            sync_period: flags.duration("pvclaimbinder-sync-period"),
            dynamic_provisioning: flags.bool("enable-dynamic-provisioning"),
            host_path_provisioning: flags.bool("enable-hostpath-provisioner"),
            host_path_files: true,
            recycle_nfs: recycling("nfs", "pv-recycler-increment-timeout-nfs"),
            recycle_host_path: recycling("hostpath", "pv-recycler-timeout-increment-hostpath"),
        }
    }
}
