//! A seed reproduces a run exactly.

use crate::fixtures::{DEPLOYMENTS, REST, SECOND, deployment, image, ready, web_pods};
use evenkeel_sim::{Fault, FaultKind, Faults, Options, Write, part, simulate};

fn run(seed: u64) -> Vec<Write> {
    let options = Options { seed, ..Options::default() };
    simulate(options, async |world| {
        world.settle(REST).await;
        let pods = web_pods(world).await;
        let fault = |part, at, kind| Fault { part, at, kind };
        world.arm(Faults {
            at_writes: vec![
                fault(part::CONTROLLERS, 4, FaultKind::CrashAfter),
                fault(part::CONTROLLERS, 17, FaultKind::CrashBefore),
                fault(part::SCHEDULER, 3, FaultKind::CrashAfter),
                fault(part::NODES, 5, FaultKind::CrashBefore),
                fault(part::CONTROLLERS, 20, FaultKind::BreakWatches),
            ],
            max_watch_delay: SECOND,
        });
        world.create(DEPLOYMENTS, &deployment(6, "a")).await;
        ready(world, &pods, 6).await;
        world.merge(&format!("{DEPLOYMENTS}/web"), &image("b")).await;
        world.settle(REST).await;
        world.delete("/apis/apps/v1/namespaces/default/deployments/web", "Foreground").await;
        world.settle(REST).await;
        world.log().since(0)
    })
}

#[test]
fn same_seed_produces_the_same_writes() {
    let runs = [7, 8, 9, 10].map(|seed| (run(seed), run(seed)));
    for (one, two) in &runs {
        let differs = one.iter().zip(two).position(|(one, two)| one != two);
        if let Some(at) = differs {
            let before: String =
                one[at.saturating_sub(10)..at].iter().map(|write| format!("{write}\n")).collect();
            panic!("after\n{before}\n{}\n{}", one[at], two[at]);
        }
        assert_eq!(one.len(), two.len());
    }
    assert!(runs[0].0 != runs[1].0, "the seed decides nothing");
}
