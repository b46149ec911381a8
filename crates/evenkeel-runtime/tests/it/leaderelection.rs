//! Contenders for one lease, on their own clocks.

use crate::server::{Fault, Server};
use evenkeel_api::time::Timestamp;
use evenkeel_api::views::Metadata;
use evenkeel_runtime::{
    client::ApiError,
    clock::Clock,
    leaderelection::{Candidate, CandidateConfig, Config, LeaderElector, Metrics},
};
use http::Method;
use prometheus::Registry;
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};
use tokio::time::{advance, timeout};

const LEASES: &str = "coordination.k8s.io/v1/leases";

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn elector(server: &Server, identity: &str, second: i64) -> LeaderElector {
    let clock = Clock::starting_at(Timestamp::from_second(second).unwrap());
    let config = Config::new("kube-system", "kube-controller-manager", identity);
    let client = server.client(&clock);
    LeaderElector::new(&client, config, clock, None, Metrics::register(&Registry::new())).unwrap()
}

fn lease(server: &Server) -> Value {
    server.get(LEASES, "kube-system/kube-controller-manager").unwrap()["spec"].clone()
}

async fn acquired_after(election: &LeaderElector) -> Duration {
    let start = Clock::system().instant();
    election.acquire().await;
    start.elapsed()
}

#[tokio::test(start_paused = true)]
async fn crashed_leader_is_replaced_after_its_lease_whatever_its_clock() {
    let server = Server::new();
    // The leader's clock is an hour ahead.
    let (one, two) = (elector(&server, "one", 3600), elector(&server, "two", 0));
    assert_eq!(acquired_after(&one).await, Duration::ZERO);
    assert_eq!(lease(&server)["leaseTransitions"], 0);
    let waited = acquired_after(&two).await;
    assert!(waited >= seconds(15) && waited <= seconds(15) + seconds(2).mul_f64(2.2), "{waited:?}");
    let spec = lease(&server);
    assert_eq!((&spec["holderIdentity"], &spec["leaseTransitions"]), (&"two".into(), &1.into()));
    assert!(two.is_leader());
    // The old leader resumes: its optimistic write conflicts, and it observes the new leader.
    let start = Clock::system().instant();
    one.renew().await;
    assert_eq!((start.elapsed(), one.is_leader()), (Duration::ZERO, false));
}

#[tokio::test(start_paused = true)]
async fn released_lease_is_acquired_at_the_next_retry() {
    let server = Server::new();
    let (one, two) = (elector(&server, "one", 0), elector(&server, "two", 0));
    one.acquire().await;
    let stop = async {
        let _ = tokio::time::timeout(seconds(20), one.renew()).await;
        assert!(one.is_leader());
        one.step_down().await;
        assert!(!one.is_leader());
    };
    let ((), waited) = tokio::join!(stop, acquired_after(&two));
    assert!(waited >= seconds(20) && waited < seconds(25), "{waited:?}");
    assert_eq!(lease(&server)["leaseTransitions"], 1);
}

#[tokio::test(start_paused = true)]
async fn renewal_is_one_write_per_retry_period() {
    let server = Server::new();
    let one = elector(&server, "one", 0);
    one.acquire().await;
    let first = lease(&server)["acquireTime"].clone();
    let reads = server.seen(&Method::GET, "leases").len();
    let _ = tokio::time::timeout(seconds(21), one.renew()).await;
    assert_eq!(server.seen(&Method::PUT, "leases").len(), 11);
    assert_eq!(
        server.seen(&Method::GET, "leases").len(),
        reads,
        "nothing is read while all goes well"
    );
    assert_eq!(lease(&server)["acquireTime"], first);
    assert_ne!(lease(&server)["renewTime"], first);
}

#[tokio::test(start_paused = true)]
async fn leader_gives_up_at_the_renew_deadline() {
    let server = Server::new();
    let one = elector(&server, "one", 0);
    one.acquire().await;
    let faults = [Method::PUT, Method::GET];
    for method in faults {
        server.fail(Fault {
            method,
            path: "leases",
            times: usize::MAX,
            code: 500,
            reason: "InternalError",
            cause: "",
        });
    }
    let start = Clock::system().instant();
    one.renew().await;
    assert_eq!(start.elapsed(), seconds(10));
    assert!(one.check(seconds(20)).is_ok());
    tokio::time::advance(seconds(26)).await;
    assert!(one.check(seconds(20)).is_err(), "36 s after the last renewal it should have ended");
}

#[tokio::test(start_paused = true)]
async fn conflict_is_resolved_by_reading() {
    let server = Server::new();
    let one = elector(&server, "one", 0);
    one.acquire().await;
    server.fail(Fault {
        method: Method::PUT,
        path: "leases",
        times: 1,
        code: 409,
        reason: "Conflict",
        cause: "",
    });
    let _ = tokio::time::timeout(seconds(1), one.renew()).await;
    assert!(one.is_leader());
    assert_eq!(server.seen(&Method::PUT, "leases").len(), 2);
    assert_eq!(lease(&server)["leaseTransitions"], 0);
}

#[tokio::test(start_paused = true)]
async fn request_timeout_is_half_the_renew_deadline() {
    let server = Server::new();
    let one = elector(&server, "one", 0);
    one.acquire().await;
    server.latency(seconds(3600));
    let (start, before) = (Clock::system().instant(), server.seen(&Method::PUT, "leases").len());
    one.renew().await;
    assert_eq!(start.elapsed(), seconds(10), "the leader still gives up at the deadline");
    let writes = server.seen(&Method::PUT, "leases");
    let reads = server.seen(&Method::GET, "leases");
    assert_eq!(writes.len(), before + 1);
    assert_eq!(reads.last().unwrap().at - start, seconds(5), "half of the renew deadline");
}

#[tokio::test(start_paused = true)]
async fn stopped_candidate_releases_a_lease_of_unknown_state() {
    let server = Server::new();
    let one = elector(&server, "one", 0);
    server.latency(seconds(3));
    assert!(tokio::time::timeout(seconds(4), one.acquire()).await.is_err());
    assert!(!one.is_leader());
    assert_eq!(lease(&server)["holderIdentity"], "one", "the server executed the write");
    one.withdraw().await;
    assert_eq!(lease(&server)["holderIdentity"], "");
    let seen = server.seen(&Method::GET, "leases").len();
    one.withdraw().await;
    assert_eq!(server.seen(&Method::GET, "leases").len(), seen, "no further requests");
}

#[tokio::test(start_paused = true)]
async fn leader_paused_past_its_lease_writes_nothing() {
    let server = Server::new();
    let one = Arc::new(elector(&server, "one", 0));
    let client = server.client(&Clock::starting_at(Timestamp::UNIX_EPOCH)).fenced(&one.fence());
    let pods = evenkeel_api::Kind::new("", "v1", "Pod", "pods", true);
    let write = |name: &str| {
        let body = json!({ "metadata": { "name": name, "namespace": "ns" } }).to_string();
        client.create::<Metadata>(&pods, "ns", body.into())
    };
    let refused =
        |answer: Result<Metadata, ApiError>| matches!(answer, Err(ApiError::Fenced { .. }));
    assert!(refused(write("too-soon").await), "not the leader yet");
    one.acquire().await;
    write("leading").await.unwrap();
    let _ = timeout(seconds(60), one.renew()).await;
    write("still-leading").await.unwrap();
    // Nothing runs for this time, including renewals, and no other process has acquired the lease.
    advance(seconds(11)).await;
    assert!(one.is_leader() && refused(write("asleep").await));
    assert!(client.get_metadata(&pods, "ns", "leading").await.is_ok(), "reads are still allowed");
    let _ = timeout(seconds(3), one.renew()).await;
    write("renewed-in-time").await.unwrap();
    one.step_down().await;
    assert!(refused(write("gone").await));
    let names: Vec<_> =
        server.all("v1/pods").iter().map(|pod| pod["metadata"]["name"].clone()).collect();
    assert_eq!(names, ["leading", "renewed-in-time", "still-leading"]);
}

#[tokio::test(start_paused = true)]
async fn coordinated_election_follows_the_server() {
    let server = Server::new();
    let clock = Clock::starting_at(Timestamp::UNIX_EPOCH);
    let config = Config {
        coordinated: true,
        ..Config::new("kube-system", "kube-controller-manager", "one")
    };
    let client = server.client(&clock);
    let metrics = Metrics::register(&Registry::new());
    let one = LeaderElector::new(&client, config, clock, None, metrics).unwrap();
    assert!(timeout(seconds(60), one.acquire()).await.is_err(), "there is no lease to take");
    let put = |holder: &str, preferred: Value| {
        let spec = json!({
            "holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.000000Z",
            "strategy": "OldestEmulationVersion", "preferredHolder": preferred,
        });
        let name = json!({"namespace": "kube-system", "name": "kube-controller-manager"});
        server.put(LEASES, json!({ "metadata": name, "spec": spec }));
    };
    put("two", Value::Null);
    assert!(
        timeout(seconds(60), one.acquire()).await.is_err(),
        "nor does a lease that ran out help"
    );
    put("one", Value::Null);
    one.acquire().await;
    assert!(timeout(seconds(60), one.renew()).await.is_err(), "it renews");
    assert_eq!(lease(&server)["strategy"], "OldestEmulationVersion");
    put("one", "two".into());
    let start = Clock::system().instant();
    one.renew().await;
    assert_eq!(start.elapsed(), Duration::ZERO);
    one.step_down().await;
    assert_eq!(lease(&server)["holderIdentity"], "", "released immediately");
}

#[tokio::test(start_paused = true)]
async fn lease_candidate_answers_pings() {
    const CANDIDATES: &str = "coordination.k8s.io/v1beta1/leasecandidates";
    let server = Server::new();
    let clock = Clock::starting_at(Timestamp::UNIX_EPOCH);
    let candidacy = CandidateConfig {
        namespace: "kube-system".into(),
        identity: "one".into(),
        lease: "kube-controller-manager".into(),
        binary_version: "1.37.0".into(),
        emulation_version: "1.36.0".into(),
        strategy: "OldestEmulationVersion".into(),
    };
    let stand = |time| {
        let candidate = Candidate::new(&server.client(&clock), candidacy.clone());
        timeout(time, candidate.run())
    };
    let _ = stand(seconds(60)).await;
    let made = server.get(CANDIDATES, "kube-system/one").unwrap();
    let (first, spec) = (made["spec"]["renewTime"].clone(), &made["spec"]);
    assert_eq!(
        (&spec["leaseName"], &spec["emulationVersion"], &spec["strategy"]),
        (&"kube-controller-manager".into(), &"1.36.0".into(), &"OldestEmulationVersion".into())
    );
    assert_eq!(server.seen(&Method::PUT, "leasecandidates").len(), 0, "not pinged");
    let mut asked = made.clone();
    asked["spec"]["pingTime"] = "1970-01-01T00:01:00.000000Z".into();
    server.put(CANDIDATES, asked);
    let _ = stand(seconds(60)).await;
    assert_eq!(server.seen(&Method::PUT, "leasecandidates").len(), 1, "once");
    assert_ne!(server.get(CANDIDATES, "kube-system/one").unwrap()["spec"]["renewTime"], first);
    let _ = stand(seconds(301)).await;
    assert_eq!(server.seen(&Method::PUT, "leasecandidates").len(), 2, "renewed when old");
}
