//! One run: a new cluster, at most one fault, and the checks at the end.

use super::{
    cluster::Cluster,
    end::{Changes, EndState},
    failure::Failure,
    options::Exploration,
    plan::{OPERATOR, RunId},
    state::label,
    target::{all_objects, collections, created_path, list},
    user::User,
};
use crate::{
    BoxError, TestServer,
    simulation::{
        Exit, FaultKind, Faults, Part, PartOptions, Simulation, SimulationOptions, USER, Write,
        in_virtual_time,
    },
};
use evenkeel_api::time::Timestamp;
use evenkeel_runtime::{client::full_text, tasks::catch_panic};
use http::Method;
use serde_json::{Value, json};
use std::{
    cell::Cell,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
    time::Duration,
};
use tokio::time::timeout;

/// Everything around the operator, as one program.
const CLUSTER: Part = Part::new("cluster");

/// Time for an operator to recover from a restart or an outage, for example until an old lease has expired.
const RECOVERY: Duration = Duration::from_secs(60);

/// Limit on the virtual time of a scenario.
const SCENARIO_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

/// Maximum delay of the operator's watch events in runs with another seed than 0.
const MAX_WATCH_DELAY: Duration = Duration::from_secs(1);

/// Number of requests in the message of a failure.
const LAST_REQUESTS: usize = 20;

/// Resources that a cluster writes continuously, or for its nodes.
const OF_CLUSTER: [&str; 4] = ["csinodes", "events", "leases", "nodes"];

/// End state of a run, for comparison with other runs.
pub(super) struct Observed {
    end: EndState,
    changes: Changes,
    /// Number of the operator's writes, without leases and events.
    pub(super) writes: u64,
    pub(super) has_leases: bool,
    /// Hash of all write requests.
    pub(super) digest: u64,
}

/// Performs one run. Compares it with the run without a fault, if that is given.
pub(super) fn run<S>(
    exploration: &Exploration,
    scenario: &S,
    id: RunId,
    without_fault: Option<&Observed>,
) -> Result<Observed, Box<Failure>>
where
    S: AsyncFn(User) -> Result<(), BoxError>,
{
    in_virtual_time(async {
        let phase = Cell::new("start");
        let failure = |reason: String, hit, requests| {
            let RunId { seed, fault } = id;
            Box::new(Failure { seed, fault, phase: phase.get(), reason, hit, requests })
        };
        let world = catch_panic(Run::new(exploration, id, &phase)).await;
        let world = world.and_then(|created| created.map_err(|error| full_text(&*error)));
        let mut run = world.map_err(|reason| failure(reason, None, String::new()))?;
        let log = run.simulation.log().clone();
        let ended = catch_panic(run.phases(scenario, without_fault)).await;
        ended.and_then(|ended| ended).map_err(|reason| {
            let counted =
                |write: &&Write| write.part.name() == OPERATOR.name() && !write.is_event();
            let writes = log.since(run.first_write);
            let nth = id.fault.and_then(|fault| usize::try_from(fault.at).ok()?.checked_sub(1));
            let hit = nth.and_then(|nth| writes.iter().filter(counted).nth(nth));
            failure(reason, hit.map(ToString::to_string), log.tail(LAST_REQUESTS))
        })
    })
}

/// Run in progress.
struct Run<'a> {
    exploration: &'a Exploration,
    id: RunId,
    simulation: Simulation,
    /// Index of the scenario's first write in the log.
    first_write: usize,
    /// Objects that existed when the scenario began.
    before: Vec<Value>,
    phase: &'a Cell<&'static str>,
}

impl<'a> Run<'a> {
    async fn new(
        exploration: &'a Exploration,
        id: RunId,
        phase: &'a Cell<&'static str>,
    ) -> Result<Self, BoxError> {
        let seed = id.seed;
        let builder = TestServer::builder().clock(Simulation::clock_of_run(seed)).seed(seed);
        let server = (exploration.server)(builder).start().await?;
        let cluster =
            Cluster::new(server.server(), &exploration.controllers, exploration.nodes, seed)?;
        let options =
            SimulationOptions { seed, recovery: RECOVERY, ..SimulationOptions::default() };
        let mut simulation = Simulation::new(server, options);
        let undelayed = PartOptions { delayed: false, ..PartOptions::default() };
        simulation.add(CLUSTER, Arc::new(cluster), undelayed);
        for replica in replicas(exploration.replicas) {
            let counted = PartOptions { counted_as: Some(OPERATOR), ..PartOptions::default() };
            simulation.add(replica, Arc::clone(&exploration.operator), counted);
        }
        Ok(Self { exploration, id, simulation, first_write: 0, before: Vec::new(), phase })
    }

    /// Performs all phases of the run, and returns the observations or the reason of the failure.
    async fn phases<S>(
        &mut self,
        scenario: &S,
        without_fault: Option<&Observed>,
    ) -> Result<Observed, String>
    where
        S: AsyncFn(User) -> Result<(), BoxError>,
    {
        self.simulation.arm(self.faults(false));
        self.simulation.start(CLUSTER);
        for replica in replicas(self.exploration.replicas) {
            self.simulation.start(replica);
        }
        self.simulation.settle(self.exploration.quiet).await;

        self.phase.set("scenario");
        let begin = self.simulation.clock().now();
        self.first_write = self.simulation.log().len();
        self.before = all_objects(&self.simulation.server().client()).await?;
        self.simulation.arm(self.faults(true));
        let steps = timeout(SCENARIO_TIMEOUT, scenario(self.user()));
        let done = self.simulation.beside(steps).await;
        done.map_err(|_| format!("it did not end within {SCENARIO_TIMEOUT:?}"))?
            .map_err(|error| full_text(&*error))?;
        self.simulation.settle(self.exploration.quiet).await;
        self.check_programs()?;

        self.phase.set("silence");
        self.simulation.stays_silent(self.exploration.silence).await;

        self.phase.set("end state");
        let changes = self.changes();
        let objects = self.objects(true).await?;
        let end = EndState::of(objects, &self.before, &self.exploration.ignored_fields);
        if let Some(without_fault) = without_fault {
            none(&end.differences(&without_fault.end))?;
            if let Some(fault) = self.id.fault {
                none(&changes.excess(&without_fault.changes, fault.kind))?;
            }
        }

        self.phase.set("teardown");
        self.delete_created().await?;
        self.simulation.settle(self.exploration.quiet).await;
        none(&leaks(&self.objects(false).await?, begin))?;
        (self.exploration.after_teardown)();
        self.check_programs()?;
        Ok(Observed {
            end,
            changes,
            writes: self.simulation.writes(OPERATOR),
            has_leases: self.simulation.log().has_leases(OPERATOR.name()),
            digest: digest(&self.simulation.log().since(0)),
        })
    }

    /// Returns the faults of the run. The fault at a write is armed only when the scenario begins.
    fn faults(&self, in_scenario: bool) -> Faults {
        let fault = self.id.fault.filter(|_| in_scenario);
        let is_late = self.id.seed > 0;
        Faults {
            at_writes: fault.into_iter().collect(),
            max_watch_delay: if is_late { MAX_WATCH_DELAY } else { Duration::ZERO },
        }
    }

    fn user(&self) -> User {
        User {
            client: self.simulation.client(),
            requests: self.simulation.requests().clone(),
            settling: self.simulation.settling(),
            quiet: self.exploration.quiet,
            clock: self.simulation.clock().clone(),
        }
    }

    /// Fails if a program ended by itself, unless it lost its lease, or if one of its tasks failed permanently.
    fn check_programs(&self) -> Result<(), String> {
        let loses_lease = self.id.fault.is_some_and(|fault| {
            matches!(fault.kind, FaultKind::LoseLease | FaultKind::Pause | FaultKind::Cut)
        });
        let excused = |exit: &&Exit| loses_lease && exit.part.name() == OPERATOR.name();
        let exits = self.simulation.exits().iter().filter(|exit| !excused(exit));
        let exits = exits.map(|exit| format!("{} ended by itself: {}", exit.part, exit.error));
        let failures = self.simulation.failures();
        none(&exits.chain(failures.iter().map(ToString::to_string)).collect::<Vec<_>>())
    }

    /// Counts the creates and deletes of the operator since the scenario began.
    fn changes(&self) -> Changes {
        let writes = self.simulation.log().since(self.first_write);
        Changes::of(writes.iter().filter(|write| write.part.name() == OPERATOR.name()))
    }

    /// Returns the present objects of all resources with at least one write.
    async fn objects(&self, with_kept: bool) -> Result<Vec<Value>, String> {
        let writes = self.simulation.log().since(0);
        let (of_cluster, others): (Vec<Write>, Vec<Write>) =
            writes.into_iter().partition(|write| write.part == CLUSTER);
        let mut written = collections(&of_cluster);
        written.retain(|collection| !OF_CLUSTER.contains(&&*collection.plural));
        written.extend(collections(&others));
        let mut objects = Vec::new();
        for collection in written {
            let kept = self.exploration.kept.contains(&collection.plural);
            if (with_kept || !kept) && collection.plural != "leases" {
                objects.extend(list(self.simulation.requests(), &collection).await?);
            }
        }
        Ok(objects)
    }

    /// Deletes the objects that the user has created since the scenario began, the newest first.
    async fn delete_created(&self) -> Result<(), String> {
        let writes = self.simulation.log().since(self.first_write);
        let created = writes.iter().filter(|write| write.part == USER).filter_map(created_path);
        let mut paths: Vec<String> = created.collect();
        paths.dedup();
        let options = json!({
            "kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background",
        });
        let requests = self.simulation.requests();
        for path in paths.iter().rev() {
            match requests.send(Method::DELETE, path, "application/json", &options).await {
                Err(error) if !error.is_not_found() => {
                    return Err(format!("DELETE {path}: {}", full_text(&error)));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Returns a hash of writes, with their times and outcomes.
fn digest(writes: &[Write]) -> u64 {
    // `DefaultHasher::new` has fixed keys, unlike the hasher of a map.
    let mut hasher = DefaultHasher::new();
    for write in writes {
        (write.to_string(), &write.body).hash(&mut hasher);
    }
    hasher.finish()
}

fn replicas(count: u8) -> Vec<Part> {
    if count == 1 { vec![OPERATOR] } else { (1..=count).map(|n| OPERATOR.replica(n)).collect() }
}

/// Returns an error of these lines, if there are any.
fn none(lines: &[String]) -> Result<(), String> {
    if lines.is_empty() { Ok(()) } else { Err(lines.join("\n")) }
}

/// Returns lines about the objects that were created since `begin` and still exist.
fn leaks(objects: &[Value], begin: Timestamp) -> Vec<String> {
    let is_new = |object: &&Value| {
        let created = object.pointer("/metadata/creationTimestamp").and_then(Value::as_str);
        let created = created.and_then(|text| text.parse::<Timestamp>().ok());
        // Times of creation are in seconds.
        created.is_some_and(|created| created.as_second() >= begin.as_second())
    };
    let why = |object: &Value| {
        let meta = &object["metadata"];
        let label = label(object);
        if !meta["deletionTimestamp"].is_null() {
            return format!("{label} is left: deleted, but held by {}", meta["finalizers"]);
        }
        match meta["ownerReferences"].as_array().map_or(&[][..], |owners| owners) {
            [] => format!("{label} is left, and has no owner"),
            owners => format!("{label} is left, with the owners {}", json!(owners)),
        }
    };
    objects.iter().filter(is_new).map(why).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_listed_with_the_reason() {
        let object = |name: &str, time: &str, more: Value| {
            let mut object =
                json!({"kind": "Map", "metadata": {"name": name, "creationTimestamp": time}});
            for (field, value) in more.as_object().into_iter().flatten() {
                object["metadata"][field] = value.clone();
            }
            object
        };
        let (before, after) = ("2026-01-01T00:00:09Z", "2026-01-01T00:00:10Z");
        let objects = [
            object("old", before, json!({})),
            object("alone", after, json!({})),
            object("held", after, json!({"deletionTimestamp": after, "finalizers": ["a/b"]})),
            object("owned", after, json!({"ownerReferences": [{"name": "x"}]})),
        ];
        let begin = "2026-01-01T00:00:10.5Z".parse().unwrap();
        assert_eq!(
            leaks(&objects, begin),
            [
                "Map alone is left, and has no owner",
                "Map held is left: deleted, but held by [\"a/b\"]",
                "Map owned is left, with the owners [{\"name\":\"x\"}]",
            ]
        );
    }
}
