//! Embedded API server of `evenkeel up`.

use super::Args;
use crate::{server, time::ClusterTime};
use anyhow::{Context, Result};
use evenkeel_apiserver::{Clock, Server};
use std::net::SocketAddr;

/// Opens the store, creates the certificates and builds the server, with the system's time or another one.
pub(super) async fn build(
    args: &Args,
    address: SocketAddr,
    time: Option<ClusterTime>,
) -> Result<Server> {
    let gates = &args.components.feature_gates;
    let is_sharded = gates.get(server::SHARDED_LIST_AND_WATCH).copied().unwrap_or_default();
    let clock = time.map_or_else(Clock::system, |time| Clock::new(move || time.now()));
    let builder = server::configure(&args.server, address, None)?
        .clock(clock)
        .data_dir(args.data_dir.clone())
        .sharded_list_and_watch(is_sharded);
    builder.build().await.context("the API server cannot start")
}
