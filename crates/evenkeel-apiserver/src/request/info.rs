//! Verb and target of a request, parsed from the method and the URL (upstream: `RequestInfo`). The resource need not
//! exist.

use std::borrow::Cow;

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

/// Method of a request in lower case, which is the verb of a request for a non-resource path.
#[derive(Debug)]
pub(crate) struct LowerMethod(Cow<'static, str>);

impl LowerMethod {
    /// Returns the method in lower case.
    pub(crate) fn of(method: &Method) -> Self {
        Self(match method.as_str() {
            "GET" => "get".into(),
            "HEAD" => "head".into(),
            "POST" => "post".into(),
            "PUT" => "put".into(),
            "PATCH" => "patch".into(),
            "DELETE" => "delete".into(),
            "OPTIONS" => "options".into(),
            other => other.to_ascii_lowercase().into(),
        })
    }
}

/// A path ends after the prefix `watch` or `proxy`, so that it names no resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NoResourceInPath;

impl<'a> RequestInfo<'a> {
    /// Parses method, path and query. The path has its prefix `watch`, if any.
    ///
    /// # Errors
    /// The path ends after a special verb.
    ///
    /// Upstream: `RequestInfoFactory.NewRequestInfo`.
    pub(crate) fn new(
        method: &'a LowerMethod,
        path: &'a str,
        query: &'a Query,
    ) -> Result<Self, NoResourceInPath> {
        let path = path.trim_matches('/');
        let parts: Vec<&str> = if path.is_empty() { Vec::new() } else { path.split('/').collect() };
        let mut info = Self { verb: &method.0, ..Self::default() };
        let mut rest = match parts.as_slice() {
            ["api", version, rest @ ..] if !rest.is_empty() => {
                info.version = version;
                rest
            }
            ["apis", group, version, rest @ ..] if !rest.is_empty() => {
                (info.group, info.version) = (group, version);
                rest
            }
            _ => return Ok(info),
        };
        info.is_resource = true;
        info.verb = match &*method.0 {
            "post" => "create",
            "get" | "head" => "get",
            "put" => "update",
            "patch" => "patch",
            "delete" => "delete",
            _ => "",
        };
        let mut has_verb_in_path = false;
        if let [verb @ ("watch" | "proxy"), more @ ..] = rest {
            if more.is_empty() {
                return Err(NoResourceInPath);
            }
            info.verb = verb;
            rest = more;
            has_verb_in_path = true;
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
        if info.verb != "proxy" {
            info.subresource = rest.get(2).copied().unwrap_or_default();
        }
        if info.name.is_empty() && info.verb == "get" {
            info.verb = if query.flag("watch") { "watch" } else { "list" };
            info.name = name_in_selector(query.get("fieldSelector"));
        } else if info.name.is_empty() && info.verb == "delete" {
            info.verb = "deletecollection";
        }
        if !has_verb_in_path && matches!(info.verb, "list" | "watch" | "deletecollection") {
            info.field_selector = query.get("fieldSelector");
            info.label_selector = query.get("labelSelector");
        }
        Ok(info)
    }

    /// Parses a request of a test, whose path names a resource or none.
    #[cfg(test)]
    pub(crate) fn of(method: &Method, path: &'a str, query: &'a Query) -> Self {
        let method = Box::leak(Box::new(LowerMethod::of(method)));
        Self::new(method, path, query).expect("a request")
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
            ("TRACE", "/healthz", "", "trace      "),
            ("TRACE", "/api/v1/pods", "", "  pods   "),
            ("GET", "/api/v1/watch/namespaces/a/pods/p", "", "watch a pods  p "),
            ("DELETE", "/api/v1/watch/namespaces/a", "", "watch a namespaces  a "),
            ("GET", "/api/v1/proxy/namespaces/a/pods/p/x", "", "proxy a pods  p "),
            // Empty segments count.
            ("GET", "/api/v1/namespaces//pods", "", "list  pods   "),
            ("POST", "/api/v1//namespaces/a/pods", "", "create   a namespaces "),
        ] {
            let query = Query::parse(Some(query));
            let info = RequestInfo::of(&method.parse().expect("a method"), path, &query);
            let shown = format!(
                "{} {} {} {} {} {}",
                info.verb, info.namespace, info.resource, info.subresource, info.name, info.group
            );
            assert_eq!(shown.trim_end(), want.trim_end(), "{method} {path}");
        }
    }

    #[test]
    fn a_path_that_ends_after_a_special_verb_is_refused() {
        let (method, query) = (LowerMethod::of(&Method::GET), Query::default());
        for path in ["/api/v1/watch", "/api/v1/watch/", "/apis/apps/v1/proxy"] {
            assert_eq!(RequestInfo::new(&method, path, &query), Err(NoResourceInPath), "{path}");
        }
    }
}
