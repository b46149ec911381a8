//! Owner references of claims.

use super::*;
use crate::apps::statefulset::retention::PossibleOwners;
use evenkeel_api::OwnerReference;

/// Returns the owner of this name. A `*` at its end makes it the controller.
fn owner(name: &str) -> OwnerReference {
    let (name, controller) = match name.strip_suffix('*') {
        Some(name) => (name, true),
        None => (name, false),
    };
    let (api_version, kind, object, uid) = match name {
        "set" => ("apps/v1", "StatefulSet", "db", "set"),
        "earlier set" => ("apps/v1", "StatefulSet", "db", "before"),
        "another set" => ("apps/v1", "StatefulSet", "other", "other"),
        "set of another group" => ("other/v1", "StatefulSet", "db", "other"),
        "pod" => ("v1", "Pod", "db-1", "pod"),
        "earlier pod" => ("v1", "Pod", "db-1", "before"),
        "another pod" => ("v1", "Pod", "db-2", "other"),
        "thing" => ("v1", "ConfigMap", "db", "thing"),
        "thing of the pod's name" => ("v1", "ConfigMap", "db-1", "thing"),
        other => panic!("{other}"),
    };
    OwnerReference {
        api_version: api_version.into(),
        kind: kind.into(),
        name: object.into(),
        uid: uid.into(),
        controller,
        ..OwnerReference::default()
    }
}

/// Describes an owner as [`owner`] takes it.
fn name_of(reference: &OwnerReference) -> String {
    let mark = if reference.controller { "*" } else { "" };
    let name = match (&*reference.kind, &*reference.uid) {
        ("StatefulSet", "set") => "set",
        ("Pod", "pod") => "pod",
        ("Pod", "other") => "another pod",
        ("StatefulSet", "other") => "another set",
        ("ConfigMap", _) => "thing",
        other => panic!("{other:?}"),
    };
    format!("{name}{mark}")
}

fn claim(owners: &[&str]) -> PersistentVolumeClaim {
    let mut claim = PersistentVolumeClaim::default();
    claim.meta.owners = owners.iter().map(|name| owner(name)).collect();
    claim
}

/// Calls `check` with the possible owners of the claims of `db-1`, of a set with this policy and these replicas.
fn with_owners<T>(
    policy: (&str, &str),
    replicas: i32,
    check: impl Fn(&PossibleOwners<'_>) -> T,
) -> T {
    let policy = json!({ "whenDeleted": policy.0, "whenScaled": policy.1 });
    let set = set(replicas, &with_claims(&policy));
    let pod: Pod = object(&json!({ "metadata": { "name": "db-1", "uid": "pod" } }));
    check(&PossibleOwners::new(&set, 1, Some(&pod)))
}

const RETAIN: (&str, &str) = ("Retain", "Retain");
const DELETE_WITH_SET: (&str, &str) = ("Delete", "Retain");
const DELETE_WHEN_SCALED: (&str, &str) = ("Retain", "Delete");
const DELETE: (&str, &str) = ("Delete", "Delete");

#[test]
fn owner_references_are_corrected_by_the_policy() {
    let (replica, condemned) = (2, 1);
    for (rule, policy, replicas, owners, expected) in [
        ("a replica's claim is the set's", DELETE_WITH_SET, replica, &[][..], Some(&["set*"][..])),
        ("it is already", DELETE_WITH_SET, replica, &["set*"], None),
        ("a reference becomes the controller", DELETE_WITH_SET, replica, &["set"], Some(&["set*"])),
        ("other references stay", DELETE_WITH_SET, replica, &["thing"], Some(&["thing", "set*"])),
        ("their order stays", DELETE_WITH_SET, replica, &["set*", "thing"], None),
        ("the pod no longer owns it", DELETE_WITH_SET, replica, &["pod*"], Some(&["set*"])),
        ("retained claims have no owner", RETAIN, replica, &["set*"], Some(&[])),
        ("neither set nor pod", RETAIN, replica, &["thing", "pod*", "set*"], Some(&["thing"])),
        ("retained", RETAIN, replica, &["thing"], None),
        ("retained with another controller", RETAIN, replica, &["thing*"], None),
        ("a condemned pod owns its claim", DELETE, condemned, &["set*"], Some(&["pod*"])),
        ("it does already", DELETE, condemned, &["pod*"], None),
        ("as controller", DELETE, condemned, &["pod"], Some(&["pod*"])),
        ("it is in range again", DELETE, replica, &["pod*"], Some(&["set*"])),
        ("only when scaled", DELETE_WHEN_SCALED, condemned, &[], Some(&["pod*"])),
        ("not in range", DELETE_WHEN_SCALED, replica, &["pod*"], Some(&[])),
        ("another controller wins", DELETE_WITH_SET, replica, &["thing*"], None),
        ("the set makes way", DELETE_WITH_SET, replica, &["thing*", "set*"], Some(&["thing*"])),
        ("the pod makes way", DELETE, condemned, &["thing*", "pod"], Some(&["thing*"])),
        ("another set", DELETE_WITH_SET, replica, &["another set"], Some(&["another set", "set*"])),
        ("another pod", DELETE, condemned, &["another pod"], Some(&["another pod", "pod*"])),
        (
            "an earlier set is left to the garbage collector",
            DELETE_WITH_SET,
            replica,
            &["earlier set*"],
            None,
        ),
        ("even if the pod owns it too", DELETE_WITH_SET, replica, &["earlier set", "pod"], None),
        ("an earlier pod is left to it as well", DELETE, replica, &["earlier pod", "set"], None),
    ] {
        let corrected =
            with_owners(policy, replicas, |possible| possible.corrected_references(&claim(owners)));
        let names = corrected.map(|owners| owners.iter().map(name_of).collect::<Vec<_>>());
        let expected: Option<Vec<String>> =
            expected.map(|names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect());
        assert_eq!(names, expected, "{rule}: {owners:?}");
    }
}

#[test]
fn references_that_conflict_with_the_policy() {
    for (policy, owners, expected) in [
        (DELETE_WITH_SET, "set*", false),
        (DELETE_WITH_SET, "pod*", false),
        (DELETE_WITH_SET, "thing", false),
        (DELETE_WITH_SET, "thing*", true),
        (DELETE_WHEN_SCALED, "thing*", true),
        (RETAIN, "thing*", false),
        (RETAIN, "earlier set", false),
        (DELETE, "earlier set", true),
        (DELETE, "earlier pod", true),
        (DELETE, "another set", false),
        (DELETE, "another pod", false),
        (DELETE, "set of another group", false),
        (DELETE, "thing of the pod's name", false),
    ] {
        let found = with_owners(policy, 2, |possible| possible.has_conflict(&claim(&[owners])));
        assert_eq!(found, expected, "{policy:?} {owners}");
    }
}

/// Returns the reasons of the events that the next sync records about its updates of claims: those recorded at once,
/// and those after an update.
fn claim_events(world: &World) -> (Vec<String>, Vec<Option<String>>) {
    let plan = plan(&world.observed(), world.now);
    let reason = |event: &EventRecord| event.reason.to_string();
    let at_once = plan.actions.iter().filter_map(|action| match action {
        Action::Event(event) => Some(reason(event)),
        _ => None,
    });
    let after = plan.actions.iter().filter_map(|action| match action {
        Action::Rewrite(change) => Some(change.done.as_ref().map(reason)),
        _ => None,
    });
    (at_once.collect(), after.collect())
}

#[test]
fn changed_policy_updates_the_claims_of_pods() {
    let claims = |policy: (&str, &str)| {
        with_claims(&json!({ "whenDeleted": policy.0, "whenScaled": policy.1 }))
    };
    let conflict = || vec!["ConflictingController".to_owned()];
    let update = || vec![Some("SuccessfulUpdate".to_owned())];
    // Owners of the claim, whether the pod is pending, and the events.
    for (owners, is_pending, expected) in [
        (&[][..], false, (vec![], update())),
        // The first of two identical updates belongs to the creation.
        (&[], true, (vec![], vec![None])),
        (&["set*"], false, (vec![], vec![])),
        (&["thing*", "set*"], false, (conflict(), update())),
        (&["thing*"], false, (vec![], vec![])),
        (&["thing*"], true, (conflict(), vec![])),
    ] {
        let mut world = World::rolled_out(set(1, &claims(RETAIN)));
        world.set.spec = set(1, &claims(DELETE_WITH_SET)).spec;
        world.claims[0].meta.owners = claim(owners).meta.owners;
        if is_pending {
            world.pod("db-0").status = pending();
        }
        assert_eq!(claim_events(&world), expected, "{owners:?} {is_pending}");
    }
}

#[test]
fn created_pod_takes_over_its_claims() {
    let policy = json!({ "whenDeleted": "Delete", "whenScaled": "Retain" });
    let mut world = World::rolled_out(set(1, &with_claims(&policy)));
    world.claims[0].meta.owners = Shared::default();
    world.pods.clear();
    world.sync();
    assert_eq!(world.claims[0].meta.owners[..], owned_by(&world.set)[..]);
}
