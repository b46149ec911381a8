//! Options of the volume binder.

use crate::options::Flags;
use std::{sync::Arc, time::Duration};

/// Options of the persistent volume binder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Interval after which waiting claims and volumes are reconciled again; `--pvclaimbinder-sync-period`. Upstream reconciles
    /// all of them in this interval; here, others are reconciled on events only.
    pub sync_period: Duration,
    /// Whether provisioning is requested for claims without a volume; `--enable-dynamic-provisioning`.
    pub dynamic_provisioning: bool,
    /// Whether hostPath volumes below `/tmp` are provisioned, for single-node clusters; `--enable-hostpath-provisioner`.
    pub host_path_provisioning: bool,
    /// Whether hostPath volumes are real folders on this machine. False with simulated nodes.
    pub host_path_files: bool,
    /// Recycler settings of NFS volumes; `--pv-recycler-…-nfs`.
    pub recycle_nfs: Recycling,
    /// Recycler settings of hostPath volumes; `--pv-recycler-…-hostpath`.
    pub recycle_host_path: Recycling,
}

/// Recycler settings of one volume type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recycling {
    /// Minimum timeout of the recycler pod.
    pub least: Duration,
    /// Additional timeout for each Gi of the volume.
    pub each_gi: Duration,
    /// Path of the pod template file; upstream's template if unset.
    pub template_file: Option<Arc<str>>,
    /// Contents of the template file as JSON, read by the program.
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
