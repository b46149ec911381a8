//! Decides whether a volume's finalizer is added or removed.

use crate::finalizers;
use evenkeel_api::views::PersistentVolume;
use evenkeel_runtime::plan::Plan;

/// Finalizer that protects a volume. Upstream: `PVProtectionFinalizer`.
pub(super) const FINALIZER: &str = "kubernetes.io/pv-protection";

/// Keeps the finalizer while the volume is bound.
pub(super) fn plan(volume: &PersistentVolume) -> Plan {
    let is_bound = &*volume.status.phase == "Bound";
    finalizers::protect(volume, FINALIZER, is_bound)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{T0, meta};

    #[test]
    fn finalizer_is_removed_from_terminating_unbound_volumes() {
        let mut volume = PersistentVolume { meta: meta("v"), ..PersistentVolume::default() };
        assert_eq!(plan(&volume).actions.len(), 1, "gets the finalizer");
        volume.meta.finalizers = Box::new([FINALIZER.into()]);
        assert!(plan(&volume).is_nothing());
        volume.meta.deletion = Some(T0);
        for (phase, writes) in
            [("Bound", 0), ("Pending", 1), ("Available", 1), ("Released", 1), ("Failed", 1)]
        {
            volume.status.phase = phase.into();
            assert_eq!(plan(&volume).actions.len(), writes, "{phase}");
        }
    }
}
