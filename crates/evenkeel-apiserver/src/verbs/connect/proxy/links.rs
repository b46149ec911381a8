//! Rewriting of the links in a service's responses, so that they lead through the proxy.

use super::path::join;
use crate::proxy::escaped;

/// Addresses of a service, for the rewriting of its links.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Links {
    /// Host and port of the service.
    pub(super) authority: String,
    /// Host of the server, as in the client's request.
    pub(super) host: String,
    /// Path of the proxy, which precedes the service's own paths.
    pub(super) prefix: String,
}

impl Links {
    /// Rewrites a link to the service so that it leads through the proxy. Returns `None` for relative links and for
    /// links to other hosts, which do not change.
    ///
    /// Upstream: `Transport.rewriteURL`.
    pub(super) fn rewrite(&self, link: &str) -> Option<String> {
        let end = link.find(['?', '#']).unwrap_or(link.len());
        let (address, rest) = link.split_at_checked(end)?;
        let (scheme, address) = match address.split_once(':') {
            Some((scheme, rest)) if is_scheme(scheme) => (Some(scheme), rest),
            _ => (None, address),
        };
        let (host, path) = match address.strip_prefix("//") {
            Some(address) => {
                address.split_at_checked(address.find('/').unwrap_or(address.len()))?
            }
            None => ("", address),
        };
        let is_other_host = !host.is_empty() && host != self.authority && host != self.host;
        // Links such as `mailto:` and `data:` have a scheme without a host.
        let is_opaque = host.is_empty() && scheme.is_some();
        if is_other_host || is_opaque || !path.starts_with('/') {
            return None;
        }
        let prefix = escaped(&self.prefix);
        let path = if path.starts_with(&*prefix) {
            path.to_owned()
        } else if path.ends_with('/') {
            format!("{}/", join(&prefix, path))
        } else {
            join(&prefix, path)
        };
        Some(match scheme {
            Some(scheme) if host == self.host => format!("{scheme}://{host}{path}{rest}"),
            _ => format!("{path}{rest}"),
        })
    }
}

/// Returns whether a string has the syntax of a URL's scheme.
fn is_scheme(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|byte| byte.is_ascii_alphabetic())
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_to_the_service_lead_through_the_proxy() {
        let prefix = "/api/v1/namespaces/ns/services/s:80/proxy";
        let links = Links {
            authority: "10.0.0.1:8080".to_owned(),
            host: "localhost:8001".to_owned(),
            prefix: prefix.to_owned(),
        };
        for (link, behind) in [
            ("/", Some("/")),
            ("/a?b=/c#d", Some("/a?b=/c#d")),
            ("/a/", Some("/a/")),
            ("/a/../../../../../b", Some("")),
            ("http://10.0.0.1:8080/a", Some("/a")),
            ("//10.0.0.1:8080/a", Some("/a")),
            ("http://example.com/a", None),
            ("//example.com/a", None),
            ("a/b", None),
            ("../a", None),
            ("?a", None),
            ("#a", None),
            ("mailto:a@b", None),
            ("javascript:/a/", None),
            ("", None),
        ] {
            let found = links.rewrite(link);
            if link.contains("..") && behind.is_some() {
                assert_eq!(found.as_deref(), Some("/api/v1/namespaces/b"), "{link}");
                continue;
            }
            let expected = behind.map(|behind| format!("{prefix}{behind}"));
            assert_eq!(found, expected, "{link}");
        }
        let kept = format!("{prefix}/x");
        assert_eq!(links.rewrite(&kept), Some(kept));
        assert_eq!(
            links.rewrite("http://localhost:8001/a"),
            Some(format!("http://localhost:8001{prefix}/a"))
        );
    }
}
