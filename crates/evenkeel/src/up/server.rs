//! Embedded API server of `evenkeel up`.

use super::Args;
use crate::server;
use anyhow::{Context, Result};
use evenkeel_apiserver::Server;
use evenkeel_plane::Plane;
use std::net::SocketAddr;

/// Opens the store, creates the certificates and builds the server.
pub(super) async fn build(args: &Args, address: SocketAddr) -> Result<Server> {
    let builder = server::configure(&args.server, address)?.data_dir(args.data_dir.clone());
    builder.build().await.context("the API server cannot start")
}

/// Lists the parts of this process in `componentstatuses`.
pub(super) fn list_components(server: &Server, plane: &Plane) {
    for (name, tasks) in plane.components() {
        let tasks = tasks.clone();
        server.component(name, move || match tasks.running().is_empty() {
            false => Ok(()),
            true => Err("it does not run in this process".to_owned()),
        });
    }
}
