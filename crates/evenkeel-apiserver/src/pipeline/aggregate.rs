//! Aggregation stage: finds the extension API server that a request is for.

use std::sync::Arc;

use crate::aggregation::remotes::Remote;
use crate::api::Api;
use crate::openapi;

/// Returns the registered extension API that serves a path: a path of this API, or that of its OpenAPI v3 document.
pub(super) fn remote(api: &Api, path: &str) -> Option<Arc<Remote>> {
    let remotes = api.aggregation.current();
    if let Some(remote) = remotes.of_path(path) {
        return Some(remote.clone());
    }
    let name = path.strip_prefix("/openapi/v3/").filter(|_| !remotes.by_name.is_empty())?;
    remotes.of_openapi(name).filter(|_| !openapi::is_own(api, name)).cloned()
}
