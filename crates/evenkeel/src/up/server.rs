//! Embedded API server of `evenkeel up`.

use super::Args;
use crate::server;
use anyhow::{Context, Result};
use evenkeel_apiserver::Server;
use std::net::SocketAddr;

/// Opens the store, creates the certificates and builds the server.
pub(super) async fn build(args: &Args, address: SocketAddr) -> Result<Server> {
    let gates = &args.components.feature_gates;
    let is_sharded = gates.get(server::SHARDED_LIST_AND_WATCH).copied().unwrap_or_default();
    let builder = server::configure(&args.server, address, None)?
        .data_dir(args.data_dir.clone())
        .sharded_list_and_watch(is_sharded);
    builder.build().await.context("the API server cannot start")
}
