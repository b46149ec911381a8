//! The server's own counters, in the text form of Prometheus and under upstream's names.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};

use crate::api::Api;

/// Counters of requests by verb, group, version, resource, sub-resource and code.
#[derive(Default)]
pub(crate) struct Metrics {
    requests: Mutex<BTreeMap<Key, u64>>,
    watches: std::sync::atomic::AtomicI64,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    verb: &'static str,
    group: std::sync::Arc<str>,
    version: std::sync::Arc<str>,
    resource: std::sync::Arc<str>,
    subresource: std::sync::Arc<str>,
    scope: &'static str,
    code: u16,
}

/// What a request was, for counting.
#[derive(Clone, Default)]
pub(crate) struct Labels {
    pub(crate) verb: &'static str,
    pub(crate) group: std::sync::Arc<str>,
    pub(crate) version: std::sync::Arc<str>,
    pub(crate) resource: std::sync::Arc<str>,
    pub(crate) subresource: std::sync::Arc<str>,
    pub(crate) scope: &'static str,
}

impl Metrics {
    /// Counts an answered request.
    pub(crate) fn count(&self, labels: Labels, code: u16) {
        let Labels { verb, group, version, resource, subresource, scope } = labels;
        let key = Key { verb, group, version, resource, subresource, scope, code };
        *self.requests.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_default() += 1;
    }

    /// One watch more, or less.
    pub(crate) fn watches(&self, by: i64) {
        self.watches.fetch_add(by, std::sync::atomic::Ordering::Relaxed);
    }

    /// Everything as text.
    pub(crate) fn render(&self, api: &Api) -> String {
        let mut out = String::from(
            "# HELP apiserver_request_total [STABLE] Counter of apiserver requests broken out for each verb, dry run value, group, version, resource, scope, component, and HTTP response code.\n# TYPE apiserver_request_total counter\n",
        );
        for (key, count) in self.requests.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let _ = writeln!(
                out,
                "apiserver_request_total{{code=\"{}\",component=\"apiserver\",dry_run=\"\",group=\"{}\",resource=\"{}\",scope=\"{}\",subresource=\"{}\",verb=\"{}\",version=\"{}\"}} {count}",
                key.code,
                key.group,
                key.resource,
                key.scope,
                key.subresource,
                key.verb,
                key.version
            );
        }
        out.push_str("# HELP apiserver_longrunning_requests [STABLE] Gauge of all active long-running apiserver requests broken out by verb, group, version, resource, scope and component. Not all requests are tracked this way.\n# TYPE apiserver_longrunning_requests gauge\n");
        let watches = self.watches.load(std::sync::atomic::Ordering::Relaxed);
        let _ = writeln!(
            out,
            "apiserver_longrunning_requests{{component=\"apiserver\",verb=\"WATCH\"}} {watches}"
        );
        out.push_str("# HELP apiserver_resource_objects [STABLE] Number of stored objects at the time of last check split by kind.\n# TYPE apiserver_resource_objects gauge\n");
        for resource in api.table.rows().all.iter().filter(|r| r.stored) {
            let count = api.store.count(&resource.shelf);
            if count > 0 {
                let _ = writeln!(
                    out,
                    "apiserver_resource_objects{{group=\"{}\",resource=\"{}\"}} {count}",
                    resource.group(),
                    resource.plural()
                );
            }
        }
        out
    }
}
