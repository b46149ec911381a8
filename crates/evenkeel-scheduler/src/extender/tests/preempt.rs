//! Tests of preemption with extenders: the candidates that they receive, and those that they keep.

use super::{
    Extender, build, config, fake_client, full_pod,
    server::{Reply, SentRequest, Server},
    set_up,
};
use crate::{
    extender::{ExtenderConfig, ExtenderManagedResource},
    fixtures::{info, merge, node, table, with_requests},
    framework::{self, CycleState, NominatingInfo, PostFilter as _, PostFilterResult, Profile},
    nodes::NodeTable,
    plugins::DefaultPreemption,
    pod::PodInfo,
    schedule::{Cycle, Nominator, View, schedule_pod},
};
use futures::FutureExt as _;
use serde_json::{Value, json};
use std::sync::Arc;

/// Returns a pod with this priority and CPU request. Each node has 4 CPUs.
fn pod(name: &str, priority: i32, cpu: &str) -> PodInfo {
    let mut spec = with_requests(cpu, "1Mi");
    merge(&mut spec, &json!({"spec": {"priority": priority}}));
    info(name, &spec)
}

/// Returns two full nodes: `a` runs `small` and `tiny`, which are less important than `other` on `b`.
fn nodes() -> NodeTable {
    let mut table = table(&[node("a", &json!({})), node("b", &json!({}))]);
    for (node, pod) in
        [("a", pod("small", 1, "2")), ("a", pod("tiny", 1, "1")), ("b", pod("other", 2, "3"))]
    {
        table.place(pod, node);
    }
    table
}

/// Runs the preemption with these extenders for a pod that needs a whole node.
async fn preempt(extenders: &[Arc<Extender>]) -> PostFilterResult {
    let extenders: Vec<Arc<dyn framework::Extender>> = extenders
        .iter()
        .map(|extender| Arc::clone(extender) as Arc<dyn framework::Extender>)
        .collect();
    let (profile, nominator) = (Profile::with_defaults("default-scheduler"), Nominator::default());
    let (mut nodes, pod, mut state) = (nodes(), pod("p", 10, "4"), CycleState::default());
    let view =
        View { profile: &profile, nodes: &mut nodes, nominator: &nominator, start_node_index: 0 };
    let mut cycle = Cycle::new(view, &pod, 7, &extenders);
    let outcome = schedule_pod(&mut cycle, &mut state, None).now_or_never().unwrap();
    let fit_error = outcome.result.expect_err("both nodes are full");
    DefaultPreemption::default().post_filter(&mut cycle, &state, &fit_error).await
}

/// Returns the outcome of `preempt` with one extender, and the requests that it received.
async fn preempt_with(
    configure: impl FnOnce(&mut ExtenderConfig),
    reply: impl Into<Reply>,
) -> (String, Vec<SentRequest>) {
    let server = Server::start(None, [reply.into()]).await;
    let mut config = preempt_config(&server);
    configure(&mut config);
    let result = preempt(&[build(config).unwrap()]).await;
    (outcome(&result), server.take_sent())
}

/// Returns the configuration of an extender that has only a preempt verb.
fn preempt_config(server: &Server) -> ExtenderConfig {
    ExtenderConfig {
        filter_verb: String::new(),
        prioritize_verb: String::new(),
        bind_verb: String::new(),
        ..config(format!("http://{}", server.address))
    }
}

/// Returns the nominated node and the number of victims, or the message if there is no candidate.
fn outcome(result: &PostFilterResult) -> String {
    let success_prefix = "preemption: found a potential placement for pod on node ";
    match (&result.nominating_info, result.message.strip_prefix(success_prefix)) {
        (NominatingInfo::Node(node), Some(placement)) => {
            assert!(result.done && placement.starts_with(&**node), "{result:?}");
            placement.to_owned()
        }
        (nominating_info, _) => {
            assert_eq!(*nominating_info, NominatingInfo::Keep);
            result.message.strip_prefix("preemption: ").unwrap().to_owned()
        }
    }
}

/// Victims on one node in the extender's wire format.
fn victims(node: &str, uids: &[&str], num_pdb_violations: i64) -> Value {
    let pods: Vec<Value> = uids.iter().map(|uid| json!({"UID": uid})).collect();
    json!({node: {"Pods": pods, "NumPDBViolations": num_pdb_violations}})
}

/// Returns the response of an extender that keeps these candidates.
fn response(nodes: &Value) -> Value {
    json!({"NodeNameToMetaVictims": nodes})
}

/// Outcome without an extender.
const OUTCOME_WITHOUT_EXTENDER: &str = "a, preempting 2 victims";

#[tokio::test]
async fn an_extender_with_a_node_cache_receives_uids_of_victims() {
    let (found, sent) = preempt_with(|_| {}, response(&victims("b", &["other"], 0))).await;
    assert_eq!(found, "b, preempting 1 victims", "the extender removed the better candidate");
    assert_eq!(sent[0].path, "/preempt");
    let mut offered = victims("a", &["small", "tiny"], 0);
    merge(&mut offered, &victims("b", &["other"], 0));
    let body = json!({
        "Pod": full_pod("p"), "NodeNameToVictims": null, "NodeNameToMetaVictims": offered,
    });
    assert_eq!(sent[0].body, body);
}

#[tokio::test]
async fn an_extender_without_a_node_cache_receives_full_pods() {
    let reply = response(&victims("a", &["small", "tiny"], 0));
    let (found, sent) = preempt_with(|config| config.node_cache_capable = false, reply).await;
    assert_eq!(found, OUTCOME_WITHOUT_EXTENDER);
    let full_victims = |pods: &[&str]| {
        let pods: Vec<Value> = pods.iter().map(|name| full_pod(name)).collect();
        json!({"Pods": pods, "NumPDBViolations": 0})
    };
    let offered = json!({"a": full_victims(&["small", "tiny"]), "b": full_victims(&["other"])});
    let body = json!({
        "Pod": full_pod("p"), "NodeNameToVictims": offered, "NodeNameToMetaVictims": null,
    });
    assert_eq!(sent[0].body, body);
}

#[tokio::test]
async fn preemption_selects_among_the_candidates_that_an_extender_keeps() {
    // The extender also keeps the candidate b.
    let with_b = |first: &Value| {
        let mut candidates = first.clone();
        merge(&mut candidates, &victims("b", &["other"], 0));
        response(&candidates)
    };
    for (reply, expected) in [
        // The extender returns fewer victims.
        (with_b(&victims("a", &["tiny"], 0)), "a, preempting 1 victims"),
        // The extender reports a violated PodDisruptionBudget.
        (with_b(&victims("a", &["small", "tiny"], 1)), "b, preempting 1 victims"),
        (response(&json!({})), "no candidate node for preemption"),
        (json!({"nodeNameToMetaVictims": null}), "no candidate node for preemption"),
        (json!({}), "no candidate node for preemption"),
    ] {
        for ignorable in [false, true] {
            let (found, _) = preempt_with(
                |config| config.ignorable = ignorable,
                Reply::Json(200, reply.clone()),
            )
            .await;
            assert_eq!(found, expected, "{reply}");
        }
    }
}

#[tokio::test]
async fn an_ignorable_extender_is_skipped_if_it_fails() {
    let no_pods = victims("b", &[], 0);
    let mut with_a = no_pods.clone();
    merge(&mut with_a, &victims("a", &["small"], 0));
    for (reply, error, outcome_if_ignorable) in [
        (
            Reply::Json(500, json!({})),
            "failed preempt with extender at URL ",
            OUTCOME_WITHOUT_EXTENDER,
        ),
        (Reply::Text("nonsense"), "expected ident", OUTCOME_WITHOUT_EXTENDER),
        (
            response(&victims("c", &["other"], 0)).into(),
            "nodeinfo not found for node name \"c\"",
            OUTCOME_WITHOUT_EXTENDER,
        ),
        (
            response(&victims("a", &["other"], 0)).into(),
            "claims to preempt pod (UID: &{other}) on node: a, but the pod is not found on that node",
            OUTCOME_WITHOUT_EXTENDER,
        ),
        (
            response(&no_pods).into(),
            "expected at least one victim pod on node \"b\"",
            "no candidate node for preemption",
        ),
        (
            response(&with_a).into(),
            "expected at least one victim pod on node \"b\"",
            "a, preempting 1 victims",
        ),
    ] {
        let same_reply = match &reply {
            Reply::Json(status, value) => Reply::Json(*status, value.clone()),
            Reply::Text(text) => Reply::Text(text),
            Reply::Never => Reply::Never,
        };
        let (found, _) = preempt_with(|_| {}, reply).await;
        assert!(found.contains(error), "{found}");
        let (found, _) = preempt_with(|config| config.ignorable = true, same_reply).await;
        assert_eq!(found, outcome_if_ignorable, "{error}");
    }
}

#[tokio::test]
async fn each_extender_receives_the_candidates_that_earlier_ones_kept() {
    let first = Server::start(None, [response(&victims("b", &["other"], 3)).into()]).await;
    let second = Server::start(None, [response(&json!({})).into()]).await;
    let third = Server::start(None, []).await;
    let configs = [&first, &second, &third].map(preempt_config);
    let (client, caches) = fake_client();
    let extenders = set_up(&configs, &client, &caches).unwrap();
    assert_eq!(outcome(&preempt(&extenders).await), "no candidate node for preemption");
    let offered = &second.take_sent()[0].body["NodeNameToMetaVictims"];
    assert_eq!(*offered, victims("b", &["other"], 3));
    assert_eq!(third.take_sent().len(), 0, "no candidate is left for the third extender");
}

#[tokio::test]
async fn preemption_skips_extenders_that_are_not_interested() {
    let managed = ExtenderManagedResource { name: "a.b/c".to_owned(), ignored_by_scheduler: false };
    let (found, sent) =
        preempt_with(|config| config.managed_resources = vec![managed], Reply::Never).await;
    assert_eq!((&*found, sent.len()), (OUTCOME_WITHOUT_EXTENDER, 0));
    let (found, sent) =
        preempt_with(|config| config.preempt_verb = String::new(), Reply::Never).await;
    assert_eq!((&*found, sent.len()), (OUTCOME_WITHOUT_EXTENDER, 0));
}
