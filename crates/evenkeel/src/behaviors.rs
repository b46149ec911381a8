//! The definition of Behaviors, which `evenkeel up` installs.

use anyhow::{Context as _, Result, bail};
use evenkeel_api::Kind;
use evenkeel_nodes::{BEHAVIOR_DEFINITION, behavior_definition};
use evenkeel_runtime::{
    client::{Client, Metadata},
    plan::Target,
};
use std::time::Duration;

const FIELD_MANAGER: &str = "evenkeel";

/// Interval at which the definition is read until it is served.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Maximum number of reads of the definition: ten seconds.
const MAX_POLLS: usize = 2000;

/// Path at which Behaviors are served.
const SERVED_AT: &str = "/apis/sim.evenkeel.dev/v1alpha1/behaviors?limit=1";

/// Installs the definition, or the newer one in a data folder of an older version. Waits until it is served.
///
/// # Errors
/// When the server refuses the definition, or does not serve it.
pub(crate) async fn install(client: &Client) -> Result<()> {
    let (group, plural) = ("apiextensions.k8s.io", "customresourcedefinitions");
    let target = Target {
        kind: Kind::new(group, "v1", "CustomResourceDefinition", plural, false),
        namespace: "".into(),
        name: BEHAVIOR_DEFINITION.into(),
        uid: "".into(),
    };
    let body = behavior_definition().to_string().into();
    let applied = client.apply::<Metadata>(&target, FIELD_MANAGER, true, body).await;
    applied.with_context(|| format!("the definition {BEHAVIOR_DEFINITION} is refused"))?;
    for _ in 0..MAX_POLLS {
        let request = http::Request::get(SERVED_AT).body(Default::default())?;
        if client.raw(request).await.is_ok_and(|answer| answer.status().is_success()) {
            return Ok(());
        }
        client.clock().sleep(POLL_INTERVAL).await;
    }
    bail!("the definition {BEHAVIOR_DEFINITION} is not served")
}
