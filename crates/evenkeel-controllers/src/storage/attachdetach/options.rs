//! Options of the attach-detach controller.

use crate::options::Flags;
use std::time::Duration;

/// Options of the attach-detach controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Period after which nodes with volumes are reconciled again; `None` disables it. Flags
    /// `--attach-detach-reconcile-sync-period` and `--disable-attach-detach-reconcile-sync`. Default: 60 s.
    pub sync_period: Option<Duration>,
    /// Whether volumes are force-detached after a timeout from a node that is not ready. Flag
    /// `--disable-force-detach-on-timeout` sets it to false. Default: true.
    pub force: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { sync_period: Some(Duration::from_secs(60)), force: true }
    }
}

impl Options {
    /// Reads the options from flags.
    pub(crate) fn read(flags: &dyn Flags) -> Self {
        let off = flags.bool("disable-attach-detach-reconcile-sync");
        let period = flags.duration("attach-detach-reconcile-sync-period");
        Self {
            sync_period: (!off).then_some(period),
            force: !flags.bool("disable-force-detach-on-timeout"),
        }
    }
}
