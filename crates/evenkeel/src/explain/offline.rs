//! Controllers over a read-only connection, as the source of an explanation.

use anyhow::Result;
use evenkeel_controller_manager::offline;
use evenkeel_explain::Source;
use evenkeel_runtime::{
    clock::Clock,
    discovery::ServerResources,
    introspect::{ObjectReport, Subject},
};
use std::sync::Arc;

/// Controllers that never run, with caches of the object's namespace.
pub struct Offline(offline::Offline);

impl Offline {
    /// Sets up the controllers for reports about `subject` and its dependents. Reads nothing.
    ///
    /// # Errors
    /// Fails if a controller cannot be set up.
    pub async fn start(
        kube: kube::Client,
        clock: &Clock,
        resources: Arc<ServerResources>,
        subject: &Subject,
    ) -> Result<Self> {
        Ok(Self(offline::Offline::start(kube, clock, resources, subject).await?))
    }

    /// Stops the reflectors.
    pub async fn stop(&self) {
        self.0.stop().await;
    }
}

impl Source for Offline {
    type Error = anyhow::Error;

    async fn reports(&self, subject: &Subject) -> Result<Vec<ObjectReport>> {
        self.0.reports(subject).await
    }
}
