//! Contenders for one lease, on their own clocks.

use crate::server::{Fault, Server};
use evenkeel_api::time::Timestamp;
use evenkeel_runtime::{
    clock::Clock,
    lease::{Config, LeaderElection, Metrics},
};
use http::Method;
use prometheus::Registry;
use serde_json::Value;
use std::time::Duration;
use tokio::time::Instant;

const LEASES: &str = "coordination.k8s.io/v1/leases";

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn contender(server: &Server, identity: &str, second: i64) -> LeaderElection {
    let clock = Clock::starting_at(Timestamp::from_second(second).unwrap());
    let config = Config::new("kube-system", "kube-controller-manager", identity);
    let client = server.client(&clock);
    LeaderElection::new(&client, config, clock, None, Metrics::register(&Registry::new())).unwrap()
}

fn lease(server: &Server) -> Value {
    server.get(LEASES, "kube-system/kube-controller-manager").unwrap()["spec"].clone()
}

async fn acquired_after(election: &LeaderElection) -> Duration {
    let start = Instant::now();
    election.acquire().await;
    start.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_crashed_leader_is_replaced_when_its_lease_has_run_out_whatever_its_clock_says() {
    let server = Server::new();
    // The leader's clock is an hour ahead.
    let (one, two) = (contender(&server, "one", 3600), contender(&server, "two", 0));
    assert_eq!(acquired_after(&one).await, Duration::ZERO);
    assert_eq!(lease(&server)["leaseTransitions"], 0);
    let waited = acquired_after(&two).await;
    assert!(waited >= seconds(15) && waited <= seconds(15) + seconds(2).mul_f64(2.2), "{waited:?}");
    let spec = lease(&server);
    assert_eq!((&spec["holderIdentity"], &spec["leaseTransitions"]), (&"two".into(), &1.into()));
    assert!(two.is_leader());
    // The old leader comes back to life: its optimistic write conflicts, and it sees who leads.
    let start = Instant::now();
    one.hold().await;
    assert_eq!((start.elapsed(), one.is_leader()), (seconds(10), false));
}

#[tokio::test(start_paused = true)]
async fn a_released_lease_is_taken_at_the_next_attempt() {
    let server = Server::new();
    let (one, two) = (contender(&server, "one", 0), contender(&server, "two", 0));
    one.acquire().await;
    let stop = async {
        let _ = tokio::time::timeout(seconds(20), one.hold()).await;
        assert!(one.is_leader());
        one.step_down().await;
        assert!(!one.is_leader());
    };
    let ((), waited) = tokio::join!(stop, acquired_after(&two));
    assert!(waited >= seconds(20) && waited < seconds(25), "{waited:?}");
    assert_eq!(lease(&server)["leaseTransitions"], 1);
}

#[tokio::test(start_paused = true)]
async fn renewing_costs_one_write_each_retry_period_and_keeps_the_acquire_time() {
    let server = Server::new();
    let one = contender(&server, "one", 0);
    one.acquire().await;
    let first = lease(&server)["acquireTime"].clone();
    let reads = server.seen(&Method::GET, "leases").len();
    let _ = tokio::time::timeout(seconds(21), one.hold()).await;
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
async fn a_leader_that_cannot_renew_gives_up_at_the_deadline() {
    let server = Server::new();
    let one = contender(&server, "one", 0);
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
    let start = Instant::now();
    one.hold().await;
    assert_eq!(start.elapsed(), seconds(10));
    assert!(one.check(seconds(20)).is_ok());
    tokio::time::advance(seconds(26)).await;
    assert!(one.check(seconds(20)).is_err(), "36 s after the last renewal it should have ended");
}

#[tokio::test(start_paused = true)]
async fn a_conflict_is_overcome_by_reading() {
    let server = Server::new();
    let one = contender(&server, "one", 0);
    one.acquire().await;
    server.fail(Fault {
        method: Method::PUT,
        path: "leases",
        times: 1,
        code: 409,
        reason: "Conflict",
        cause: "",
    });
    let _ = tokio::time::timeout(seconds(1), one.hold()).await;
    assert!(one.is_leader());
    assert_eq!(server.seen(&Method::PUT, "leases").len(), 2);
    assert_eq!(lease(&server)["leaseTransitions"], 0);
}

#[tokio::test(start_paused = true)]
async fn a_request_without_an_answer_is_given_up_in_time_for_another() {
    let server = Server::new();
    let one = contender(&server, "one", 0);
    one.acquire().await;
    server.latency(seconds(3600));
    let (start, before) = (Instant::now(), server.seen(&Method::PUT, "leases").len());
    one.hold().await;
    assert_eq!(start.elapsed(), seconds(10), "it is given up at the deadline all the same");
    let writes = server.seen(&Method::PUT, "leases");
    let reads = server.seen(&Method::GET, "leases");
    assert_eq!(writes.len(), before + 1);
    assert_eq!(reads.last().unwrap().at - start, seconds(5), "half of the renew deadline");
}

#[tokio::test(start_paused = true)]
async fn a_candidate_that_goes_leaves_no_lease_behind_that_it_does_not_know_of() {
    let server = Server::new();
    let one = contender(&server, "one", 0);
    server.latency(seconds(3));
    assert!(tokio::time::timeout(seconds(4), one.acquire()).await.is_err());
    assert!(!one.is_leader());
    assert_eq!(lease(&server)["holderIdentity"], "one", "the server did what was asked");
    one.withdraw().await;
    assert_eq!(lease(&server)["holderIdentity"], "");
    let seen = server.seen(&Method::GET, "leases").len();
    one.withdraw().await;
    assert_eq!(server.seen(&Method::GET, "leases").len(), seen, "there is nothing left to ask");
}
