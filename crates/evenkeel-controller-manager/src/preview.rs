//! The controllers' planners for the console, which previews edits of objects with them.

use crate::offline::Offline;
use evenkeel_console::{Planners, PreviewReports};
use evenkeel_runtime::{
    clock::Clock,
    discovery::ServerResources,
    introspect::{ObjectReport, Subject},
};
use futures::future::BoxFuture;
use std::sync::Arc;

/// Planners of all controllers, over a read-only connection.
#[derive(Debug, Clone, Copy)]
pub struct Previews;

impl Planners for Previews {
    fn start<'a>(
        &'a self,
        kube: kube::Client,
        clock: &'a Clock,
        resources: Arc<ServerResources>,
        subject: &'a Subject,
    ) -> BoxFuture<'a, Result<Box<dyn PreviewReports>, String>> {
        Box::pin(async move {
            let offline = Offline::start(kube, clock, resources, subject).await;
            let offline = offline.map_err(|error| format!("{error:#}"))?;
            Ok(Box::new(offline) as Box<dyn PreviewReports>)
        })
    }
}

impl PreviewReports for Offline {
    fn of<'a>(&'a self, subject: &'a Subject) -> BoxFuture<'a, Result<Vec<ObjectReport>, String>> {
        Box::pin(async move { self.reports(subject).await.map_err(|error| format!("{error:#}")) })
    }

    fn stop(&self) -> BoxFuture<'_, ()> {
        Box::pin(Self::stop(self))
    }
}
