//! Authorization checks: the methods of the library `kubernetes.authz`.
//!
//! Upstream: `cel/library/authz.go`.

use std::rc::Rc;

use evenkeel_api::forms::{dns_label, dns_subdomain};

use super::Outcome;
use crate::authorization::{AccessRequest, Authorization, Authorizer};
use crate::value::Val;

/// Calls a method of an authorizer, a check or a decision; `None` for other names and arguments.
pub(super) fn member<'a>(name: &str, args: &[Val<'a>]) -> Option<Outcome<'a>> {
    let [Val::Authorization(target), rest @ ..] = args else { return None };
    let texts: Option<Vec<&str>> = rest.iter().map(as_str).collect();
    match (&**target, texts?.as_slice()) {
        (Authorization::Authorizer(authorizer), texts) => {
            authorizer_method(authorizer, name, texts)
        }
        (Authorization::PathCheck(authorizer, request), [verb]) if name == "check" => {
            Some(check(authorizer, request, verb))
        }
        (Authorization::GroupCheck(authorizer, request), [resource]) if name == "resource" => {
            Some(not_empty("resource", resource).map(|resource| {
                let request = AccessRequest { resource, ..request.clone() };
                value(Authorization::ResourceCheck(authorizer.clone(), request))
            }))
        }
        (Authorization::ResourceCheck(authorizer, request), [text]) => {
            resource_check_method(authorizer, request, name, text)
        }
        (Authorization::Decision(decision), []) => Some(Ok(match name {
            "allowed" => Val::Bool(decision.allowed),
            "reason" => Val::str(decision.reason.clone()),
            "errored" => Val::Bool(decision.error.is_some()),
            "error" => Val::str(decision.error.clone().unwrap_or_default()),
            _ => return None,
        })),
        _ => None,
    }
}

fn as_str<'v>(value: &'v Val<'_>) -> Option<&'v str> {
    match value {
        Val::Str(text) => Some(text),
        _ => None,
    }
}

fn value(step: Authorization<'_>) -> Val<'_> {
    Val::Authorization(Rc::new(step))
}

fn check<'a>(authorizer: &Authorizer<'a>, request: &AccessRequest, verb: &str) -> Outcome<'a> {
    Ok(value(Authorization::Decision(authorizer.check(request, verb))))
}

fn not_empty(name: &str, text: &str) -> Result<String, String> {
    if text.trim().is_empty() {
        return Err(format!("{name} must not be empty"));
    }
    Ok(text.to_owned())
}

fn authorizer_method<'a>(
    authorizer: &Authorizer<'a>,
    name: &str,
    texts: &[&str],
) -> Option<Outcome<'a>> {
    Some(match (name, texts) {
        ("path", [path]) => not_empty("path", path).map(|path| {
            let request = AccessRequest { path: Some(path), ..AccessRequest::default() };
            value(Authorization::PathCheck(authorizer.clone(), request))
        }),
        ("group", [group]) => {
            let request = AccessRequest { group: (*group).to_owned(), ..AccessRequest::default() };
            Ok(value(Authorization::GroupCheck(authorizer.clone(), request)))
        }
        ("serviceAccount", [_, name]) if !dns_subdomain(name).is_empty() => {
            Err("Invalid service account name".to_owned())
        }
        ("serviceAccount", [namespace, _]) if !dns_label(namespace).is_empty() => {
            Err("Invalid service account namespace".to_owned())
        }
        ("serviceAccount", [namespace, name]) => {
            let other = authorizer.service_account(namespace, name);
            Ok(value(Authorization::Authorizer(other)))
        }
        _ => return None,
    })
}

/// Calls a method of a resource check: `check`, or one that sets a field of the request.
fn resource_check_method<'a>(
    authorizer: &Authorizer<'a>,
    request: &AccessRequest,
    name: &str,
    text: &str,
) -> Option<Outcome<'a>> {
    let mut request = request.clone();
    let field = match name {
        "check" => return Some(check(authorizer, &request, text)),
        "subresource" => &mut request.subresource,
        "namespace" => &mut request.namespace,
        "name" => &mut request.name,
        "fieldSelector" => &mut request.field_selector,
        "labelSelector" => &mut request.label_selector,
        _ => return None,
    };
    text.clone_into(field);
    Some(Ok(value(Authorization::ResourceCheck(authorizer.clone(), request))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authorization::{Authorize, Decision, Subject};
    use crate::{Failure, PER_CALL_LIMIT, Program, Scope};

    /// Allows verbs that begin with `get`, and prints the request in its reason.
    #[derive(Debug)]
    struct PrintedRequest;

    impl Authorize for PrintedRequest {
        fn authorize(&self, subject: &Subject, request: &AccessRequest) -> Decision {
            let who = match subject {
                Subject::Requester => String::new(),
                Subject::ServiceAccount { namespace, name } => format!("{namespace}:{name} "),
            };
            let AccessRequest { path, verb, group, resource, subresource, namespace, name, .. } =
                request;
            let what = match path {
                Some(path) => path.clone(),
                None => format!("{group}/{resource}/{subresource}/{namespace}/{name}"),
            };
            let selectors = [&request.field_selector, &request.label_selector];
            let selectors: Vec<String> =
                selectors.iter().map(|text| format!(" [{text}]")).collect();
            Decision {
                allowed: verb.starts_with("get"),
                reason: format!("{who}{verb} {what}{}", selectors.concat()),
                error: verb.ends_with('!').then(|| "broken".to_owned()),
            }
        }
    }

    fn run(source: &str) -> (Result<String, Failure>, u64) {
        let program = Program::parse(source).expect(source);
        let requester = Authorizer::of_requester(&PrintedRequest);
        let request = AccessRequest {
            group: "apps".to_owned(),
            resource: "deployments".to_owned(),
            namespace: "ns".to_owned(),
            name: "d".to_owned(),
            ..AccessRequest::default()
        };
        let scope = Scope::default()
            .with("authorizer", value(Authorization::Authorizer(requester.clone())))
            .with(
                "authorizer.requestResource",
                value(Authorization::ResourceCheck(requester, request)),
            );
        let mut left = PER_CALL_LIMIT;
        let result = program.run(&scope, &mut left).map(|value| value.shown());
        (result, PER_CALL_LIMIT - left)
    }

    #[test]
    fn each_method_sets_its_part_of_the_request() {
        for (source, want) in [
            ("authorizer.path('/healthz').check('get').reason()", "get /healthz [] []"),
            ("authorizer.path('/healthz').check('get').allowed()", "true"),
            ("authorizer.path('/healthz').check('put').allowed()", "false"),
            ("authorizer.group('').resource('pods').check('list').reason()", "list /pods/// [] []"),
            (
                "authorizer.group('a').resource('b').subresource('c').namespace('d').name('e').check('x').reason()",
                "x a/b/c/d/e [] []",
            ),
            (
                "authorizer.group('').resource('pods').fieldSelector('a=b').labelSelector('c in (d)').check('list').reason()",
                "list /pods/// [a=b] [c in (d)]",
            ),
            (
                "authorizer.group('').resource('pods').name('a').name('').check('x').reason()",
                "x /pods/// [] []",
            ),
            (
                "authorizer.serviceAccount('ns', 'sa').path('/p').check('get').reason()",
                "ns:sa get /p [] []",
            ),
            ("authorizer.requestResource.check('x').reason()", "x apps/deployments//ns/d [] []"),
            (
                "authorizer.requestResource.name('').check('x').reason()",
                "x apps/deployments//ns/ [] []",
            ),
            ("authorizer.path('/p').check('get').errored()", "false"),
            ("authorizer.path('/p').check('get').error()", ""),
            ("authorizer.path('/p').check('get!').errored()", "true"),
            ("authorizer.path('/p').check('get!').error()", "broken"),
        ] {
            assert_eq!(run(source).0.as_deref(), Ok(want), "{source}");
        }
    }

    #[test]
    fn arguments_that_cannot_be_checked_are_errors() {
        for (source, want) in [
            ("authorizer.path('')", "path must not be empty"),
            ("authorizer.path('  ')", "path must not be empty"),
            ("authorizer.group('').resource(' ')", "resource must not be empty"),
            ("authorizer.serviceAccount('a.b', 'c')", "Invalid service account namespace"),
            ("authorizer.serviceAccount('a', 'c@d')", "Invalid service account name"),
            ("authorizer.check('get')", "no such overload"),
            ("authorizer.group('').check('get')", "no such overload"),
            ("authorizer.path(1)", "no such overload"),
            ("authorizer.path('/p').check('get').nope()", "no such overload"),
        ] {
            assert_eq!(run(source).0, Err(Failure::Error(want.to_owned())), "{source}");
        }
    }

    /// Two checks are affordable in one expression, three are not.
    #[test]
    fn costs_are_upstreams() {
        for (source, want) in [
            ("authorizer.path('/p').check('get').allowed()", 350_003),
            ("authorizer.requestResource.check('get').allowed()", 350_002),
            (
                "authorizer.serviceAccount('a', 'b').group('').resource('p').namespace('n').check('get').reason()",
                350_006,
            ),
            // 10 for the list, 1 for the string, and 50 for each possible requirement.
            (
                "authorizer.group('').resource('p').labelSelector('a=b').check('get').error()",
                350_004 + 10 + 1 + 100,
            ),
        ] {
            assert_eq!(run(source).1, want, "{source}");
        }
        let check = "authorizer.path('/p').check('put').allowed()";
        assert_eq!(run(&format!("{check} || {check}")).0.as_deref(), Ok("false"));
        assert_eq!(run(&format!("{check} || {check} || {check}")).0, Err(Failure::BudgetExceeded));
    }
}
