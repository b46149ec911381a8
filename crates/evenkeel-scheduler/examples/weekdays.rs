//! A scheduler with a plugin of one's own, beside all that come with Evenkeel: nodes take no pods on days that they are
//! closed. A configuration asks for it, and tells it its arguments:
//!
//! ```yaml
//! apiVersion: kubescheduler.config.k8s.io/v1
//! kind: KubeSchedulerConfiguration
//! profiles:
//! - plugins:
//!     multiPoint:
//!       enabled:
//!       - name: Weekdays
//!   pluginConfig:
//!   - name: Weekdays
//!     args:
//!       label: example.com/closed
//!       today: sunday
//! ```

use evenkeel_scheduler::{
    framework::{CycleState, Filter, Filtered, Plugin, Rejection},
    nodes::NodeRef,
    pod::PodInfo,
    program::{self, Registry},
};
use std::{process::ExitCode, sync::Arc};

/// Its arguments.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Weekdays {
    /// The label that says when a node is closed.
    label: String,
    /// What day it is.
    today: String,
}

impl Plugin for Weekdays {
    fn name(&self) -> &'static str {
        "Weekdays"
    }

    fn as_filter(&self) -> Option<&dyn Filter> {
        Some(self)
    }
}

impl Filter for Weekdays {
    fn filter(&self, _: &CycleState, _: &PodInfo, node: NodeRef<'_>) -> Filtered {
        match node.node().meta.labels.get(&self.label) {
            Some(closed) if *closed == *self.today => {
                Err(Rejection::unschedulable("node(s) were closed"))
            }
            _ => Ok(()),
        }
    }
}

fn main() -> ExitCode {
    let plugins =
        Registry::builtin().with("Weekdays", |making| Ok(Arc::new(making.parse::<Weekdays>()?)));
    program::main(std::env::args().skip(1), &plugins)
}
