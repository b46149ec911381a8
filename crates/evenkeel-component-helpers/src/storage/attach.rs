//! Unique names of attached volumes, as in a Node's status.

use super::csi_translation;
use evenkeel_api::views::PersistentVolume;

/// Prefix of a CSI volume's unique name on nodes.
const CSI_PREFIX: &str = "kubernetes.io/csi/";

/// Returns the volume's unique name, as in `status.volumesAttached`, or `None` if it is not a CSI volume.
///
/// Upstream: `GetUniqueVolumeNameFromSpec`.
pub fn attached_name(volume: &PersistentVolume) -> Option<String> {
    let (driver, handle) = csi_translation::driver_and_handle(volume)?;
    Some(format!("{CSI_PREFIX}{driver}^{handle}"))
}

/// Splits an [`attached_name`] into driver and handle. Returns `None` for the name of another kind of volume.
pub fn split_attached_name(name: &str) -> Option<(&str, &str)> {
    name.strip_prefix(CSI_PREFIX)?.split_once('^')
}
