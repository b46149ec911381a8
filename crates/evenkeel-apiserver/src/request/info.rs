//! Verb and target of a request, parsed from the method and the URL (upstream: `RequestInfo`). The resource need not
//! exist.

use http::Method;

use evenkeel_api::selector::FieldSelector;

use super::query::Query;

/// Parsed request, by upstream's rules (`requestinfo.go`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RequestInfo<'a> {
    /// Whether the request is for a resource.
    pub(crate) is_resource: bool,
    /// `get`, `list`, `watch`, …, or the lower-case method for a non-resource path.
    pub(crate) verb: &'a str,
    /// API group; empty for the core group.
    pub(crate) group: &'a str,
    /// Version of the API group.
    pub(crate) version: &'a str,
    /// Namespace; empty for cluster-scoped resources and for all namespaces.
    pub(crate) namespace: &'a str,
    /// Plural name of the resource.
    pub(crate) resource: &'a str,
    /// Subresource; empty for the object itself.
    pub(crate) subresource: &'a str,
    /// Name of the object; empty for a collection.
    pub(crate) name: &'a str,
    /// Field selector of a list, watch or deletecollection, in the syntax of the query.
    pub(crate) field_selector: &'a str,
    /// Label selector of such a request, in the syntax of the query.
    pub(crate) label_selector: &'a str,
}

impl<'a> RequestInfo<'a> {
    /// Parses method, path and query.
    pub(crate) fn new(method: &Method, path: &'a str, query: &'a Query) -> Self {
        let parts: Vec<&str> =
            path.trim_matches('/').split('/').filter(|p| !p.is_empty()).collect();
        let mut info = Self { verb: method_name(method), ..Self::default() };
        let mut rest = match parts.as_slice() {
            ["api", version, rest @ ..] if !rest.is_empty() => {
                info.version = version;
                rest
            }
            ["apis", group, version, rest @ ..] if !rest.is_empty() => {
                (info.group, info.version) = (group, version);
                rest
            }
            _ => return info,
        };
        info.is_resource = true;
        info.verb = match method.as_str() {
            "POST" => "create",
            "GET" | "HEAD" => "get",
            "PUT" => "update",
            "PATCH" => "patch",
            "DELETE" => "delete",
            _ => "",
        };
        if let ["watch", more @ ..] = rest
            && !more.is_empty()
        {
            info.verb = "watch";
            rest = more;
        }
        if let ["namespaces", namespace, more @ ..] = rest {
            info.namespace = namespace;
            // `status` and `finalize` are subresources of the Namespace. Others are collections in it.
            if more.first().is_some_and(|part| !matches!(*part, "status" | "finalize")) {
                rest = more;
            }
        }
        info.resource = rest.first().copied().unwrap_or_default();
        info.name = rest.get(1).copied().unwrap_or_default();
        info.subresource = rest.get(2).copied().unwrap_or_default();
        if info.name.is_empty() && info.verb == "get" {
            info.verb = if query.flag("watch") { "watch" } else { "list" };
            info.name = name_in_selector(query.get("fieldSelector"));
        } else if info.name.is_empty() && info.verb == "delete" {
            info.verb = "deletecollection";
        }
        if matches!(info.verb, "list" | "watch" | "deletecollection") {
            info.field_selector = query.get("fieldSelector");
            info.label_selector = query.get("labelSelector");
        }
        info
    }
}

fn method_name(method: &Method) -> &'static str {
    match method.as_str() {
        "GET" => "get",
        "HEAD" => "head",
        "POST" => "post",
        "PUT" => "put",
        "PATCH" => "patch",
        "DELETE" => "delete",
        "OPTIONS" => "options",
        _ => "",
    }
}

/// Returns the name in `metadata.name=x`, so that an RBAC rule for one name allows lists and watches of that object.
/// The selector is parsed, because another field's value may contain escaped commas.
///
/// Upstream: `RequestInfoFactory.NewRequestInfo`.
fn name_in_selector(fields: &str) -> &str {
    let Ok(selector) = FieldSelector::parse(fields) else { return "" };
    let name = selector.exact("metadata.name").unwrap_or_default();
    if matches!(name, "." | "..") || name.contains(['/', '%']) {
        return "";
    }
    // The selector contains the name literally, without escapes, so that the result can borrow from it.
    fields.find(name).map_or("", |index| &fields[index..index.saturating_add(name.len())])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn method_path_and_query_determine_verb_and_target() {
        for (method, path, query, want) in [
            ("GET", "/api/v1/namespaces/a/pods", "", "list a pods   "),
            ("GET", "/api/v1/namespaces/a/pods", "watch=1", "watch a pods   "),
            ("GET", "/api/v1/pods", "fieldSelector=metadata.name%3Dx", "list  pods  x "),
            ("GET", "/api/v1/pods", "fieldSelector=a!%3Db,metadata.name%3D%3Dx", "list  pods  x "),
            // An escaped comma does not begin a term.
            ("GET", "/api/v1/pods", r"fieldSelector=a!%3Db\,metadata.name%3Dx", "list  pods   "),
            (
                "GET",
                "/api/v1/pods",
                r"fieldSelector=a!%3Db%5C,metadata.name%5C%3Dx",
                "list  pods   ",
            ),
            ("GET", "/api/v1/pods", "fieldSelector=metadata.name!%3Dx", "list  pods   "),
            ("GET", "/api/v1/pods", "fieldSelector=metadata.name%3Dx/y", "list  pods   "),
            ("GET", "/api/v1/pods", "fieldSelector=metadata.name%3Dx,nonsense", "list  pods   "),
            ("GET", "/api/v1/namespaces/a", "", "get a namespaces  a "),
            ("PUT", "/api/v1/namespaces/a/finalize", "", "update a namespaces finalize a "),
            ("POST", "/api/v1/namespaces/a/pods/p/binding", "", "create a pods binding p "),
            (
                "DELETE",
                "/apis/apps/v1/namespaces/a/deployments",
                "",
                "deletecollection a deployments   apps",
            ),
            ("PATCH", "/apis/apps/v1/namespaces/a/nothing/x", "", "patch a nothing  x apps"),
            ("GET", "/apis/apps/v1", "", "get      "),
            ("HEAD", "/healthz", "", "head      "),
        ] {
            let query = Query::parse(Some(query));
            let info = RequestInfo::new(&method.parse().expect("a method"), path, &query);
            let shown = format!(
                "{} {} {} {} {} {}",
                info.verb, info.namespace, info.resource, info.subresource, info.name, info.group
            );
            assert_eq!(shown.trim_end(), want.trim_end(), "{method} {path}");
        }
    }
}
