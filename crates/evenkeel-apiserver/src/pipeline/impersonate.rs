//! Impersonation: a request in another user's name (upstream: `filters/impersonation`).

use std::collections::BTreeMap;
use std::sync::Arc;

use evenkeel_api::name::dns_label;
use http::HeaderMap;
use percent_encoding::percent_decode_str;

use crate::api::Api;
use crate::auth::Attributes;
use crate::auth::permit;
use evenkeel_apimachinery::headers;
use evenkeel_apimachinery::status::StatusError;
use evenkeel_apimachinery::user::User;

/// The user that a request's headers ask for, each part of it in a header of its own.
struct Requested<'a> {
    name: &'a str,
    groups: Vec<&'a str>,
    uid: &'a str,
    extra: Vec<(String, &'a str)>,
}

/// The user in whose name a request is served: the one that it impersonates, if `user` may, else `user`.
pub(super) fn impersonate(
    api: &Api,
    user: Arc<User>,
    headers: &HeaderMap,
) -> Result<Arc<User>, StatusError> {
    let wanted = requested(headers)?;
    if wanted.name.is_empty() {
        if wanted.groups.is_empty() && wanted.uid.is_empty() && wanted.extra.is_empty() {
            return Ok(user);
        }
        return Err(StatusError::internal(
            "invalid impersonation request: a user must be given with groups or extra",
        ));
    }
    let account = service_account(wanted.name);
    for attributes in permissions(&wanted, account) {
        permit(&api.authorizer, &api.store, &user, &attributes)?;
    }
    Ok(Arc::new(become_user(wanted, account)))
}

/// Reads the headers. They are text: what is not has been refused ([`headers::check`]).
fn requested(headers: &HeaderMap) -> Result<Requested<'_>, StatusError> {
    let mut extra = Vec::new();
    for (name, value) in headers {
        let Some(key) = name.as_str().strip_prefix("impersonate-extra-") else { continue };
        let key = percent_decode_str(key).decode_utf8().map_err(|_| {
            let why = format!("header \"{name}\" cannot be read: its name is not encoded UTF-8");
            StatusError::bad_request(why)
        })?;
        extra.push((key.into_owned(), headers::value(value)));
    }
    Ok(Requested {
        name: headers::text(headers, "impersonate-user"),
        groups: headers.get_all("impersonate-group").iter().map(headers::value).collect(),
        uid: headers::text(headers, "impersonate-uid"),
        extra,
    })
}

/// Namespace and name of a service account's user. Names that no service account can have are plain users.
fn service_account(name: &str) -> Option<(&str, &str)> {
    let (namespace, name) = name.strip_prefix("system:serviceaccount:")?.split_once(':')?;
    let valid = dns_label(namespace).is_ok() && name.split('.').all(|part| dns_label(part).is_ok());
    valid.then_some((namespace, name))
}

/// What the impersonating user must be allowed to `impersonate`, each on its own.
fn permissions<'a>(
    wanted: &'a Requested<'_>,
    account: Option<(&'a str, &'a str)>,
) -> Vec<Attributes<'a>> {
    const AUTHENTICATION: &str = "authentication.k8s.io";
    let of = |group, resource, name| Attributes {
        verb: "impersonate",
        group,
        resource,
        name,
        ..Attributes::default()
    };
    let mut all = vec![match account {
        Some((namespace, name)) => Attributes { namespace, ..of("", "serviceaccounts", name) },
        None => of("", "users", wanted.name),
    }];
    all.extend(wanted.groups.iter().map(|group| of("", "groups", *group)));
    all.extend(wanted.extra.iter().map(|(key, value)| Attributes {
        subresource: key.as_str(),
        ..of(AUTHENTICATION, "userextras", *value)
    }));
    if !wanted.uid.is_empty() {
        all.push(of(AUTHENTICATION, "uids", wanted.uid));
    }
    all
}

/// The impersonated user, with the groups that every such user has.
fn become_user(wanted: Requested<'_>, account: Option<(&str, &str)>) -> User {
    let mut groups: Vec<Box<str>> = wanted.groups.into_iter().map(Into::into).collect();
    if let Some((namespace, _)) = account
        && groups.is_empty()
    {
        groups.push("system:serviceaccounts".into());
        groups.push(format!("system:serviceaccounts:{namespace}").into());
    }
    let anonymous = wanted.name == "system:anonymous";
    let last = if anonymous { "system:unauthenticated" } else { "system:authenticated" };
    if !groups.iter().any(|g| matches!(&**g, "system:authenticated" | "system:unauthenticated")) {
        groups.push(last.into());
    }
    let mut extras: BTreeMap<Box<str>, Vec<Box<str>>> = BTreeMap::new();
    for (key, value) in wanted.extra {
        extras.entry(key.into()).or_default().push(value.into());
    }
    User {
        name: wanted.name.into(),
        uid: wanted.uid.into(),
        groups: groups.into(),
        extra: extras.into_iter().map(|(k, v)| (k, v.into())).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_service_accounts_are_theirs() {
        for (name, want) in [
            ("system:serviceaccount:a:web", Some(("a", "web"))),
            ("system:serviceaccount:a:web.v2", Some(("a", "web.v2"))),
            ("system:serviceaccount:a:web:more", None),
            ("system:serviceaccount:a:", None),
            ("system:serviceaccount::web", None),
            ("system:serviceaccount:a", None),
            ("ann", None),
        ] {
            assert_eq!(service_account(name), want, "{name}");
        }
    }
}
