//! Planners of the cluster's controllers for previews: they report on objects as a client shows them, and write nothing.

use evenkeel_explain::Source;
use evenkeel_runtime::{
    clock::Clock,
    discovery::ServerResources,
    introspect::{ObjectReport, Subject},
};
use futures::future::BoxFuture;
use std::sync::Arc;

/// Planners that are set up for one preview. A program without controllers has none, so that it does not link them.
pub trait Planners: Send + Sync {
    /// Sets up the planners for reports about `subject` and its dependents, as `kube` shows them. Reads nothing.
    ///
    /// # Errors
    /// Fails if a controller cannot be set up.
    fn start<'a>(
        &'a self,
        kube: kube::Client,
        clock: &'a Clock,
        resources: Arc<ServerResources>,
        subject: &'a Subject,
    ) -> BoxFuture<'a, Result<Box<dyn PreviewReports>, String>>;
}

/// Reports of planners that were set up.
pub trait PreviewReports: Send + Sync {
    /// Returns the report of each controller that handles the object.
    ///
    /// # Errors
    /// Fails if the objects that the reports need cannot be read.
    fn of<'a>(&'a self, subject: &'a Subject) -> BoxFuture<'a, Result<Vec<ObjectReport>, String>>;

    /// Ends the reads.
    fn stop(&self) -> BoxFuture<'_, ()>;
}

/// Reports of planners as the source of an explanation.
pub(crate) struct Preview(pub(crate) Box<dyn PreviewReports>);

impl Source for Preview {
    type Error = String;

    async fn reports(&self, subject: &Subject) -> Result<Vec<ObjectReport>, String> {
        self.0.of(subject).await
    }
}
