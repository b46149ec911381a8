//! Authentication by a front proxy, which names the user in headers of the requests that it forwards. The proxy proves
//! its identity with a client certificate (`--requestheader-client-ca-file`).
//!
//! Upstream: `requestHeaderAuthRequestHandler`, `ClusterAuthenticationInfo`.

use std::collections::BTreeMap;

use evenkeel_apimachinery::headers;
use evenkeel_apimachinery::user::User;
use http::HeaderMap;
use percent_encoding::percent_decode_str;

use super::authenticated_group::with_authenticated_group;

/// Options of authentication by a front proxy, named after kube-apiserver's flags.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestHeaderOptions {
    /// Certificate authorities that sign the proxies' client certificates, in PEM (`--requestheader-client-ca-file`).
    pub client_ca: String,
    /// Common names of proxies that may name users (`--requestheader-allowed-names`). Empty allows all.
    pub allowed_names: Vec<String>,
    /// Headers with the user's name (`--requestheader-username-headers`). The first one with a value applies.
    pub username_headers: Vec<String>,
    /// Headers with the user's uid (`--requestheader-uid-headers`). The first one with a value applies.
    pub uid_headers: Vec<String>,
    /// Headers with the user's groups (`--requestheader-group-headers`).
    pub group_headers: Vec<String>,
    /// Prefixes of headers with extra values (`--requestheader-extra-headers-prefix`).
    pub extra_headers_prefix: Vec<String>,
}

impl RequestHeaderOptions {
    /// Returns whether a proxy whose certificate has this common name may name users.
    pub(crate) fn allows(&self, common_name: &str) -> bool {
        self.allowed_names.is_empty() || self.allowed_names.iter().any(|name| name == common_name)
    }

    /// Returns the user that the headers name; `None` if they name none.
    pub(crate) fn user(&self, headers: &HeaderMap) -> Option<User> {
        let first_value = |names: &[String]| {
            let mut values = names.iter().map(|name| headers::text(headers, name.trim()));
            values.find(|value| !value.is_empty()).unwrap_or_default()
        };
        let name = first_value(&self.username_headers);
        if name.is_empty() {
            return None;
        }
        let groups = self.group_headers.iter().flat_map(|name| headers.get_all(name.trim()));
        let groups = groups.map(headers::value).filter(|group| !group.is_empty());
        let mut extra: BTreeMap<Box<str>, Vec<Box<str>>> = BTreeMap::new();
        for prefix in &self.extra_headers_prefix {
            let prefix = prefix.trim().to_ascii_lowercase();
            for (name, value) in headers {
                let Some(key) = name.as_str().strip_prefix(&*prefix) else { continue };
                let key = percent_decode_str(key).decode_utf8().map_or(key.into(), Into::into);
                extra.entry(key).or_default().push(headers::value(value).into());
            }
        }
        Some(with_authenticated_group(User {
            name: name.into(),
            uid: first_value(&self.uid_headers).into(),
            groups: groups.map(Into::into).collect(),
            extra: extra.into_iter().map(|(key, values)| (key, values.into())).collect(),
        }))
    }

    /// Returns the data of the ConfigMap from which extension API servers read the options.
    ///
    /// Upstream: `getConfigMapDataFor`.
    pub(crate) fn config_map(&self) -> [(&'static str, String); 6] {
        let list = |names: &[String]| serde_json::Value::from(names).to_string();
        [
            ("requestheader-username-headers", list(&self.username_headers)),
            ("requestheader-uid-headers", list(&self.uid_headers)),
            ("requestheader-group-headers", list(&self.group_headers)),
            ("requestheader-extra-headers-prefix", list(&self.extra_headers_prefix)),
            ("requestheader-client-ca-file", self.client_ca.clone()),
            ("requestheader-allowed-names", list(&self.allowed_names)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    fn options() -> RequestHeaderOptions {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        RequestHeaderOptions {
            client_ca: "pem".to_owned(),
            allowed_names: names(&["front"]),
            username_headers: names(&["X-Other-User", "X-Remote-User"]),
            uid_headers: names(&["X-Remote-Uid"]),
            group_headers: names(&["X-Remote-Group"]),
            extra_headers_prefix: names(&["X-Remote-Extra-"]),
        }
    }

    #[test]
    fn the_headers_name_the_user() {
        let headers = |lines: &[(&'static str, &'static str)]| -> HeaderMap {
            let line = |(name, value): &(&'static str, &'static str)| {
                (HeaderName::from_static(name), HeaderValue::from_static(value))
            };
            lines.iter().map(line).collect()
        };
        let named = |lines: &[(&'static str, &'static str)]| options().user(&headers(lines));
        assert_eq!(named(&[("x-remote-group", "system:masters")]), None);
        assert_eq!(named(&[("x-remote-user", "")]), None);
        let user = named(&[
            ("x-remote-user", "ann"),
            ("x-remote-uid", "7"),
            ("x-remote-group", "a"),
            ("x-remote-group", "b"),
            ("x-remote-extra-example.com%2fscope", "1"),
            ("x-remote-extra-example.com%2fscope", "2"),
        ]);
        let mut expected = User::authenticated("ann", ["a", "b"]);
        expected.uid = "7".into();
        expected.extra = [("example.com/scope".into(), ["1".into(), "2".into()].into())].into();
        assert_eq!(user, Some(expected));
        let anonymous =
            [("x-remote-user", "system:anonymous"), ("x-remote-group", "system:unauthenticated")];
        assert_eq!(named(&anonymous), Some(User::anonymous()));
        let first = named(&[("x-remote-user", "ann"), ("x-other-user", "bob")]);
        assert_eq!(first.map(|user| user.name), Some("bob".into()));
    }

    #[test]
    fn extension_servers_read_the_options_as_json() {
        let options = options();
        let map: BTreeMap<_, _> = options.config_map().into();
        assert_eq!(map["requestheader-allowed-names"], r#"["front"]"#);
        assert_eq!(map["requestheader-username-headers"], r#"["X-Other-User","X-Remote-User"]"#);
        assert_eq!(map["requestheader-client-ca-file"], "pem");
        assert!(options.allows("front") && !options.allows("other"));
        assert!(RequestHeaderOptions::default().allows("other"));
    }
}
