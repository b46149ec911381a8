//! DefaultBinder: a POST to the pod's `binding`.

use evenkeel_api::{View, views::Pod};
use evenkeel_runtime::client::{ApiError, Client, Metadata};

use std::time::Duration;

use crate::{
    framework::{Bind, Interest, Pending, Plugin},
    pod::PodInfo,
};

/// After a trouble of the API server's own the binding is tried again, after so long each.
const WAITS: [Duration; 3] =
    [Duration::from_millis(10), Duration::from_millis(50), Duration::from_millis(250)];

/// Binds through the API server, to the very pod that was scheduled (by uid).
#[derive(Debug, Clone, Copy)]
pub struct DefaultBinder;

impl Plugin for DefaultBinder {
    fn name(&self) -> &'static str {
        "DefaultBinder"
    }

    fn events(&self) -> Vec<Interest> {
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
    ) -> Pending<'a, Result<bool, ApiError>> {
        let meta = &pod.pod.meta;
        let body = serde_json::json!({
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": { "name": meta.name, "namespace": meta.namespace, "uid": meta.uid },
            "target": { "kind": "Node", "name": node },
        })
        .to_string();
        Box::pin(async move {
            let (kind, namespace, name) = (Pod::kind(), &meta.namespace, &meta.name);
            let post = async || {
                let body = body.clone().into();
                client.create_subresource::<Metadata>(&kind, namespace, name, "binding", body).await
            };
            for wait in WAITS {
                match post().await {
                    Err(error) if matches!(error.code(), 500 | 503) => {
                        client.clock().sleep(wait).await;
                    }
                    answer => return answer.map(|_| true),
                }
            }
            post().await.map(|_| true)
        })
    }
}
