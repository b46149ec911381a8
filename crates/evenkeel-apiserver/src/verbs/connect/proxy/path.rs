//! Parts of a proxied request's path: the path of the proxy, and the path after it, which the service gets.

use percent_encoding::percent_decode_str;

/// Returns the decoded part of a request's path after `proxy`, which is the field `path` of the connection's options.
///
/// Upstream: `getRequestOptions`.
pub(crate) fn behind_proxy(path: &str) -> String {
    let path = percent_decode_str(path).decode_utf8_lossy();
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    // `api/v1/nodes/NAME/proxy`, or `api/v1/namespaces/NAMESPACE/pods/NAME/proxy`.
    let n_before = if parts.get(2) == Some(&"namespaces") { 7 } else { 5 };
    let mut behind = parts.get(n_before..).unwrap_or_default().join("/");
    if !behind.is_empty() && !behind.starts_with('/') {
        behind.insert(0, '/');
    }
    if path.ends_with('/') && !behind.ends_with('/') {
        behind.push('/');
    }
    behind
}

/// Returns the path of the proxy: the part of a request's path before the part that the service gets.
///
/// Upstream: `defaultProxyTransport`.
pub(super) fn prefix(path: &str, behind: &str) -> String {
    let path = percent_decode_str(path).decode_utf8_lossy();
    path.strip_suffix(behind).unwrap_or(&path).to_owned()
}

/// Joins two paths, and removes empty segments, `.` and `..`.
///
/// Upstream: Go's `path.Join`.
pub(super) fn join(first: &str, second: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in first.split('/').chain(second.split('/')) {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::escaped;

    #[test]
    fn the_service_sees_the_path_behind_the_proxy() {
        let pods = "/api/v1/namespaces/ns/pods/p:80/proxy";
        for (path, behind) in [
            ("", ""),
            ("/", "/"),
            ("/a", "/a"),
            ("/a/b/", "/a/b/"),
            ("/a%20b", "/a b"),
            ("/proxy/proxy", "/proxy/proxy"),
        ] {
            let path = format!("{pods}{path}");
            assert_eq!(behind_proxy(&path), behind, "{path}");
            assert_eq!(prefix(&path, behind), pods);
        }
        assert_eq!(behind_proxy("/api/v1/nodes/n/proxy/pods"), "/pods");
        assert_eq!(escaped("/a b/\u{e9}?#%+:@"), "/a%20b/%C3%A9%3F%23%25+:@");
        assert_eq!(join("/a/b/", "/../c//./d/"), "/a/c/d");
        assert_eq!(join("", "../.."), "/");
    }
}
