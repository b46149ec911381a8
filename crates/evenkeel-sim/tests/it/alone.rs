//! One controller crashes at its writes, while all others continue to run.

use crate::{accounts, fixtures::MINUTE, identity, quotas, services};
use evenkeel_sim::{FaultKind, Faults, Options, World, explore::Compared, part};

/// Crashes, and a restart that does not see the last write.
const CRASHES: [FaultKind; 3] =
    [FaultKind::CrashBefore, FaultKind::CrashAfter, FaultKind::StaleRestart];

/// Runs for each controller.
const RUNS: usize = 6;

/// Runs the scenario with crashes of one controller, which has to write in it.
fn crash(controller: &'static str, options: Options, scenario: &impl AsyncFn(&mut World, Faults)) {
    let options = Options { restart_delay: MINUTE / 6, ..options.alone(controller) };
    let compared = Compared::new(&options, scenario);
    assert!(compared.writes(part::ALONE) > 0, "{controller} writes nothing");
    compared.sample(part::ALONE, &CRASHES, RUNS);
}

#[test]
fn services_and_accounts() {
    crash("endpointslice-controller", services::options(), &services::follow);
    crash("endpoints-controller", services::options(), &services::follow);
    crash("resourcequota-controller", Options::default(), &quotas::filled_and_emptied);
    crash("serviceaccount-token-controller", Options::default(), &accounts::accounts_and_tokens);
    crash(
        "clusterrole-aggregation-controller",
        identity::without_nodes(),
        &identity::aggregated_roles,
    );
}
