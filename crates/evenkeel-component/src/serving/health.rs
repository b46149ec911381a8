//! `/healthz`, `/livez`, `/readyz`.

use evenkeel_runtime::{health::LEADER_TOLERANCE, manager::Manager, serve::Routes};

/// `/healthz` and `/livez` say whether the program had better be started again, `/readyz` whether it does its part: it
/// leads with filled caches, or stands by.
pub(super) fn add_to(routes: Routes, manager: &Manager) -> Routes {
    let health = manager.health().clone();
    if let Some(election) = manager.election().cloned() {
        manager.readiness().add("leaderElection", move || election.check(LEADER_TOLERANCE));
    }
    routes
        .health("healthz", health.clone())
        .health("livez", health)
        .health("readyz", manager.readiness().clone())
}
