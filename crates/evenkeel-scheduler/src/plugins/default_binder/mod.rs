//! DefaultBinder: binds a pod with a POST to its `binding` subresource.
//!
//! After a lost response or a server error, the pod may be bound. The plugin then repeats the POST, because the API
//! server binds a pod at most once, and finally reads the pod. Otherwise, the scheduler could assign the resources of a
//! running pod to other pods.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | `POST` of a Binding to `pods/NAME/binding` | `bind` |
//! | the Binding's `metadata.uid` as a precondition | `bind` |
//! | a binding whose response was lost (upstream does not handle it) | `plan::may_have_run`, `plan::is_bound` |

mod plan;

use evenkeel_api::{Meta, View, views::Pod};
use evenkeel_runtime::client::{ApiError, Client, Metadata};

use crate::{
    framework::{Bind, BindResult, ClusterEvent, Plugin, PluginFuture},
    pod::PodInfo,
};
use plan::{Failures, Next, binding, is_bound};

/// The DefaultBinder plugin. It only binds a pod that still has the uid of the scheduled one.
#[derive(Debug, Clone, Copy)]
pub struct DefaultBinder;

impl Plugin for DefaultBinder {
    fn name(&self) -> &'static str {
        "DefaultBinder"
    }

    fn events_to_register(&self) -> Vec<ClusterEvent> {
        Vec::new()
    }

    fn as_bind(&self) -> Option<&dyn Bind> {
        Some(self)
    }
}

impl Bind for DefaultBinder {
    fn bind<'a>(
        &'a self,
        client: &'a Client,
        pod: &'a PodInfo,
        node: &'a str,
    ) -> PluginFuture<'a, Result<BindResult, ApiError>> {
        let meta = &pod.pod.meta;
        let body = binding(meta, node);
        Box::pin(async move {
            let kind = Pod::kind();
            let namespace = &meta.namespace;
            let name = &meta.name;
            let post = async || {
                let body = body.clone().into();
                client.create_subresource::<Metadata>(&kind, namespace, name, "binding", body).await
            };
            let mut failures = Failures::default();
            loop {
                let Err(error) = post().await else { return Ok(BindResult::Bound) };
                match failures.record(&error) {
                    Next::Repeat(wait) => client.clock().sleep(wait).await,
                    Next::Read if is_bound_on_server(client, meta, node).await => {
                        return Ok(BindResult::Bound);
                    }
                    Next::Read | Next::Fail => return Err(error),
                }
            }
        })
    }
}

/// Returns whether the API server shows the pod on this node.
async fn is_bound_on_server(client: &Client, meta: &Meta, node: &str) -> bool {
    let current = client.get::<Pod>(&meta.namespace, &meta.name).await;
    current.is_ok_and(|current| is_bound(&current, meta, node))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        fixtures::{at, info, merge},
        scripted::{Answer, Script},
    };
    use evenkeel_runtime::clock::Clock;
    use serde_json::json;

    const POST: &str = "POST /api/v1/namespaces/shop/pods/p/binding";
    const GET: &str = "GET /api/v1/namespaces/shop/pods/p";

    /// Binds pod `p` to node `a` against these responses. Returns the result and the requests.
    async fn bind(answers: Vec<Answer>) -> (Result<BindResult, u16>, Vec<String>) {
        let script = Script::new(answers);
        let client = script.client(&Clock::starting_at(at(0)));
        let bound = DefaultBinder.bind(&client, &info("p", &json!({})), "a").await;
        (bound.map_err(|error| error.code()), script.take_calls())
    }

    /// Returns a response with a pod that has this uid and node.
    fn found(uid: &str, node: &str) -> Answer {
        let mut pod = json!({ "apiVersion": "v1", "kind": "Pod" });
        merge(&mut pod, &json!({ "metadata": { "name": "p", "namespace": "shop", "uid": uid } }));
        merge(&mut pod, &json!({ "spec": { "nodeName": node } }));
        Answer::object(pod)
    }

    #[tokio::test(start_paused = true)]
    async fn a_binding_whose_response_was_lost_is_verified() {
        let lost_then_conflict = || vec![Answer::Lost, Answer::status(409)];
        for (found, expected) in [
            (found("p", "a"), Ok(BindResult::Bound)),
            (found("p", "b"), Err(409)),
            (found("p", ""), Err(409)),
            (found("another", "a"), Err(409)),
            (Answer::status(404), Err(409)),
            (Answer::Lost, Err(409)),
        ] {
            let mut answers = lost_then_conflict();
            answers.push(found);
            let (bound, requests) = bind(answers).await;
            assert_eq!((bound, requests), (expected, [POST, POST, GET].map(str::to_owned).into()));
        }
        let done = Answer::object(json!({ "kind": "Status", "apiVersion": "v1", "metadata": {} }));
        let (bound, requests) = bind(vec![Answer::status(500), done]).await;
        assert_eq!((bound, requests.len()), (Ok(BindResult::Bound), 2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_definite_error_is_not_retried() {
        for code in [400, 404, 422] {
            let (bound, requests) = bind(vec![Answer::status(code)]).await;
            assert_eq!((bound, requests.len()), (Err(code), 1));
        }
        let (bound, requests) = bind(vec![Answer::status(409), found("p", "b")]).await;
        assert_eq!((bound, requests.len()), (Err(409), 2));
    }

    #[tokio::test(start_paused = true)]
    async fn retries_end_when_the_server_stays_unreachable() {
        let (bound, requests) = bind((0..9).map(|_| Answer::Lost).collect()).await;
        assert_eq!(
            (bound, requests),
            (Err(0), [POST, POST, POST, POST, GET].map(str::to_owned).into())
        );
    }
}
