//! What the controller can be told.

use crate::options::Flags;
use std::time::Duration;

/// Options of the attach-detach controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// How often nodes with volumes are looked at anew, if at all; `--attach-detach-reconcile-sync-period`,
    /// `--disable-attach-detach-reconcile-sync`.
    pub sync_period: Option<Duration>,
    /// Whether volumes are taken from a node that is not ready when it holds them for too long;
    /// `--disable-force-detach-on-timeout`.
    pub force: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { sync_period: Some(Duration::from_secs(60)), force: true }
    }
}

impl Options {
    /// What the flags say.
    pub(crate) fn read(flags: &dyn Flags) -> Self {
        let off = flags.bool("disable-attach-detach-reconcile-sync");
        let period = flags.duration("attach-detach-reconcile-sync-period");
        Self {
            sync_period: (!off).then_some(period),
            force: !flags.bool("disable-force-detach-on-timeout"),
        }
    }
}
