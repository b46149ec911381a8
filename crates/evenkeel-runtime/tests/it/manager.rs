//! A manager's life: order of start and stop, loss of the lease, failures.

use crate::server::{Fault, Server};
use evenkeel_api::time::Timestamp;
use evenkeel_runtime::{
    clock::Clock,
    controller::Outcome,
    manager::{Manager, ManagerError, RunContext, RunnableGroup},
    plan::Key,
    tasks::Tasks,
};
use http::Method;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use serde_json::json;
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

const LEASES: &str = "coordination.k8s.io/v1/leases";

type Log = Arc<Mutex<Vec<String>>>;

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn manager(server: &Server) -> Manager {
    let clock = Clock::starting_at(Timestamp::from_second(1_767_225_600).unwrap());
    Manager::builder(server.kube())
        .clock(clock)
        .component("test")
        .leader_election("kube-system", "test", "me")
        .grace_period(seconds(30))
        .build()
        .unwrap()
}

/// Adds a runnable that logs its start and its stop, which take a second each.
fn add(manager: &Manager, log: &Log, group: RunnableGroup, name: &'static str) {
    let log = Arc::clone(log);
    manager.add(group, name, move |running: RunContext| async move {
        log.lock().unwrap().push(format!("{name} up"));
        tokio::time::sleep(seconds(1)).await;
        running.ready();
        running.stopped().await;
        tokio::time::sleep(seconds(1)).await;
        log.lock().unwrap().push(format!("{name} down"));
        Ok(())
    });
}

fn lines(log: &Log) -> Vec<String> {
    log.lock().unwrap().clone()
}

#[tokio::test(start_paused = true)]
async fn runnables_stop_in_reverse_and_the_lease_is_released_last() {
    let (server, log) = (Server::new(), Log::default());
    let manager = manager(&server);
    add(&manager, &log, RunnableGroup::LeaderElection, "leader");
    add(&manager, &log, RunnableGroup::Others, "other");
    add(&manager, &log, RunnableGroup::HttpServers, "http");
    let (watched, at_shutdown) = (server.clone(), Arc::clone(&log));
    manager
        .run(async move {
            tokio::time::sleep(seconds(30)).await;
            assert_eq!(
                watched.get(LEASES, "kube-system/test").unwrap()["spec"]["holderIdentity"],
                "me"
            );
            assert_eq!(lines(&at_shutdown), ["http up", "other up", "leader up"]);
        })
        .await
        .unwrap();
    assert_eq!(lines(&log)[3..], ["leader down", "other down", "http down"]);
    assert_eq!(server.get(LEASES, "kube-system/test").unwrap()["spec"]["holderIdentity"], "");
    let events: Vec<String> = server
        .all("v1/events")
        .iter()
        .map(|event| event["message"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(events, ["me became leader", "me stopped leading"]);
}

#[tokio::test(start_paused = true)]
async fn lease_being_acquired_is_released() {
    // Within the read of the lease, within its creation, and after it.
    for (stop_at, held) in [(500, false), (1500, true), (2500, true)] {
        let (server, log) = (Server::new(), Log::default());
        server.latency(seconds(1));
        let manager = manager(&server);
        add(&manager, &log, RunnableGroup::LeaderElection, "leader");
        let watched = server.clone();
        manager
            .run(async move {
                tokio::time::sleep(Duration::from_millis(stop_at)).await;
                let lease = watched.get(LEASES, "kube-system/test");
                assert_eq!(lease.is_some(), held, "{stop_at}");
            })
            .await
            .unwrap();
        let lease = server.get(LEASES, "kube-system/test");
        let holder = lease.map(|lease| lease["spec"]["holderIdentity"].clone());
        assert_eq!(holder, held.then(|| "".into()), "{stop_at}");
        assert_eq!(lines(&log).is_empty(), stop_at < 2000, "no work begins when it is to end");
    }
}

#[tokio::test(start_paused = true)]
async fn waiting_candidate_stops_immediately() {
    let server = Server::new();
    let now = "2026-01-01T00:00:00.000000Z";
    server.put(
        LEASES,
        json!({
            "metadata": {"namespace": "kube-system", "name": "test"},
            "spec": {"holderIdentity": "other", "leaseDurationSeconds": 3600, "renewTime": now},
        }),
    );
    let start = Clock::system().instant();
    manager(&server).run(tokio::time::sleep(seconds(61))).await.unwrap();
    assert_eq!(start.elapsed(), seconds(61));
    assert_eq!(server.get(LEASES, "kube-system/test").unwrap()["spec"]["holderIdentity"], "other");
}

#[tokio::test(start_paused = true)]
async fn lost_lease_is_an_error_and_stops_work() {
    let (server, log) = (Server::new(), Log::default());
    let manager = manager(&server);
    add(&manager, &log, RunnableGroup::LeaderElection, "leader");
    add(&manager, &log, RunnableGroup::Others, "other");
    let saboteur = server.clone();
    manager.add(RunnableGroup::Others, "saboteur", move |running| async move {
        tokio::time::sleep(seconds(10)).await;
        for method in [Method::PUT, Method::GET] {
            let times = usize::MAX;
            saboteur.fail(Fault {
                method,
                path: "leases",
                times,
                code: 500,
                reason: "InternalError",
                cause: "",
            });
        }
        running.stopped().await;
        Ok(())
    });
    let ended = manager.run(std::future::pending()).await;
    assert!(matches!(ended, Err(ManagerError::LeaderElectionLost)), "{ended:?}");
    assert_eq!(
        lines(&log),
        ["other up", "leader up", "other down"],
        "the leader's work was not finished in peace"
    );
}

#[tokio::test(start_paused = true)]
async fn failing_runnable_stops_the_manager_with_its_error() {
    for panics in [false, true] {
        let (server, log) = (Server::new(), Log::default());
        let manager = manager(&server);
        add(&manager, &log, RunnableGroup::HttpServers, "http");
        manager.add(RunnableGroup::LeaderElection, "bad", move |_| async move {
            tokio::time::sleep(seconds(5)).await;
            assert!(!panics, "deliberate");
            Err("no luck".into())
        });
        let ended = manager.run(std::future::pending()).await;
        let Err(ManagerError::Runnable { name, source }) = ended else { panic!("{ended:?}") };
        let text = if panics { "panic: deliberate" } else { "no luck" };
        assert_eq!((name.as_str(), source.to_string().as_str()), ("bad", text));
        assert_eq!(lines(&log), ["http up", "http down"]);
        assert_eq!(server.get(LEASES, "kube-system/test").unwrap()["spec"]["holderIdentity"], "");
    }
}

#[tokio::test(start_paused = true)]
async fn dead_task_stops_the_manager_and_fails_the_health_check() {
    for panics in [false, true] {
        let (server, log) = (Server::new(), Log::default());
        let manager = manager(&server);
        add(&manager, &log, RunnableGroup::HttpServers, "http");
        manager.add(RunnableGroup::LeaderElection, "leader", move |running| async move {
            // The manager supervises a task group within a runnable.
            let tasks = Tasks::under(running.token());
            tasks.spawn("monitor", async move {
                tokio::time::sleep(seconds(5)).await;
                assert!(!panics, "deliberate");
            });
            running.stopped().await;
            tasks.join().await;
            Ok(())
        });
        let health = manager.health().clone();
        assert_eq!(health.failures(), []);
        let ended = manager.run(std::future::pending()).await;
        let Err(ManagerError::Task(failure)) = ended else { panic!("{ended:?}") };
        let reason = if panics { "panic: deliberate" } else { "returned before it was stopped" };
        assert_eq!((&*failure.name, &*failure.reason), ("monitor", reason));
        assert_eq!(lines(&log), ["http up", "http down"]);
        assert_eq!(server.get(LEASES, "kube-system/test").unwrap()["spec"]["holderIdentity"], "");
        assert_eq!(health.failures(), [("tasks".to_owned(), failure.to_string())]);
    }
}

#[tokio::test(start_paused = true)]
async fn task_with_failing_restarts_fails_the_health_check() {
    let server = Server::new();
    let manager = manager(&server);
    manager.add(RunnableGroup::LeaderElection, "leader", move |running| async move {
        let tasks = Tasks::under(running.token());
        tasks.spawn_restarting("keeper", || async { panic!("deliberate") });
        running.stopped().await;
        tasks.join().await;
        Ok(())
    });
    let health = manager.health().clone();
    let check = async {
        tokio::time::sleep(seconds(10)).await;
        assert_eq!(health.failures(), [], "it was restarted a few times");
        tokio::time::sleep(seconds(50)).await;
        let reason = r#"task "keeper" failed: panic: deliberate"#;
        assert_eq!(health.failures(), [("tasks".to_owned(), reason.to_owned())]);
    };
    manager.run(check).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn tasks_that_do_not_stop_in_time_are_aborted_and_named() {
    let server = Server::new();
    let manager = manager(&server);
    manager.add(RunnableGroup::LeaderElection, "deaf", |_| std::future::pending());
    let ended = manager.run(tokio::time::sleep(seconds(5))).await;
    let Err(ManagerError::NotStopped(names)) = ended else { panic!("{ended:?}") };
    assert_eq!(names, ["deaf"]);
    assert_eq!(server.get(LEASES, "kube-system/test").unwrap()["spec"]["holderIdentity"], "");
}

#[tokio::test(start_paused = true)]
async fn custom_controller_reconciles_roots_and_mapped_objects() {
    let server = Server::new();
    server.put("v1/configmaps", json!({"metadata": {"name": "a", "namespace": "ns"}}));
    let manager = manager(&server);
    let log = Log::default();
    let seen = Arc::clone(&log);
    manager
        .controller::<ConfigMap>()
        .watches::<Secret>(|secret| {
            vec![Key::new(secret.metadata.namespace.as_deref().unwrap_or_default(), "from-secret")]
        })
        .max_concurrent(2)
        .reconcile_requests(move |request, _| {
            seen.lock().unwrap().push(request.key.to_string());
            async { Ok(Outcome::Settled) }
        });
    let actor = server.clone();
    let shutdown = async move {
        tokio::time::sleep(seconds(5)).await;
        actor.put("v1/secrets", json!({"metadata": {"name": "s", "namespace": "ns"}}));
        tokio::time::sleep(seconds(5)).await;
        actor.remove("v1/configmaps", "ns/a");
        tokio::time::sleep(seconds(5)).await;
    };
    assert_eq!(manager.health().answer("healthz", "").body(), "ok");
    assert_eq!(manager.readiness().answer("readyz", "").status(), 500, "nothing is cached yet");
    manager.run(shutdown).await.unwrap();
    assert_eq!(lines(&log), ["ns/a", "ns/from-secret", "ns/a"]);
}
