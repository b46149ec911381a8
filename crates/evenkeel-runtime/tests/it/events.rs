//! Recorders against a server that is sometimes unavailable.

use crate::server::{Fault, Server};
use evenkeel_api::{Kind, time::Timestamp};
use evenkeel_runtime::{
    clock::Clock,
    events::{EventRecorder, SeriesEventRecorder},
    plan::{EventRecord, Target},
    tasks::Tasks,
};
use http::Method;
use std::time::Duration;

const PODS: Kind = Kind::new("", "v1", "Pod", "pods", true);
const CORE: &str = "v1/events";
const SERIES: &str = "events.k8s.io/v1/events";

struct World {
    server: Server,
    clock: Clock,
    tasks: Tasks,
}

fn world() -> World {
    let clock = Clock::starting_at(Timestamp::from_second(1_767_225_600).unwrap());
    World { server: Server::new(), clock, tasks: Tasks::new() }
}

impl World {
    fn recorder(&self) -> EventRecorder {
        EventRecorder::new(
            self.server.client(&self.clock),
            "replicaset-controller",
            self.clock.clone(),
        )
    }
}

fn note(object: &str, message: &str) -> EventRecord {
    EventRecord::normal(Target::new(PODS, "ns", object, "u"), "SuccessfulCreate", message)
}

async fn settle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

#[tokio::test(start_paused = true)]
async fn repeated_event_patches_the_first() {
    let world = world();
    let recorder = world.recorder();
    recorder.start(&world.tasks);
    for _ in 0..3 {
        recorder.record(&note("web", "Created pod: a"));
        settle().await;
    }
    let events = world.server.all(CORE);
    assert_eq!(events.len(), 1);
    assert_eq!(
        (&events[0]["count"], &events[0]["source"]["component"]),
        (&3.into(), &"replicaset-controller".into())
    );
    assert_eq!(world.server.seen(&Method::PATCH, "events").len(), 2);
    // The Event has expired on the server: the next repeat creates it again, with its count.
    let name = events[0]["metadata"]["name"].as_str().unwrap().to_owned();
    world.server.remove(CORE, &format!("ns/{name}"));
    recorder.record(&note("web", "Created pod: a"));
    settle().await;
    assert_eq!(world.server.all(CORE)[0]["count"], 4);
}

#[tokio::test(start_paused = true)]
async fn event_is_retried_without_response_and_dropped_if_rejected() {
    let world = world();
    let recorder = world.recorder();
    recorder.start(&world.tasks);
    world.server.fail(Fault {
        method: Method::POST,
        path: "events",
        times: 2,
        code: 0,
        reason: "",
        cause: "",
    });
    recorder.record(&note("web", "first"));
    tokio::time::sleep(Duration::from_secs(25)).await;
    assert_eq!(world.server.all(CORE).len(), 1);
    assert_eq!(world.server.seen(&Method::POST, "events").len(), 3);
    world.server.fail(Fault {
        method: Method::POST,
        path: "events",
        times: 1,
        code: 403,
        reason: "Forbidden",
        cause: "",
    });
    recorder.record(&note("web", "second"));
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(
        world.server.seen(&Method::POST, "events").len(),
        4,
        "a rejected event is not retried"
    );
    world.server.fail(Fault {
        method: Method::POST,
        path: "events",
        times: 100,
        code: 0,
        reason: "",
        cause: "",
    });
    recorder.record(&note("web", "third"));
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(world.server.seen(&Method::POST, "events").len(), 16, "12 attempts");
}

#[tokio::test(start_paused = true)]
async fn recording_never_blocks_and_stopping_flushes() {
    let world = world();
    let recorder = world.recorder();
    for n in 0..1005 {
        recorder.record(&note(&format!("web-{n}"), "Created"));
    }
    assert_eq!(recorder.dropped(), 5);
    recorder.start(&world.tasks);
    world.tasks.shut_down(Duration::from_secs(10)).await;
    assert_eq!(world.server.all(CORE).len(), 1000);
}

#[tokio::test(start_paused = true)]
async fn series_is_written_at_its_start_and_end() {
    let world = world();
    let client = world.server.client(&world.clock);
    let recorder = SeriesEventRecorder::new(
        client,
        "default-scheduler",
        "default-scheduler-host",
        world.clock.clone(),
    );
    recorder.start(&world.tasks);
    for n in 0..5 {
        let message = format!("0/{n} nodes are available");
        recorder.record(&note("web", &message), "Scheduling", None);
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
    let events = world.server.all(SERIES);
    assert_eq!(events.len(), 1);
    assert_eq!(
        (&events[0]["series"]["count"], &events[0]["action"]),
        (&2.into(), &"Scheduling".into())
    );
    tokio::time::sleep(Duration::from_secs(13 * 60)).await;
    assert_eq!(world.server.all(SERIES)[0]["series"]["count"], 5);
    assert_eq!(world.server.seen(&Method::PATCH, "events").len(), 2);
}
