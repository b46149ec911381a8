//! Impersonation: serves a request as another user (upstream: `filters/impersonation`).
//!
//! | documented rule | implemented in |
//! |---|---|
//! | `impersonate` of `users`, `groups`, `serviceaccounts`, `uids`, `userextras/KEY` allows all requests | `../auth/impersonation.rs` |
//! | `impersonate:MODE` and `impersonate-on:MODE:VERB` together allow requests with this verb | `check` |
//! | `user-info`, `serviceaccount`, `arbitrary-node`, `associated-node`: users that a mode applies to | `applies` |
//! | The constrained modes never allow the group `system:masters` | `check_groups_and_extra` |
//! | Nodes and service accounts get their groups; all users get `system:authenticated` | `become_user` |

use std::collections::BTreeMap;
use std::sync::Arc;

use evenkeel_api::forms::dns_subdomain;
use http::HeaderMap;
use percent_encoding::percent_decode_str;

use crate::api::Api;
use crate::audit::RequestAudit;
use crate::auth::impersonation::Mode;
use crate::auth::{Answers, Attributes, forbidden, permit, serviceaccount, settled};
use evenkeel_apimachinery::headers;
use evenkeel_apimachinery::status::{StatusError, quote};
use evenkeel_apimachinery::user::User;

/// User that a request's impersonation headers name.
struct Impersonated<'a> {
    name: &'a str,
    groups: Vec<&'a str>,
    uid: &'a str,
    extra: Vec<(String, &'a str)>,
}

/// Returns the impersonated user if `user` may impersonate it, or `user` itself without impersonation headers.
/// `attributes` are the attributes of the request. Tries the mode that last allowed `user` first. If no mode allows the
/// impersonation, returns the first refusal.
///
/// Upstream: `getImpersonatedUser`.
pub(super) async fn impersonate(
    api: &Api,
    user: Arc<User>,
    headers: &HeaderMap,
    attributes: &Attributes<'_>,
    audit: &RequestAudit,
) -> Result<Arc<User>, StatusError> {
    let answers = Answers::default();
    let decide = || impersonated_user(api, &user, headers, attributes, audit, &answers);
    settled(&answers, decide).await
}

/// Formats a user without a name as Go's `%#v` does.
fn go_user(user: &Impersonated<'_>) -> String {
    let list = |values: &[&str]| {
        let quoted: Vec<String> = values.iter().copied().map(quote).collect();
        format!("[]string{{{}}}", quoted.join(", "))
    };
    let groups = match &*user.groups {
        [] => "[]string(nil)".to_owned(),
        groups => list(groups),
    };
    let mut by_key: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (key, value) in &user.extra {
        by_key.entry(key).or_default().push(value);
    }
    let entries: Vec<String> =
        by_key.iter().map(|(key, values)| format!("{}:{}", quote(key), list(values))).collect();
    let extra = match entries.join(", ") {
        none if none.is_empty() => "(nil)".to_owned(),
        entries => format!("{{{entries}}}"),
    };
    let uid = quote(user.uid);
    format!(
        "&user.DefaultInfo{{Name:\"\", UID:{uid}, Groups:{groups}, Extra:map[string][]string{extra}}}"
    )
}

fn impersonated_user(
    api: &Api,
    user: &Arc<User>,
    headers: &HeaderMap,
    attributes: &Attributes<'_>,
    audit: &RequestAudit,
    answers: &Answers,
) -> Result<Arc<User>, StatusError> {
    let impersonated = parse_headers(headers)?;
    if impersonated.name.is_empty() {
        if impersonated.groups.is_empty()
            && impersonated.uid.is_empty()
            && impersonated.extra.is_empty()
        {
            return Ok(user.clone());
        }
        return Err(StatusError::bad_request(format!(
            "requested {} without impersonating a user name",
            go_user(&impersonated)
        )));
    }
    let permitted = |attributes: &Attributes<'_>| {
        permit(&api.authorizer, &api.store, user, attributes, answers)
    };
    let mut refusal = None;
    let last = api.impersonation_modes.get(&user.name);
    for mode in Mode::in_order(last).filter(|mode| mode.applies(&impersonated, user)) {
        match mode.check(&impersonated, user, attributes, &permitted) {
            Ok(()) => {
                if last != Some(mode) {
                    api.impersonation_modes.set(&user.name, mode);
                }
                let constraint = mode.name().map(|name| format!("impersonate:{name}"));
                let user = become_user(impersonated, mode);
                audit.impersonate(&user, constraint.as_deref());
                return Ok(Arc::new(user));
            }
            Err(error) => refusal = refusal.or(Some(error)),
        }
    }
    // There is always a refusal, because the mode `Legacy` applies to all users.
    Err(refusal.unwrap_or_else(|| StatusError::internal("all impersonation modes failed")))
}

impl Mode {
    /// Returns the name of a mode in its verbs, `impersonate:NAME` and `impersonate-on:NAME:VERB`.
    fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::AssociatedNode => "associated-node",
            Self::ArbitraryNode => "arbitrary-node",
            Self::ServiceAccount => "serviceaccount",
            Self::UserInfo => "user-info",
            Self::Legacy => return None,
        })
    }

    /// Returns whether the mode applies to the impersonated user.
    fn applies(self, impersonated: &Impersonated<'_>, user: &User) -> bool {
        let only_name = impersonated.groups.is_empty()
            && impersonated.uid.is_empty()
            && impersonated.extra.is_empty();
        let node = node_in_username(impersonated.name);
        match self {
            Self::AssociatedNode => {
                only_name
                    && node.is_some()
                    && serviceaccount::split_username(&user.name).is_some()
                    && node == serviceaccount::node_name(user)
            }
            Self::ArbitraryNode => only_name && node.is_some(),
            Self::ServiceAccount => {
                only_name && serviceaccount::split_username(impersonated.name).is_some()
            }
            Self::UserInfo => {
                node.is_none() && serviceaccount::split_username(impersonated.name).is_none()
            }
            Self::Legacy => true,
        }
    }

    /// Checks the permissions of the mode. Returns the refusal of the first missing one.
    fn check(
        self,
        impersonated: &Impersonated<'_>,
        user: &User,
        attributes: &Attributes<'_>,
        permitted: &dyn Fn(&Attributes<'_>) -> Result<(), StatusError>,
    ) -> Result<(), StatusError> {
        let Some(name) = self.name() else {
            return required_permissions(impersonated, self, "impersonate")
                .iter()
                .try_for_each(permitted);
        };
        let verb = format!("impersonate-on:{name}:{}", attributes.verb);
        permitted(&Attributes { verb: &verb, ..*attributes })?;
        let verb = format!("impersonate:{name}");
        let required = required_permissions(impersonated, self, &verb);
        for attributes in &required {
            if !matches!(attributes.resource, "groups" | "userextras") {
                permitted(attributes)?;
            }
        }
        check_groups_and_extra(impersonated, user, &verb)?;
        for (resource, subresource, count) in [
            ("groups", "", impersonated.groups.len()),
            ("userextras", "*", impersonated.extra.len()),
        ] {
            let wildcard = Attributes {
                verb: &verb,
                group: AUTHENTICATION_GROUP,
                resource,
                subresource,
                name: "*",
                ..Attributes::default()
            };
            if count >= MIN_COUNT_FOR_WILDCARD && permitted(&wildcard).is_ok() {
                continue;
            }
            let mut of_resource =
                required.iter().filter(|attributes| attributes.resource == resource);
            of_resource.try_for_each(permitted)?;
        }
        Ok(())
    }
}

const AUTHENTICATION_GROUP: &str = "authentication.k8s.io";
/// Number of groups or extra values from which the server first checks for a permission on all of them (`*`), instead
/// of a permission on each.
///
/// Upstream: `manyAuthorizationChecksInLoop`.
const MIN_COUNT_FOR_WILDCARD: usize = 4;
const SYSTEM_MASTERS: &str = "system:masters";

/// Refuses groups and extra that the constrained modes never allow.
///
/// Upstream: `authorizeGroups`, `validateExtra`.
fn check_groups_and_extra(
    impersonated: &Impersonated<'_>,
    user: &User,
    verb: &str,
) -> Result<(), StatusError> {
    let refuse = |resource: &str, name: &str, why: &str| {
        let group = AUTHENTICATION_GROUP;
        let attributes = Attributes { verb, group, resource, name, ..Attributes::default() };
        Err(forbidden(user, &attributes, why))
    };
    if impersonated.groups.contains(&"") {
        return refuse("groups", "", "impersonating the empty string group is not allowed");
    }
    if impersonated.groups.contains(&SYSTEM_MASTERS) {
        return refuse(
            "groups",
            SYSTEM_MASTERS,
            "impersonating the system:masters group is not allowed",
        );
    }
    for (key, value) in &impersonated.extra {
        let (domain, path) = key.split_once('/').unwrap_or_default();
        let why = if key.is_empty() {
            "impersonating the empty string key in extra is not allowed"
        } else if !dns_subdomain(domain).is_empty() || path.is_empty() {
            "impersonating an invalid key in extra is not allowed: must be a domain-prefixed path (such as \"acme.io/foo\")"
        } else if *key != key.to_lowercase() {
            "impersonating a non-lowercase key in extra is not allowed"
        } else if value.is_empty() {
            "impersonating the empty string value in extra is not allowed"
        } else {
            continue;
        };
        return refuse("userextras", "", why);
    }
    Ok(())
}

/// Parses the impersonation headers. [`headers::check`] has already refused values that are not text.
fn parse_headers(headers: &HeaderMap) -> Result<Impersonated<'_>, StatusError> {
    let mut extra = Vec::new();
    for (name, value) in headers {
        let Some(key) = name.as_str().strip_prefix("impersonate-extra-") else { continue };
        let key = percent_decode_str(key).decode_utf8().map_err(|_| {
            let why = format!("header \"{name}\" cannot be read: its name is not encoded UTF-8");
            StatusError::bad_request(why)
        })?;
        extra.push((key.into_owned(), headers::value(value)));
    }
    Ok(Impersonated {
        name: headers::text(headers, "impersonate-user"),
        groups: headers.get_all("impersonate-group").iter().map(headers::value).collect(),
        uid: headers::text(headers, "impersonate-uid"),
        extra,
    })
}

/// Returns the node's name in a node's user name.
///
/// Upstream: `isNodeUsername`.
fn node_in_username(name: &str) -> Option<&str> {
    name.strip_prefix("system:node:").filter(|node| dns_subdomain(node).is_empty())
}

/// Returns the permissions that the impersonating user needs with the verb of a mode: on the name, the UID, and each
/// group and value of extra.
///
/// Upstream: `impersonationModeState.check`.
fn required_permissions<'a>(
    impersonated: &'a Impersonated<'_>,
    mode: Mode,
    verb: &'a str,
) -> Vec<Attributes<'a>> {
    let on =
        |group, resource, name| Attributes { verb, group, resource, name, ..Attributes::default() };
    let group = if mode == Mode::Legacy { "" } else { AUTHENTICATION_GROUP };
    let service_account = serviceaccount::split_username(impersonated.name);
    let node = node_in_username(impersonated.name);
    let mut required = vec![match (mode, service_account, node) {
        // The mode only applies to the node in the user's own token, so the permission names no node.
        (Mode::AssociatedNode, ..) => on(group, "nodes", "*"),
        (Mode::ArbitraryNode, _, Some(node)) => on(group, "nodes", node),
        (_, Some((namespace, name)), _) => {
            Attributes { namespace, ..on(group, "serviceaccounts", name) }
        }
        _ => on(group, "users", impersonated.name),
    }];
    if !impersonated.uid.is_empty() {
        required.push(on(AUTHENTICATION_GROUP, "uids", impersonated.uid));
    }
    required.extend(impersonated.groups.iter().map(|name| on(group, "groups", *name)));
    required.extend(impersonated.extra.iter().map(|(key, value)| Attributes {
        subresource: key.as_str(),
        ..on(AUTHENTICATION_GROUP, "userextras", *value)
    }));
    required
}

/// Returns the impersonated user. Adds the groups that all nodes, service accounts, anonymous or authenticated users
/// have.
fn become_user(impersonated: Impersonated<'_>, mode: Mode) -> User {
    let account = serviceaccount::split_username(impersonated.name);
    let mut groups: Vec<Box<str>> = impersonated.groups.into_iter().map(Into::into).collect();
    if matches!(mode, Mode::AssociatedNode | Mode::ArbitraryNode) {
        groups.push("system:nodes".into());
    } else if let Some((namespace, _)) = account
        && groups.is_empty()
    {
        groups.push("system:serviceaccounts".into());
        groups.push(format!("system:serviceaccounts:{namespace}").into());
    }
    let is_in = |groups: &[Box<str>], name: &str| groups.iter().any(|group| **group == *name);
    let unauthenticated = is_in(&groups, "system:unauthenticated");
    if impersonated.name == "system:anonymous" {
        if !unauthenticated {
            groups.push("system:unauthenticated".into());
        }
    } else if !unauthenticated && !is_in(&groups, "system:authenticated") {
        groups.push("system:authenticated".into());
    }
    let mut extras: BTreeMap<Box<str>, Vec<Box<str>>> = BTreeMap::new();
    for (key, value) in impersonated.extra {
        extras.entry(key.into()).or_default().push(value.into());
    }
    User {
        name: impersonated.name.into(),
        uid: impersonated.uid.into(),
        groups: groups.into(),
        extra: extras.into_iter().map(|(k, v)| (k, v.into())).collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// Returns the permissions that are checked if only permissions with these prefixes are granted.
    fn asked(
        impersonated: &Impersonated<'_>,
        user: &User,
        given: &[&str],
    ) -> (Option<Mode>, Vec<String>) {
        let request = Attributes { verb: "list", resource: "pods", ..Attributes::default() };
        let all = RefCell::new(Vec::new());
        let permitted = |one: &Attributes<'_>| {
            let slash = if one.subresource.is_empty() { "" } else { "/" };
            let resource = format!("{}{slash}{}", one.resource, one.subresource);
            let shown = format!("{} {resource}.{} {}", one.verb, one.group, one.name);
            let allowed = given.iter().any(|beginning| shown.starts_with(beginning));
            all.borrow_mut().push(shown);
            if allowed { Ok(()) } else { Err(StatusError::unauthorized()) }
        };
        let mode = Mode::in_order(None)
            .filter(|mode| mode.applies(impersonated, user))
            .find(|mode| mode.check(impersonated, user, &request, &permitted).is_ok());
        (mode, all.into_inner())
    }

    fn impersonated(name: &str) -> Impersonated<'_> {
        Impersonated { name, groups: Vec::new(), uid: "", extra: Vec::new() }
    }

    fn pod_of_node(node: &str) -> User {
        User {
            name: "system:serviceaccount:a:agent".into(),
            extra: [("authentication.kubernetes.io/node-name".into(), [node.into()].into())].into(),
            ..User::default()
        }
    }

    #[test]
    fn each_mode_asks_for_its_own_verbs() {
        let (user, pod) = (User::authenticated("ann", []), pod_of_node("n"));
        let on = |mode: &str| format!("impersonate-on:{mode}:list pods. ");
        for (name, user, given, mode, last) in [
            (
                "bob",
                &user,
                "impersonate",
                Some(Mode::UserInfo),
                "impersonate:user-info users.authentication.k8s.io bob",
            ),
            ("bob", &user, "impersonate users", Some(Mode::Legacy), "impersonate users. bob"),
            ("bob", &user, "impersonate:user-info", None, "impersonate users. bob"),
            (
                "system:serviceaccount:a:web",
                &user,
                "impersonate",
                Some(Mode::ServiceAccount),
                "impersonate:serviceaccount serviceaccounts.authentication.k8s.io web",
            ),
            (
                "system:node:n",
                &user,
                "impersonate",
                Some(Mode::ArbitraryNode),
                "impersonate:arbitrary-node nodes.authentication.k8s.io n",
            ),
            (
                "system:node:n",
                &pod,
                "impersonate",
                Some(Mode::AssociatedNode),
                "impersonate:associated-node nodes.authentication.k8s.io *",
            ),
            (
                "system:node:m",
                &pod,
                "impersonate",
                Some(Mode::ArbitraryNode),
                "impersonate:arbitrary-node nodes.authentication.k8s.io m",
            ),
            (
                "system:node:n",
                &user,
                "impersonate users",
                Some(Mode::Legacy),
                "impersonate users. system:node:n",
            ),
        ] {
            let (found, asked) = asked(&impersonated(name), user, &[given]);
            assert_eq!(
                (found, asked.last().map(String::as_str)),
                (mode, Some(last)),
                "{name} {given}"
            );
            if let Some(constrained) = found.and_then(Mode::name) {
                assert_eq!(asked[0], on(constrained), "{name}");
            }
        }
    }

    #[test]
    fn uid_groups_and_extra_have_permissions_of_their_own() {
        let user = User::authenticated("ann", []);
        let some = || Impersonated {
            uid: "u",
            groups: vec!["dev", "ops"],
            extra: vec![
                ("example.org/scope".to_owned(), "a"),
                ("example.org/scope".to_owned(), "b"),
            ],
            ..impersonated("bob")
        };
        let legacy = [
            "impersonate users. bob",
            "impersonate uids.authentication.k8s.io u",
            "impersonate groups. dev",
            "impersonate groups. ops",
            "impersonate userextras/example.org/scope.authentication.k8s.io a",
            "impersonate userextras/example.org/scope.authentication.k8s.io b",
        ];
        for missing in 0..legacy.len() {
            let given: Vec<&str> = legacy
                .iter()
                .enumerate()
                .filter(|(index, _)| *index != missing)
                .map(|(_, one)| *one)
                .collect();
            assert_eq!(asked(&some(), &user, &given).0, None, "without {}", legacy[missing]);
        }
        assert_eq!(asked(&some(), &user, &legacy).0, Some(Mode::Legacy));
        // One permission allows many groups, but never the administrators' group.
        let many = |groups: &[&'static str]| Impersonated {
            groups: groups.to_vec(),
            ..impersonated("bob")
        };
        let given = [
            "impersonate-on:user-info:list",
            "impersonate:user-info users",
            "impersonate:user-info groups.authentication.k8s.io *",
        ];
        assert_eq!(asked(&many(&["a", "b", "c", "d"]), &user, &given).0, Some(Mode::UserInfo));
        assert_eq!(asked(&many(&["a", "b", "c"]), &user, &given).0, None);
        assert_eq!(asked(&many(&["a", "b", "c", SYSTEM_MASTERS]), &user, &given).0, None);
        assert_eq!(asked(&many(&[""]), &user, &["impersonate:", "impersonate-on:"]).0, None);
    }

    #[test]
    fn the_impersonated_user_has_the_groups_of_its_kind() {
        for (name, groups, mode, expected) in [
            ("bob", &[][..], Mode::UserInfo, &["system:authenticated"][..]),
            ("bob", &["system:unauthenticated"], Mode::Legacy, &["system:unauthenticated"]),
            ("system:anonymous", &[], Mode::UserInfo, &["system:unauthenticated"]),
            ("system:node:n", &[], Mode::ArbitraryNode, &["system:nodes", "system:authenticated"]),
            ("system:node:n", &[], Mode::Legacy, &["system:authenticated"]),
            (
                "system:serviceaccount:a:web",
                &[],
                Mode::ServiceAccount,
                &["system:serviceaccounts", "system:serviceaccounts:a", "system:authenticated"],
            ),
            ("system:serviceaccount:a:web", &["x"], Mode::Legacy, &["x", "system:authenticated"]),
        ] {
            let user =
                become_user(Impersonated { groups: groups.to_vec(), ..impersonated(name) }, mode);
            let found: Vec<&str> = user.groups.iter().map(|group| &**group).collect();
            assert_eq!(found, expected, "{name} {groups:?} {mode:?}");
        }
    }
}
