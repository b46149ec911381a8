//! Tests of the decision which Stage an object follows, and which steps it performs.

use evenkeel_api::time::{Timestamp, seconds};
use serde_json::{Value, json};
use std::sync::Arc;

use super::{
    StageSet,
    plan::{Decision, Memory, plan},
    spec::{Event, Form, parse},
    steps::Action,
};
use crate::template::Environment;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("a time")
}

fn set(specs: &[(&str, Value)]) -> StageSet {
    let stage = |(name, spec): &(&str, Value)| {
        let mut spec = spec.clone();
        spec["resourceRef"] = json!({"apiGroup": "v1", "kind": "Pod"});
        Arc::new(parse(name, &spec).unwrap_or_else(|errors| panic!("{name}: {errors:?}")))
    };
    StageSet { stages: specs.iter().map(stage).collect(), generation: 1 }
}

fn decide(object: &Value, set: &StageSet, memory: &Memory, second: i64) -> Decision {
    let environment = Environment {
        now: at(second),
        start: at(0),
        node_name: "node-0",
        node_ip: "172.18.0.2",
        pod_ip: "10.128.0.1",
        node_port: 10250,
        draws: 1,
    };
    plan(object, set, memory, &environment)
}

fn pod(version: &str) -> Value {
    json!({
        "metadata": {
            "name": "web", "namespace": "default", "resourceVersion": version,
            "labels": {"app": "web"}, "annotations": {"delay": "5s", "weight": "0", "end": "1970-01-01T00:00:30Z"},
            "finalizers": ["a"],
        },
        "spec": {"replicas": 3}, "status": {"phase": "Pending"},
    })
}

/// Returns the time, in seconds, at which an object follows a Stage with this delay; `None` if it does so immediately. The
/// decision is made at 10 s.
fn due(delay: &Value) -> Option<i64> {
    let stages = set(&[("s", json!({"selector": {}, "delay": delay, "next": {"delete": true}}))]);
    let decision = decide(&pod("1"), &stages, &Memory::default(), 10);
    assert_eq!(decision.actions.is_empty(), decision.wake.is_some(), "{delay}");
    decision.wake.map(Timestamp::as_second)
}

#[test]
fn delays_come_from_numbers_and_expressions() {
    let from = |expression: &str| json!({"expressionFrom": expression});
    for (delay, want) in [
        (json!({}), None),
        (json!({"durationMilliseconds": 3000}), Some(13)),
        (json!({"durationFrom": from(".metadata.annotations.delay")}), Some(15)),
        (
            json!({"durationMilliseconds": 1000, "durationFrom": from(".metadata.annotations.none")}),
            Some(11),
        ),
        (json!({"durationMilliseconds": 1000, "durationFrom": from(".metadata.name")}), Some(11)),
        (json!({"durationMilliseconds": 1000, "durationFrom": from("\"\"")}), None),
        (json!({"durationFrom": from(".metadata.annotations.end")}), Some(30)),
        (json!({"durationFrom": {"cel": {"expression": "'7s'"}}}), Some(17)),
        (json!({"durationFrom": {"cel": {"expression": "duration('7s')"}}}), Some(17)),
        (
            json!({"durationFrom": {"cel": {"expression": "self.spec.replicas * 1000000000"}}}),
            Some(13),
        ),
        (json!({"durationFrom": {"cel": {"expression": "4000000000.0"}}}), Some(14)),
        (json!({"durationFrom": {"cel": {"expression": "uint(4000000000)"}}}), Some(14)),
        (json!({"durationFrom": {"jq": {"expression": "\"8s\""}}}), Some(18)),
        (json!({"durationMilliseconds": 5000, "jitterDurationMilliseconds": 2000}), Some(12)),
        (json!({"durationMilliseconds": 5000, "jitterDurationFrom": from("\"5s\"")}), Some(15)),
    ] {
        assert_eq!(due(&delay), want, "{delay}");
    }
    let drawn = due(&json!({"durationMilliseconds": 5000, "jitterDurationMilliseconds": 60_000}));
    assert!(drawn.is_some_and(|second| (15..=70).contains(&second)), "{drawn:?}");
    assert_eq!(
        drawn,
        due(&json!({"durationMilliseconds": 5000, "jitterDurationMilliseconds": 60_000}))
    );
}

#[test]
fn selectors_need_all_their_requirements() {
    let jq = |key: &str, operator: &str, values: &[&str]| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
    for (selector, want) in [
        (json!({}), true),
        (json!(null), false),
        (json!({"matchLabels": {"app": "web"}}), true),
        (json!({"matchLabels": {"app": "db"}}), false),
        (json!({"matchAnnotations": {"delay": "5s"}, "matchLabels": {"app": "web"}}), true),
        (json!({"matchAnnotations": {"none": ""}}), false),
        (jq(".status.phase", "In", &["Pending", "Running"]), true),
        (jq(".status.phase", "NotIn", &["Pending"]), false),
        (jq(".spec.replicas", "In", &["3"]), true),
        (jq(".metadata.deletionTimestamp", "DoesNotExist", &[]), true),
        (jq(".metadata.deletionTimestamp", "Exists", &[]), false),
        (jq(".status.conditions.[] | .type", "NotIn", &["Ready"]), true),
        (jq(".status.conditions.[] | .type", "In", &["Ready"]), false),
        (jq(".metadata.labels | length > 0", "In", &["true"]), true),
        (json!({"matchExpressions": [{"jq": {"key": ".spec", "operator": "Exists"}}]}), true),
        (json!({"matchExpressions": [{"cel": {"expression": "self.spec.replicas == 3"}}]}), true),
        (json!({"matchExpressions": [{"cel": {"expression": "has(self.spec.none)"}}]}), false),
    ] {
        let stages = set(&[("s", json!({"selector": selector, "next": {"delete": true}}))]);
        let decision = decide(&pod("1"), &stages, &Memory::default(), 0);
        assert_eq!(decision.errors, [""; 0]);
        assert_eq!(!decision.actions.is_empty(), want, "{selector}");
    }
}

#[test]
fn a_change_of_the_object_or_of_stages_chooses_anew() {
    let delay = json!({"durationMilliseconds": 10_000});
    let spec = json!({"selector": {}, "delay": delay, "next": {"delete": true}});
    let mut stages = set(&[("s", spec)]);
    let first = decide(&pod("1"), &stages, &Memory::default(), 0);
    assert_eq!(first.wake, Some(at(10)));
    let same = decide(&pod("1"), &stages, &first.memory, 4);
    assert_eq!(same.wake, Some(at(10)), "nothing changed");
    let changed = decide(&pod("2"), &stages, &first.memory, 4);
    assert_eq!(changed.wake, Some(at(14)));
    let played = decide(&pod("2"), &stages, &changed.memory, 14);
    assert_eq!(played.actions, [(0, Action::Delete)]);
    let again = decide(&pod("2"), &stages, &played.memory, 20);
    assert!(again.actions.is_empty() && again.wake.is_none(), "once for each version");
    stages.generation = 2;
    assert_eq!(decide(&pod("2"), &stages, &played.memory, 20).wake, Some(at(30)));
}

#[test]
fn weights_come_from_expressions() {
    let spec = |weight: Value, reason: &str| json!({"selector": {}, "weight": 1, "weightFrom": weight, "next": {"event": {"reason": reason}}});
    let annotation = json!({"expressionFrom": ".metadata.annotations[\"weight\"]"});
    let stages = set(&[
        ("never", spec(annotation, "never")),
        ("always", spec(json!({"cel": {"expression": "self.spec.replicas * 2"}}), "always")),
    ]);
    for version in 0..50 {
        let decision = decide(&pod(&version.to_string()), &stages, &Memory::default(), 0);
        let reason = |action: &(usize, Action)| match &action.1 {
            Action::Event(event) => event.reason.clone(),
            other => panic!("{other:?}"),
        };
        assert_eq!(decision.actions.iter().map(reason).collect::<Vec<_>>(), ["always"]);
    }
}

#[test]
fn steps_happen_in_order() {
    let next = json!({
        "delete": true,
        "event": {"type": "Warning", "reason": "R", "message": "m"},
        "finalizers": {"add": [{"value": "b"}]},
        "patches": [
            {"root": "spec", "template": "name: {{ .metadata.name }}", "type": "merge"},
            {"subresource": "status", "root": "status", "template": "phase: {{ Now | Quote }}"},
            {"type": "json", "root": "metadata", "template": "[{op: add, path: /labels/x, value: z}]"},
            {"template": "a: [1, null, text]"},
        ],
    });
    let stages = set(&[("s", json!({"selector": {}, "next": next}))]);
    let decision = decide(&pod("1"), &stages, &Memory::default(), 0);
    let patch = |subresource: &str, form, body: Value| Action::Patch {
        subresource: subresource.to_owned(),
        form,
        body: body.to_string(),
    };
    let event = Event { warning: true, reason: "R".to_owned(), message: "m".to_owned() };
    let want = [
        Action::Event(event),
        patch(
            "",
            Form::Json,
            json!([{"op": "add", "path": "/metadata/finalizers/-", "value": "b"}]),
        ),
        patch("", Form::Merge, json!({"spec": {"name": "web"}})),
        patch("status", Form::Strategic, json!({"status": {"phase": seconds(at(0))}})),
        patch("", Form::Json, json!([{"op": "add", "path": "/metadata/labels/x", "value": "z"}])),
        patch("", Form::Strategic, json!({"a": [1, null, "text"]})),
        Action::Delete,
    ];
    let want: Vec<(usize, Action)> = want.into_iter().enumerate().collect();
    assert_eq!(decision.actions, want);
    // Performed steps are not repeated.
    let mut memory = decide(&pod("1"), &stages, &Memory::default(), 0).memory;
    memory.chosen_for = None;
    let pending = decide(
        &pod("1"),
        &set(&[("s", json!({"selector": {}, "delay": {"durationMilliseconds": 1}, "next": next}))]),
        &memory,
        0,
    );
    let mut memory = pending.memory;
    memory.pending.as_mut().expect("a Stage").n_done = 5;
    let rest = decide(&pod("1"), &stages, &memory, 1);
    assert_eq!(rest.actions, want[5..]);
}

#[test]
fn a_failing_stage_says_why() {
    for (next, want) in [
        (
            json!({"statusTemplate": "{{ index .spec.none 1 }}"}),
            "Stage s: step 0: index: index of untyped nil",
        ),
        (
            json!({"statusTemplate": "a: [1"}),
            "Stage s: step 0: the output of the template is not YAML",
        ),
        (
            json!({"patches": [{"type": "json", "root": "spec", "template": "a: b"}]}),
            "Stage s: step 0: the output of the template is not a list",
        ),
    ] {
        let stages = set(&[("s", json!({"selector": {}, "next": next}))]);
        let decision = decide(&pod("1"), &stages, &Memory::default(), 0);
        let error = decision.failure.expect("an error");
        assert!(error.starts_with(want), "{error:?}, not {want:?}");
        let again = decide(&pod("1"), &stages, &decision.memory, 1);
        assert_eq!(again.failure, None, "once for each version");
    }
}

#[test]
fn invalid_stages_name_their_field() {
    for (spec, want) in [
        (json!({}), "spec.resourceRef:  of v1: only pods and nodes"),
        (
            json!({"resourceRef": {"kind": "Pod"}, "selector": {"matchExpressions": [{"key": ".a", "operator": "Is"}]}}),
            "spec.selector.matchExpressions[0]: operator \"Is\"",
        ),
        (
            json!({"resourceRef": {"kind": "Pod"}, "selector": {"matchExpressions": [{"key": ".a", "operator": "In"}]}}),
            "spec.selector.matchExpressions[0]: In and NotIn need values",
        ),
        (
            json!({"resourceRef": {"kind": "Pod"}, "selector": {"matchExpressions": [{"cel": {"expression": "a +"}}]}}),
            "spec.selector.matchExpressions[0]: ",
        ),
        (
            json!({"resourceRef": {"kind": "Node"}, "delay": {"durationFrom": {"expressionFrom": "nofunc"}}}),
            "spec.delay.durationFrom: the jq function nofunc/0",
        ),
        (
            json!({"resourceRef": {"kind": "Pod"}, "steps": [{}, {"patch": {"template": "{{ if }}", "type": "merge"}}]}),
            "spec.steps[1].patch.template: ",
        ),
        (
            json!({"resourceRef": {"kind": "Pod"}, "weightFrom": {"cel": {"expression": "SinceSecond(self)"}}}),
            "spec.weightFrom: ",
        ),
        (
            json!({"resourceRef": {"kind": "Pod"}, "next": {"patches": [{"subresource": "statu", "template": "a: b"}]}}),
            "spec.next.patches[0].subresource: \"statu\" is not a subresource to patch (status, ephemeralcontainers, resize)",
        ),
        (
            json!({"resourceRef": {"kind": "Node"}, "steps": [{"patch": {"subresource": "resize", "template": "a: b"}}]}),
            "spec.steps[0].patch.subresource: \"resize\" is not a subresource to patch (status)",
        ),
        (
            json!({"resourceRef": {"kind": "Node"}, "next": {"statusTemplate": "a: b", "statusSubresource": "scale"}}),
            "spec.next.statusSubresource: \"scale\"",
        ),
        (
            json!({"resourceRef": {"kind": "Pod"}, "next": {"patches": [{"type": "apply"}]}}),
            "spec.next.patches[0].type: \"apply\"",
        ),
        (
            json!({"resourceRef": {"kind": "Pod"}, "next": {"statusTemplate": "a: b", "statusPatchAs": {"username": "u"}}}),
            "spec.next.statusPatchAs: impersonation",
        ),
    ] {
        let errors = parse("s", &spec).expect_err("invalid");
        assert!(errors.len() == 1 && errors[0].starts_with(want), "{errors:?}, not {want:?}");
    }
}

/// Returns the name and the spec of a Stage that records an event after a delay. The event's reason is the Stage's name.
fn event(name: &str, milliseconds: u64) -> (&str, Value) {
    let delay = json!({"durationMilliseconds": milliseconds});
    (name, json!({"selector": {}, "delay": delay, "next": {"event": {"reason": name}}}))
}

/// Returns the reasons of a decision's events. Checks that they are the names of the performed Stages.
fn reasons(decision: &Decision) -> Vec<&str> {
    let reason = |(_, action): &'_ (usize, Action)| match action {
        Action::Event(event) => event.reason.clone(),
        other => panic!("{other:?}"),
    };
    let found: Vec<String> = decision.actions.iter().map(reason).collect();
    let names = decision.performed.iter().map(|pending| &*pending.stage.name).collect::<Vec<_>>();
    assert_eq!(found, names);
    names
}

#[test]
fn a_refused_request_resumes_the_stage_that_made_it() {
    let requirement = |operator: &str| json!({"matchExpressions": [{"key": ".metadata.deletionTimestamp", "operator": operator}]});
    let patches = json!([{"template": "a: b"}, {"template": "c: {{ randInt 0 1000000 }}"}]);
    let stages = set(&[
        (
            "run",
            json!({"selector": requirement("DoesNotExist"), "delay": {"durationMilliseconds": 60_000}, "next": {"statusTemplate": "a: b"}}),
        ),
        (
            "delete",
            json!({"selector": requirement("Exists"), "next": {"patches": patches, "delete": true}}),
        ),
    ]);
    let created = decide(&pod("1"), &stages, &Memory::default(), 0);
    assert_eq!(created.wake, Some(at(60)));
    let mut deleted = pod("2");
    deleted["metadata"]["deletionTimestamp"] = json!("1970-01-01T00:00:05Z");
    let refused = decide(&deleted, &stages, &created.memory, 5);
    assert_eq!(refused.actions.len(), 3);
    // The first patch succeeds, the second one does not.
    let mut memory = refused.memory.clone();
    memory.resume(refused.performed.clone().expect("a Stage"), 1, Some("3".to_owned()));
    deleted["metadata"]["resourceVersion"] = json!("3");
    let resumed = decide(&deleted, &stages, &memory, 6);
    assert_eq!(resumed.actions, refused.actions[1..], "with the same draws");
    // Another client changes the object.
    deleted["metadata"]["resourceVersion"] = json!("4");
    let redrawn = decide(&deleted, &stages, &memory, 6);
    assert_eq!(redrawn.actions.len(), 3);
    assert_ne!(redrawn.actions[1], refused.actions[1], "another draw");
}

#[test]
fn a_change_of_other_stages_keeps_the_chosen_one() {
    let mut stages = set(&[event("late", 10_000)]);
    let first = decide(&pod("1"), &stages, &Memory::default(), 0);
    stages.stages.extend(set(&[event("early", 1000)]).stages);
    stages.generation = 2;
    let kept = decide(&pod("1"), &stages, &first.memory, 4);
    assert_eq!(kept.wake, Some(at(10)));
    assert_eq!(reasons(&decide(&pod("1"), &stages, &kept.memory, 10)), ["late"]);
    // The chosen Stage is replaced.
    let mut replaced = set(&[event("late", 10_000)]);
    replaced.generation = 3;
    assert_eq!(decide(&pod("1"), &replaced, &kept.memory, 4).wake, Some(at(14)));
}

#[test]
fn a_failing_expression_stops_no_other_stage() {
    let cel = |source: &str| json!({"cel": {"expression": source}});
    let select = |source: &str| json!({"matchExpressions": [cel(source)]});
    let event = json!({"event": {"reason": "good"}});
    let bad =
        json!({"selector": select("self.spec.hostNetwork == true"), "next": {"delete": true}});
    let odd = json!({"selector": select("self.spec.replicas"), "next": {"delete": true}});
    let good = json!({
        "selector": {}, "delay": {"durationFrom": cel("self.spec.none")}, "next": event,
    });
    let stages = set(&[("bad", bad), ("odd", odd), ("good", good.clone())]);
    let decision = decide(&pod("1"), &stages, &Memory::default(), 0);
    assert_eq!(reasons(&decision), ["good"]);
    let want = [
        "Stage bad: spec.selector: no such key: hostNetwork",
        "Stage odd: spec.selector: its type is int, not bool",
        "Stage good: spec.delay.durationFrom: no such key: none",
    ];
    assert_eq!(decision.errors, want);
    let again = decide(&pod("2"), &stages, &decision.memory, 1);
    assert_eq!(reasons(&again), ["good"]);
    assert_eq!(again.errors, [""; 0], "reported once");
    // A Stage is not picked if its weight expression fails. Bools and fractions are valid weights.
    let weighted = |source: &str, reason: &str| json!({"selector": {}, "weightFrom": cel(source), "next": {"event": {"reason": reason}}});
    for weight in ["true", "1.5", "duration('1s')", "self.spec.replicas"] {
        let stages = set(&[
            ("fails", weighted("self.spec.none", "fails")),
            ("false", weighted("false", "false")),
            ("text", weighted("'9'", "text")),
            ("good", weighted(weight, "good")),
        ]);
        for version in 0..20 {
            let decision = decide(&pod(&version.to_string()), &stages, &Memory::default(), 0);
            assert_eq!(reasons(&decision), ["good"], "{weight}");
            assert_eq!(decision.errors.len(), 2, "{:?}", decision.errors);
        }
    }
}

#[test]
fn cycles_without_a_delay_are_slowed_down() {
    let stages = [set(&[event("a", 0)]), set(&[event("b", 5)])];
    let (mut memory, mut n_plays, mut second) = (Memory::default(), 0, 0);
    for version in 0..100 {
        let mut decision =
            decide(&pod(&version.to_string()), &stages[version % 2], &memory, second);
        while let Some(wake) = decision.wake {
            second = wake.as_second().max(second) + i64::from(wake.subsec_nanosecond() > 0);
            decision =
                decide(&pod(&version.to_string()), &stages[version % 2], &decision.memory, second);
        }
        n_plays += decision.actions.len();
        memory = decision.memory;
    }
    assert_eq!(n_plays, 100);
    assert!(second >= 89, "{second}");
    // Stages with a pause do not count as a cycle.
    let mut memory = Memory::default();
    for n in 0..50 {
        let decision = decide(&pod(&n.to_string()), &stages[0], &memory, 2 * n);
        assert_eq!(reasons(&decision), ["a"], "{n}");
        memory = decision.memory;
    }
}

#[test]
fn steps_before_a_failing_one_happen() {
    let steps = json!([
        {"event": {"reason": "a"}},
        {"patch": {"template": "a: b"}},
        {"event": {"reason": "b"}, "patch": {"template": "{{ fail \"no\" }}"}},
        {"delete": true},
    ]);
    let stages = set(&[("s", json!({"selector": {}, "steps": steps}))]);
    let decision = decide(&pod("1"), &stages, &Memory::default(), 0);
    let steps: Vec<usize> = decision.actions.iter().map(|(step, _)| *step).collect();
    assert_eq!(steps, [0, 1, 2]);
    assert_eq!(decision.failure.as_deref(), Some("Stage s: step 2: fail: no"));
}

#[test]
fn draws_of_templates_depend_on_the_stage_and_the_number_of_plays() {
    let next = json!({"statusTemplate": "a: {{ randAlphaNum 20 }}"});
    let stage = |name| set(&[(name, json!({"selector": {}, "next": next}))]);
    let first = decide(&pod("1"), &stage("s"), &Memory::default(), 0);
    let same = decide(&pod("77"), &stage("s"), &Memory::default(), 5);
    assert_eq!(first.actions, same.actions, "neither time nor version count");
    let second = decide(&pod("2"), &stage("s"), &first.memory, 1);
    assert_ne!(first.actions, second.actions);
    let other = decide(&pod("1"), &stage("t"), &Memory::default(), 0);
    assert_ne!(first.actions, other.actions);
}
