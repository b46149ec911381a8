//! The CustomResourceDefinitions of Behaviors and Stages, which `evenkeel up` installs.

use anyhow::{Context as _, Result, bail};
use evenkeel_api::Kind;
use evenkeel_nodes::{
    BEHAVIOR_DEFINITION, STAGE_DEFINITION, behavior_definition, stage_definition,
};
use evenkeel_runtime::{
    client::{Client, Metadata},
    plan::Target,
};
use serde_json::Value;
use std::time::Duration;

const FIELD_MANAGER: &str = "evenkeel";

/// Interval at which the definition is read until it is served.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Maximum number of reads of the definition: ten seconds.
const MAX_POLLS: usize = 2000;

/// Paths at which Behaviors and Stages are served.
const SERVED_AT: [&str; 2] = [
    "/apis/sim.evenkeel.dev/v1alpha1/behaviors?limit=1",
    "/apis/kwok.x-k8s.io/v1alpha1/stages?limit=1",
];

/// Installs the CustomResourceDefinitions, or updates those in a data folder of an older version. Waits until they are served.
///
/// # Errors
/// Fails if the server rejects a definition, or does not serve it.
pub(crate) async fn install(client: &Client) -> Result<()> {
    let [behaviors, stages] = SERVED_AT;
    apply(client, BEHAVIOR_DEFINITION, &behavior_definition()).await?;
    apply(client, STAGE_DEFINITION, &stage_definition()).await?;
    wait(client, BEHAVIOR_DEFINITION, behaviors).await?;
    wait(client, STAGE_DEFINITION, stages).await
}

/// Applies a definition.
async fn apply(client: &Client, name: &str, definition: &Value) -> Result<()> {
    let (group, plural) = ("apiextensions.k8s.io", "customresourcedefinitions");
    let target = Target {
        kind: Kind::new(group, "v1", "CustomResourceDefinition", plural, false),
        namespace: "".into(),
        name: name.into(),
        uid: "".into(),
    };
    let body = definition.to_string().into();
    let applied = client.apply::<Metadata>(&target, FIELD_MANAGER, true, body).await;
    applied.map(drop).with_context(|| format!("the definition {name} is refused"))
}

/// Waits until a definition is served.
async fn wait(client: &Client, name: &str, served_at: &str) -> Result<()> {
    for _ in 0..MAX_POLLS {
        let request = http::Request::get(served_at).body(Default::default())?;
        if client.raw(request).await.is_ok_and(|answer| answer.status().is_success()) {
            return Ok(());
        }
        client.clock().sleep(POLL_INTERVAL).await;
    }
    bail!("the definition {name} is not served")
}
