//! Options of the attach-detach controller.

use crate::options::Flags;
use std::time::Duration;

/// Options of the attach-detach controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Period after which nodes with volumes are reconciled again. `None` disables it. Flags
    /// `--attach-detach-reconcile-sync-period` and `--disable-attach-detach-reconcile-sync`. Default: 60 s.
    pub sync_period: Option<Duration>,
    /// Whether volumes of a node that is not ready are force-detached after a timeout. Flag
    /// `--disable-force-detach-on-timeout` sets it to false. Default: true.
    pub force_detach: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { sync_period: Some(Duration::from_secs(60)), force_detach: true }
    }
}

impl Options {
    /// Reads the options from flags.
    pub(crate) fn read(flags: &dyn Flags) -> Self {
        let is_disabled = flags.bool("disable-attach-detach-reconcile-sync");
        let period = flags.duration("attach-detach-reconcile-sync-period");
        Self {
            sync_period: (!is_disabled).then_some(period),
            force_detach: !flags.bool("disable-force-detach-on-timeout"),
        }
    }
}
