//! Options of the store in etcd, from kube-apiserver's flags.

use crate::server;
use anyhow::Result;
use evenkeel_apiserver::EtcdOptions;
use evenkeel_component::flags::Reader;
use std::{path::PathBuf, time::Duration};

/// Only encoding of built-in kinds.
const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// Validated options. The files are read when the server starts.
#[derive(Debug)]
pub(super) struct EtcdFlags {
    servers: Vec<String>,
    prefix: String,
    ca: Option<PathBuf>,
    /// Files of the client's certificate and of its key.
    client: Option<[PathBuf; 2]>,
    compaction_interval: Duration,
}

/// Reads the flags. Returns `None` without `--etcd-servers`: the server then keeps the objects itself.
pub(super) fn flags(read: &Reader) -> Option<EtcdFlags> {
    let flags = EtcdFlags {
        servers: read.list("etcd-servers"),
        prefix: read.text("etcd-prefix"),
        ca: read.non_empty_text("etcd-cafile").map(PathBuf::from),
        client: server::certificate_and_key(read, "etcd-certfile", "etcd-keyfile"),
        compaction_interval: read.duration("etcd-compaction-interval"),
    };
    if !read.list("etcd-servers-overrides").is_empty() {
        let why =
            "--etcd-servers-overrides is not in this server: all objects are at --etcd-servers";
        read.record_invalid("etcd-servers-overrides", why);
    }
    let media_type = read.text("storage-media-type");
    if media_type != MEDIA_TYPE && !flags.servers.is_empty() {
        let why = format!("--storage-media-type must be {MEDIA_TYPE} in this server");
        read.record_invalid("storage-media-type", why);
    }
    if flags.prefix.trim_matches('/').is_empty() {
        read.record_invalid("etcd-prefix", "--etcd-prefix must not be empty");
    }
    (!flags.servers.is_empty()).then_some(flags)
}

impl EtcdFlags {
    /// Reads the files.
    pub(super) fn options(&self) -> Result<EtcdOptions> {
        let ca = self.ca.as_ref().map(|path| server::read_file("etcd-cafile", path));
        let client = self.client.as_ref().map(|[certificate, key]| {
            let certificate = server::read_file("etcd-certfile", certificate)?;
            Ok::<_, anyhow::Error>([certificate, server::read_file("etcd-keyfile", key)?])
        });
        Ok(EtcdOptions {
            servers: self.servers.clone(),
            prefix: self.prefix.clone(),
            ca: ca.transpose()?,
            client: client.transpose()?,
            compaction_interval: self.compaction_interval,
        })
    }
}
