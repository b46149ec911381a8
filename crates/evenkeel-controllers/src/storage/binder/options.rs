//! Options of the persistent volume controller.

use crate::options::Flags;
use std::{sync::Arc, time::Duration};

/// Options of the persistent volume controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Interval after which unbound claims, and volumes that are being reclaimed, are reconciled again. Flag
    /// `--pvclaimbinder-sync-period`. Default: 15 s. Upstream reconciles all claims and volumes in this interval.
    pub sync_period: Duration,
    /// Whether the controller requests provisioning for claims without a volume. Flag `--enable-dynamic-provisioning`.
    /// Default: true.
    pub dynamic_provisioning: bool,
    /// Whether the controller provisions hostPath volumes below `/tmp`, for single-node clusters. Flag
    /// `--enable-hostpath-provisioner`. Default: false.
    pub host_path_provisioning: bool,
    /// Whether the hostPath provisioner and deleter create and remove the folders of volumes on this machine. Simulated
    /// nodes have no folders, so simulations set it to false. No flag. Default: true.
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
    pub minimum_timeout: Duration,
    /// Timeout for each GiB of the volume. The recycler pod's timeout is the maximum of `minimum_timeout` and the
    /// volume's size in GiB times this value. Default: 30 s.
    pub timeout_per_gib: Duration,
    /// Path of the file with the recycler's pod template. `None` selects upstream's template.
    pub template_file: Option<Arc<str>>,
    /// Content of the template file as JSON. The controller manager reads the file after it parsed the flags.
    pub template: Option<Arc<str>>,
}

impl Default for Options {
    fn default() -> Self {
        let recycling = |minimum_timeout, timeout_per_gib| Recycling {
            minimum_timeout: Duration::from_secs(minimum_timeout),
            timeout_per_gib: Duration::from_secs(timeout_per_gib),
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
        let recycling = |volume_type: &str, increment_flag: &str| {
            let seconds_flag = |flag: &str| {
                Duration::from_secs(u64::try_from(flags.int(flag)).unwrap_or_default())
            };
            let file =
                flags.non_empty_text(&format!("pv-recycler-pod-template-filepath-{volume_type}"));
            Recycling {
                minimum_timeout: seconds_flag(&format!(
                    "pv-recycler-minimum-timeout-{volume_type}"
                )),
                timeout_per_gib: seconds_flag(increment_flag),
                template_file: file.map(Arc::from),
                template: None,
            }
        };
        Self {
            sync_period: flags.duration("pvclaimbinder-sync-period"),
            dynamic_provisioning: flags.bool("enable-dynamic-provisioning"),
            host_path_provisioning: flags.bool("enable-hostpath-provisioner"),
            host_path_files: true,
            // The two flags differ in their order of words, as in upstream.
            recycle_nfs: recycling("nfs", "pv-recycler-increment-timeout-nfs"),
            recycle_host_path: recycling("hostpath", "pv-recycler-timeout-increment-hostpath"),
        }
    }
}
