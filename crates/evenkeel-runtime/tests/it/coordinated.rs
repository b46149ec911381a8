//! Coordinated leader election (KEP-4355): the server chooses among the candidates that managers run.

use crate::server::Server;
use evenkeel_api::time::Timestamp;
use evenkeel_runtime::{
    clock::Clock,
    leaderelection::Config,
    manager::{Manager, RunnableGroup},
    tasks::Tasks,
};
use serde_json::{Value, json};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

const LEASES: &str = "coordination.k8s.io/v1/leases";
const CANDIDATES: &str = "coordination.k8s.io/v1beta1/leasecandidates";

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Chooses every five seconds, as the coordinated leader election controller of kube-apiserver: the candidate with the
/// oldest emulation version gets a lease without a holder, and is preferred to another holder.
async fn coordinate(server: Server, clock: Clock) {
    loop {
        clock.sleep(seconds(5)).await;
        let mut candidates: Vec<(String, String)> = server
            .all(CANDIDATES)
            .iter()
            .map(|found| {
                (text(&found["spec"]["emulationVersion"]), text(&found["metadata"]["name"]))
            })
            .collect();
        candidates.sort();
        let Some((_, best)) = candidates.first() else { continue };
        let lease = server.get(LEASES, "kube-system/test");
        let holder = lease.as_ref().map(|lease| text(&lease["spec"]["holderIdentity"]));
        let mut lease = lease.unwrap_or_else(
            || json!({"metadata": {"namespace": "kube-system", "name": "test"}, "spec": {}}),
        );
        let spec = &mut lease["spec"];
        match holder.as_deref() {
            None | Some("") => {
                *spec = json!({
                    "holderIdentity": best, "strategy": "OldestEmulationVersion",
                    "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.000000Z",
                });
            }
            Some(holder) if holder != best && spec["preferredHolder"] != **best => {
                spec["preferredHolder"] = json!(best);
            }
            Some(_) => continue,
        }
        server.put(LEASES, lease);
    }
}

/// Starts a manager of this version. It logs when its leader's work begins.
fn start(
    server: &Server,
    clock: &Clock,
    log: &Arc<Mutex<Vec<String>>>,
    name: &str,
    version: &str,
) -> Tasks {
    let manager = Manager::builder(server.kube())
        .clock(clock.clone())
        .component("test")
        .election(Config::coordinated("kube-system", "test", name, version))
        .build()
        .unwrap();
    let (name, log) = (name.to_owned(), Arc::clone(log));
    manager.add(RunnableGroup::LeaderElection, "work", |running| async move {
        log.lock().unwrap().push(format!("{name} leads"));
        running.stopped().await;
        Ok(())
    });
    let tasks = Tasks::new();
    let stop = tasks.token();
    tasks.spawn_finite("manager", async move {
        // A manager that must yield ends with an error, and its program restarts.
        let _ = manager.run(stop.cancelled_owned()).await;
    });
    tasks
}

#[tokio::test(start_paused = true)]
async fn the_server_chooses_among_the_candidates_of_managers() {
    let (server, log) = (Server::new(), Arc::default());
    let clock = Clock::starting_at(Timestamp::from_second(1_767_225_600).unwrap());
    let coordinator = Tasks::new();
    let work = coordinate(server.clone(), clock.clone());
    coordinator.spawn_until_cancelled("coordinator", work);

    let new = start(&server, &clock, &log, "new", "1.5.0");
    tokio::time::sleep(seconds(30)).await;
    assert_eq!(*log.lock().unwrap(), ["new leads"]);
    let candidate = server.get(CANDIDATES, "kube-system/new").unwrap();
    assert_eq!(candidate["spec"]["binaryVersion"], "1.5.0");
    assert_eq!(candidate["spec"]["leaseName"], "test");

    let old = start(&server, &clock, &log, "old", "1.4.0");
    tokio::time::sleep(seconds(60)).await;
    assert_eq!(*log.lock().unwrap(), ["new leads", "old leads"], "the oldest version is preferred");
    assert!(new.running().is_empty(), "it yields and ends");

    assert!(old.shut_down(seconds(60)).await.is_empty());
    let lease = server.get(LEASES, "kube-system/test").unwrap();
    assert_eq!(lease["spec"]["holderIdentity"], "", "released");
    coordinator.shut_down(seconds(1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_candidate_corrects_what_an_earlier_process_of_its_identity_left() {
    let server = Server::new();
    let clock = Clock::starting_at(Timestamp::from_second(1_767_225_600).unwrap());
    let left = json!({
        "metadata": {"namespace": "kube-system", "name": "me"},
        "spec": {
            "leaseName": "test", "binaryVersion": "1.4.0", "emulationVersion": "1.3.0",
            "strategy": "OldestEmulationVersion", "renewTime": "2026-01-01T00:00:00.000000Z",
        },
    });
    server.put(CANDIDATES, left);
    let manager = start(&server, &clock, &Arc::default(), "me", "1.5.0");
    tokio::time::sleep(seconds(10)).await;
    let candidate = server.get(CANDIDATES, "kube-system/me").unwrap();
    assert_eq!(candidate["spec"]["binaryVersion"], "1.5.0");
    assert_eq!(candidate["spec"]["emulationVersion"], "1.5.0");
    let version = candidate["metadata"]["resourceVersion"].clone();
    tokio::time::sleep(seconds(60)).await;
    let later = server.get(CANDIDATES, "kube-system/me").unwrap();
    assert_eq!(later["metadata"]["resourceVersion"], version, "it is right now");
    assert!(manager.shut_down(seconds(60)).await.is_empty());
}
