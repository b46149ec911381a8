//! Embedded API server of `evenkeel up`.

use super::{Args, access::Access};
use crate::{server, time::ClusterTime};
use anyhow::{Context, Result};
use evenkeel_apiserver::{Clock, Server, User};
use std::net::SocketAddr;

/// Builds the server: opens the store, creates the certificates, and adds these users with their tokens. Its clock follows
/// `time`, or the system's time without it.
pub(super) async fn build(
    args: &Args,
    address: SocketAddr,
    users: &[Access],
    time: Option<ClusterTime>,
) -> Result<Server> {
    let clock = time.map_or_else(Clock::system, |time| Clock::new(move || time.now()));
    let mut builder = server::configure(&args.server, address, None)?
        .clock(clock)
        .data_dir(args.data_dir.clone())
        .sharded_list_and_watch(args.has_feature(server::SHARDED_LIST_AND_WATCH)?);
    if let Some(audit) = &args.components.audit {
        builder = builder.audit(audit.options()?);
    }
    for access in users {
        let groups = access.user.groups.iter().map(String::as_str);
        builder = builder.token(&access.token, User::authenticated(&access.user.name, groups));
    }
    builder.build().await.context("the API server cannot start")
}
