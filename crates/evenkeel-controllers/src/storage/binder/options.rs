//! Options of the persistent volume controller.

use crate::options::Flags;
use std::{sync::Arc, time::Duration};

/// Options of the persistent volume controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Interval after which waiting claims and volumes are reconciled again. Flag `--pvclaimbinder-sync-period`.
    /// Default: 15 s. Upstream reconciles all claims and volumes in this interval.
    pub sync_period: Duration,
    /// Whether the controller requests provisioning for claims without a volume. Flag `--enable-dynamic-provisioning`.
    /// Default: true.
    pub dynamic_provisioning: bool,
    /// Whether the controller provisions hostPath volumes below `/tmp`, for single-node clusters. Flag
    /// `--enable-hostpath-provisioner`. Default: false.
    pub host_path_provisioning: bool,
    /// Whether hostPath volumes are real folders on this machine; false for simulated nodes. No flag. Default: true.
    pub host_path_files: bool,
    /// Recycler settings of NFS volumes. Flags `--pv-recycler-…-nfs`.
    pub recycle_nfs: Recycling,
    /// Recycler settings of hostPath volumes. Flags `--pv-recycler-…-hostpath`.
    pub recycle_host_path: Recycling,
}

/// Recycler settings of one volume type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recycling {
    /// Minimum timeout of the recycler pod. Default: 300 s for NFS, 60 s for hostPath.
    pub least: Duration,
    /// Timeout for each GiB of the volume, if the sum exceeds the minimum. Default: 30 s.
    pub each_gi: Duration,
    /// Path of the file with the pod template. Without it, upstream's template applies.
    pub template_file: Option<Arc<str>>,
    /// Contents of the template file as JSON, which the program reads.
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
    /// Reads the options from the command-line flags.
    pub(crate) fn read(flags: &dyn Flags) -> Self {
        let recycling = |sort: &str, increment: &str| {
            let seconds = |flag: &str| {
                Duration::from_secs(u64::try_from(flags.int(flag)).unwrap_or_default())
            };
            let file = flags.non_empty_text(&format!("pv-recycler-pod-template-filepath-{sort}"));
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
