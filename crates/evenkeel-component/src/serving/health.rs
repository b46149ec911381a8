//! `/healthz`, `/livez`, `/readyz`.

use crate::secure_serving::Routes;
use evenkeel_runtime::{
    health::{Health, LEADER_TOLERANCE},
    manager::Manager,
};

/// Health checks by path.
pub struct Checks {
    /// `/healthz`: whether the program had better be started again.
    pub healthz: Health,
    /// `/livez`: the same, for most programs.
    pub livez: Health,
    /// `/readyz`: whether it does its part.
    pub readyz: Health,
}

impl Checks {
    /// Returns the checks of most programs: the lease is renewed, and the caches have synced or the program is a standby.
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

/// Adds the check of the program's long-lived tasks to others.
pub fn supervised_tasks(manager: &Manager, to: &Health) {
    let supervisor = manager.supervisor().clone();
    to.add("tasks", move || supervisor.check());
}

/// Adds the check of the program's lease to others, where there is an election.
pub fn leader_election(manager: &Manager, to: &Health) {
    if let Some(election) = manager.election().cloned() {
        to.add("leaderElection", move || election.check(LEADER_TOLERANCE));
    }
}
