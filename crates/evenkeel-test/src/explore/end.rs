//! Result of a run, for comparison with a run without a fault: the objects at its end, and numbers of creates and
//! deletes.

use super::{
    diff::differences,
    state::{State, normalize},
    target::{Collection, Target, all_objects, collections, created, deleted, list},
};
use crate::simulation::{FaultKind, Simulation, Write};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Objects in normal form. Two runs that only differ by chance, such as in times and generated names, have the same
/// normal form. [The module](super) lists the fields that are left out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EndState(State);

impl EndState {
    /// Returns the normal form of the objects, without the fields that the JSON pointers `ignored` name, and without objects
    /// that are as `before`.
    pub(super) fn of(objects: Vec<Value>, before: &[Value], ignored: &[String]) -> Self {
        Self(normalize(objects, before, &[], ignored))
    }

    /// Reads the present objects of all resources with at least one write, except for Leases and Events. Leaves out
    /// fields that the JSON pointers `ignored` name, and objects that equal those in `before`. `named` has the objects
    /// with generated names of earlier observations, which may be deleted by now: their names are normalized, too. Adds
    /// the current objects with generated names to it.
    ///
    /// # Errors
    /// Fails if the server does not respond.
    pub async fn observe(
        simulation: &Simulation,
        before: &[Value],
        named: &mut Vec<Value>,
        ignored: &[String],
    ) -> Result<Self, String> {
        let mut objects = Vec::new();
        for collection in collections(&simulation.log().since(0)) {
            objects.extend(list(simulation.requests(), &collection).await?);
        }
        let is_named = |object: &&Value| object.pointer("/metadata/generateName").is_some();
        let name = |object: &Value| json!({"kind": object["kind"], "metadata": object["metadata"]});
        named.extend(objects.iter().filter(is_named).map(name));
        Ok(Self(normalize(objects, before, named, ignored)))
    }

    /// Returns lines that show how this state differs from the state without a fault; none if the two are equal.
    pub fn differences(&self, without_fault: &Self) -> Vec<String> {
        differences(&self.0, &without_fault.0)
    }
}

/// Returns the objects of all resources that the server of a simulation serves, without events.
///
/// # Errors
/// Fails if the server does not respond.
pub async fn objects_before(simulation: &Simulation) -> Result<Vec<Value>, String> {
    all_objects(&simulation.server().client()).await
}

/// Numbers of created objects of each resource, and of deletions, including deletions that only mark an object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    creates: BTreeMap<Collection, u64>,
    deletes: BTreeMap<Collection, u64>,
}

impl Changes {
    /// Counts the creates and deletes among these writes. Events do not count.
    pub fn of<'a>(writes: impl IntoIterator<Item = &'a Write>) -> Self {
        let mut changes = Self::default();
        let add = |counts: &mut BTreeMap<Collection, u64>, target: Option<Target>| {
            if let Some(target) = target {
                *counts.entry(target.collection).or_default() += 1;
            }
        };
        for write in writes.into_iter().filter(|write| !write.is_event()) {
            add(&mut changes.creates, created(write));
            add(&mut changes.deletes, deleted(write));
        }
        changes
    }

    /// Returns a line for each resource with more creates or deletes than without the fault, if a fault of this kind
    /// must not cause more. After a crash, a gap or stale reads, a program may make more writes, because it has
    /// observed other states in between.
    pub fn excess(&self, without_fault: &Self, kind: FaultKind) -> Vec<String> {
        let (creates, deletes) = match kind {
            FaultKind::LoseRequest | FaultKind::Refuse(_) => (true, true),
            // The program may repeat a delete. The server responds to a repeated create with `AlreadyExists`.
            FaultKind::LoseAnswer | FaultKind::Repeat => (true, false),
            _ => (false, false),
        };
        let creates = creates.then(|| more(&self.creates, &without_fault.creates, "creates"));
        let deletes = deletes.then(|| more(&self.deletes, &without_fault.deletes, "deletes"));
        creates.into_iter().chain(deletes).flatten().collect()
    }
}

/// Returns a line for each resource with a greater count than without the fault.
fn more(
    counts: &BTreeMap<Collection, u64>,
    without_fault: &BTreeMap<Collection, u64>,
    what: &str,
) -> Vec<String> {
    let more = |(collection, n): (&Collection, &u64)| {
        let wanted = without_fault.get(collection).copied().unwrap_or_default();
        (*n > wanted).then(|| format!("{collection}: {n} {what}, without the fault {wanted}"))
    };
    counts.iter().filter_map(more).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_faults_that_cannot_lead_to_more_are_held_to_the_counts() {
        let pods = |n: u64| {
            let target = Target::of_path("/api/v1/namespaces/default/pods").expect("a target");
            BTreeMap::from([(target.collection, n)])
        };
        let wanted = Changes { creates: pods(2), deletes: pods(1) };
        let more = Changes { creates: pods(3), deletes: pods(2) };
        let lines =
            ["pods: 3 creates, without the fault 2", "pods: 2 deletes, without the fault 1"];
        assert_eq!(more.excess(&wanted, FaultKind::Refuse(409)), lines);
        assert_eq!(more.excess(&wanted, FaultKind::LoseAnswer), lines[..1]);
        assert_eq!(more.excess(&wanted, FaultKind::CrashAfter), [""; 0]);
        assert_eq!(wanted.excess(&more, FaultKind::LoseRequest), [""; 0], "less is no excess");
    }
}
