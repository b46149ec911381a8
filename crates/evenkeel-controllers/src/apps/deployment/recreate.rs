//! Recreate: all old pods end before the first new one starts.

use super::{plan::Pass, progress};

/// One step.
pub(crate) fn roll_out(pass: &mut Pass<'_>) {
    let old: Vec<usize> = pass.old().filter(|at| pass.sets[*at].replicas > 0).collect();
    for at in &old {
        pass.resize(*at, 0, false);
    }
    if !old.is_empty() || old_pods_run(pass) {
        return;
    }
    let new = pass.new_or_make();
    pass.resize(new, pass.budget.replicas, false);
    if progress::is_complete_now(pass) {
        pass.cleanup_deployment();
    }
}

/// Whether a pod of an old set may still run, by what the sets or the pods say.
fn old_pods_run(pass: &Pass<'_>) -> bool {
    pass.old().any(|at| {
        let counted = pass.sets[at].status().replicas > 0;
        counted
            || pass.sets[at]
                .present
                .is_some_and(|set| pass.observed.running.contains(&set.meta.uid))
    })
}
