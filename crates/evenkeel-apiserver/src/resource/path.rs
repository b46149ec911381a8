//! Parsing of API paths.

use std::sync::Arc;

use super::table::Rows;
use super::types::ResourceType;

/// Parsed API path. It borrows from the request's decoded path.
#[derive(Debug, Clone)]
pub(crate) enum Path<'a> {
    /// Object, collection or subresource of a known resource.
    Resource(Target<'a>),
    /// Known group and version with an unknown resource.
    UnknownResource,
    /// Custom resource, the name of an object, and a subresource that the custom resource does not have.
    UnknownSubresource(Arc<ResourceType>, &'a str),
    /// Any other path, such as discovery, health or an unknown path.
    Other,
}

/// Returns whether a subresource is a connection to a process or a port. The server only forwards its bytes.
pub(crate) fn is_connection(subresource: &str) -> bool {
    matches!(subresource, "attach" | "exec" | "portforward" | "proxy")
}

/// Returns whether requests for a subresource are long-running: connections and logs.
///
/// Upstream: `BasicLongRunningRequestCheck`.
pub(crate) fn is_long_running_subresource(subresource: &str) -> bool {
    is_connection(subresource) || subresource == "log"
}

/// Object or collection that a path names.
#[derive(Debug, Clone)]
pub(crate) struct Target<'a> {
    /// Resource that the path names.
    pub(crate) resource: Arc<ResourceType>,
    /// Namespace; empty for cluster-scoped resources and for all namespaces.
    pub(crate) namespace: &'a str,
    /// Name; empty for a collection.
    pub(crate) name: &'a str,
    /// Subresource; empty for the object itself.
    pub(crate) subresource: &'a str,
}

impl Target<'_> {
    /// Returns whether this is the collection of a custom resource in all namespaces.
    pub(crate) fn is_custom_in_all_namespaces(&self) -> bool {
        self.resource.custom.is_some() && self.resource.namespaced && self.namespace.is_empty()
    }
}

/// Parses a path such as `/api/v1/namespaces/ns/pods/p/status` or `/apis/apps/v1/deployments`.
pub(crate) fn parse<'a>(path: &'a str, rows: &Rows) -> Path<'a> {
    let Some((api_version, rest)) = split_version(path) else { return Path::Other };
    if rest.is_empty() || !rows.has_version(api_version) {
        return Path::Other;
    }
    // Upstream's handlers of built-in groups and of custom resources respond differently to unknown paths.
    let unknown = match rows.all.iter().find(|row| *row.api_version == *api_version) {
        Some(row) if row.custom.is_some() => Path::Other,
        _ => Path::UnknownResource,
    };
    // A proxy request may have empty segments after `/proxy/`.
    let before_proxy = path.find("/proxy/").unwrap_or(path.len());
    if path.get(..before_proxy).is_some_and(|path| path.contains("//")) {
        return unknown;
    }
    let core = api_version == "v1";
    let parts: Vec<&str> = rest.strip_suffix('/').unwrap_or(rest).split('/').collect();
    let (namespace, parts) = match parts.as_slice() {
        // `/namespaces/x/status` is a subresource of the namespace, but `/namespaces/x/pods` is a collection in it.
        ["namespaces", ns, resource, more @ ..]
            if !(core && is_namespace_subresource(resource, more)) =>
        {
            (*ns, [&[*resource], more].concat())
        }
        other => ("", other.to_vec()),
    };
    let Some(resource) = parts.first().and_then(|plural| rows.get(api_version, plural)) else {
        return unknown;
    };
    if resource.namespaced == namespace.is_empty() && (parts.len() > 1 || !namespace.is_empty()) {
        // The path of a namespaced object needs a namespace, and that of a cluster-scoped object must not have one.
        return unknown;
    }
    let name = parts.get(1).copied().unwrap_or_default();
    let subresource = parts.get(2).copied().unwrap_or_default();
    if !subresource.is_empty() && resource.subresource(subresource).is_none() {
        return match &resource.custom {
            Some(_) => Path::UnknownSubresource(resource.clone(), name),
            None => unknown,
        };
    }
    // Only the path of a proxy request may be longer.
    if parts.len() > 3 && subresource != "proxy" {
        return Path::UnknownResource;
    }
    Path::Resource(Target { resource: resource.clone(), namespace, name, subresource })
}

/// Splits `/api/v1/pods` into `v1` and `pods`, and `/apis/apps/v1/x` into `apps/v1` and `x`.
fn split_version(path: &str) -> Option<(&str, &str)> {
    if let Some(rest) = path.strip_prefix("/api/") {
        return rest.split_once('/');
    }
    let rest = path.strip_prefix("/apis/")?;
    let group = rest.find('/')?;
    let version = group + 1 + rest[group + 1..].find('/')?;
    Some((&rest[..version], &rest[version + 1..]))
}

/// Returns whether the last segment of a path below a namespace is a subresource of the Namespace.
fn is_namespace_subresource(segment: &str, more: &[&str]) -> bool {
    more.is_empty() && matches!(segment, "status" | "finalize")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::Table;

    /// Formats the parsed path.
    fn shown(path: &str) -> String {
        match parse(path, &Table::builtin().rows()) {
            Path::Resource(t) => format!(
                "{} ns={} name={} sub={}",
                t.resource.name, t.namespace, t.name, t.subresource
            ),
            Path::UnknownResource => "unknown".to_owned(),
            Path::UnknownSubresource(resource, name) => {
                format!("no such part of {} {name}", resource.name)
            }
            Path::Other => "other".to_owned(),
        }
    }

    #[test]
    fn paths_name_a_resource_an_object_and_a_subresource() {
        for (path, want) in [
            ("/api/v1/pods", "pods ns= name= sub="),
            ("/api/v1/namespaces/a/pods", "pods ns=a name= sub="),
            ("/api/v1/namespaces/a/pods/p/status", "pods ns=a name=p sub=status"),
            ("/api/v1/namespaces/a", "namespaces ns= name=a sub="),
            ("/api/v1/namespaces/a/status", "namespaces ns= name=a sub=status"),
            ("/api/v1/namespaces/a/finalize", "namespaces ns= name=a sub=finalize"),
            ("/api/v1/nodes/n/proxy/x/y", "nodes ns= name=n sub=proxy"),
            (
                "/apis/apps/v1/namespaces/a/deployments/d/scale",
                "deployments.apps ns=a name=d sub=scale",
            ),
            ("/apis/apps/v1/deployments", "deployments.apps ns= name= sub="),
            ("/apis/apps/v1/nothing", "unknown"),
            ("/api/v1/namespaces//pods", "unknown"),
            ("/api/v1//pods", "unknown"),
            ("//api/v1/pods", "other"),
            ("/api/v1/namespaces/a/nodes", "unknown"),
            ("/api/v1/namespaces/a/pods/p/nothing", "unknown"),
            ("/apis/nothing/v1/x", "other"),
            ("/apis/apps/v1", "other"),
            ("/apis", "other"),
            ("/version", "other"),
        ] {
            assert_eq!(shown(path), want, "{path}");
        }
    }
}
