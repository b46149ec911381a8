//! Strategy `Recreate`: waits until all old pods are gone before it creates a new one. Upstream:
//! `recreate.go`.

use super::{pass::Pass, progress};

/// Takes one step of the rollout. Upstream: `rolloutRecreate`.
pub(crate) fn roll_out(pass: &mut Pass<'_>) {
    let old: Vec<usize> = pass.old().filter(|index| pass.sets[*index].replicas > 0).collect();
    for index in &old {
        pass.resize(*index, 0, false);
    }
    if !old.is_empty() || old_pods_run(pass) {
        return;
    }
    let new = pass.get_or_create_new_set();
    pass.resize(new, pass.budget.replicas, false);
    if progress::is_complete_now(pass) {
        pass.cleanup_deployment();
    }
}

/// Whether old pods may still run, by the sets' statuses or by the pods themselves. Upstream:
/// `oldPodsRunning`.
fn old_pods_run(pass: &Pass<'_>) -> bool {
    pass.old().any(|index| {
        let counted = pass.sets[index].status().replicas > 0;
        counted
            || pass.sets[index]
                .present
                .is_some_and(|set| pass.observed.running.contains(&set.meta.uid))
    })
}
