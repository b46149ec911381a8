//! Embedded API server of `evenkeel up`.

use super::{Args, access::Access};
use crate::server;
use anyhow::{Context, Result};
use evenkeel_apiserver::{Server, User};
use std::net::SocketAddr;

/// Opens the store, creates the certificates and builds the server, which knows these users.
pub(super) async fn build(args: &Args, address: SocketAddr, users: &[Access]) -> Result<Server> {
    let mut builder = server::configure(&args.server, address, None)?
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
