//! Health checks of `/healthz`, `/livez` and `/readyz`.

use crate::secure_serving::Routes;
use evenkeel_runtime::{
    health::{Health, LEADER_TOLERANCE},
    manager::Manager,
};

/// Health checks by path.
pub struct Checks {
    /// Checks of `/healthz`, which fails if the program should be restarted.
    pub healthz: Health,
    /// Checks of `/livez`, for most programs the same as `/healthz`.
    pub livez: Health,
    /// Checks of `/readyz`, which fails while the program cannot do its work.
    pub readyz: Health,
}

impl Checks {
    /// Returns the checks of most programs: the lease is renewed, and the caches have synced.
    pub fn usual(manager: &Manager) -> Self {
        leader_election(manager, manager.readiness());
        let health = manager.health().clone();
        Self { healthz: health.clone(), livez: health, readyz: manager.readiness().clone() }
    }

    pub(super) fn add_to(self, routes: Routes) -> Routes {
        routes
            .health("healthz", self.healthz)
            .health("livez", self.livez)
            .health("readyz", self.readyz)
    }
}

/// Adds the check that the program's long-lived tasks have not failed.
pub fn supervised_tasks(manager: &Manager, health: &Health) {
    let supervisor = manager.supervisor().clone();
    health.add("tasks", move || supervisor.check());
}

/// Adds the check that the leader still renews the program's lease. Adds nothing without leader election.
pub fn leader_election(manager: &Manager, health: &Health) {
    if let Some(elector) = manager.elector().cloned() {
        health.add("leaderElection", move || elector.check(LEADER_TOLERANCE));
    }
}
