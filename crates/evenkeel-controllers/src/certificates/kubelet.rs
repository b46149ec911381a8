//! Rules for kubelets' client and serving certificates. Upstream: `pkg/apis/certificates/helpers.go`, whose messages
//! appear in conditions.

use super::request::ParsedRequest;

/// Organization in the certificate of a kubelet, and group of all nodes.
const NODES_GROUP: &str = "system:nodes";
/// Prefix of the common name in the certificate of a kubelet. The node's name follows.
const NODE_USER_PREFIX: &str = "system:node:";

/// Returns the reason why a request is not for a kubelet's client certificate. Upstream: `ValidateKubeletClientCSR`.
pub(super) fn client_error(request: &ParsedRequest, usages: &[String]) -> Option<String> {
    let subject = || subject_error(request);
    let names = || {
        let table = [
            (!request.dns_names.is_empty(), "DNS subjectAltNames are not allowed"),
            (!request.emails.is_empty(), "Email subjectAltNames are not allowed"),
            (!request.addresses.is_empty(), "IP subjectAltNames are not allowed"),
            (!request.uris.is_empty(), "URI subjectAltNames are not allowed"),
        ];
        first_violation(&table)
    };
    let usage = || usage_error(usages, "client auth");
    organization_error(request).or_else(names).or_else(subject).or_else(usage)
}

/// Returns the reason why a request is not for a kubelet's serving certificate. Upstream:
/// `ValidateKubeletServingCSR`.
pub(super) fn serving_error(request: &ParsedRequest, usages: &[String]) -> Option<String> {
    let names = || {
        let has_no_name = request.dns_names.is_empty() && request.addresses.is_empty();
        let table = [
            (has_no_name, "DNS or IP subjectAltName is required"),
            (!request.emails.is_empty(), "Email subjectAltNames are not allowed"),
            (!request.uris.is_empty(), "URI subjectAltNames are not allowed"),
        ];
        first_violation(&table)
    };
    let usage = || usage_error(usages, "server auth");
    let subject = || subject_error(request);
    organization_error(request).or_else(names).or_else(usage).or_else(subject)
}

/// Returns the message of the first rule in the table that is violated.
fn first_violation(table: &[(bool, &str)]) -> Option<String> {
    let (_, message) = table.iter().find(|(is_violated, _)| *is_violated)?;
    Some((*message).to_owned())
}

/// Returns an error if the organization is not `system:nodes`.
fn organization_error(request: &ParsedRequest) -> Option<String> {
    let is_valid =
        matches!(&*request.subject.organizations, [organization] if organization == NODES_GROUP);
    (!is_valid).then(|| "subject organization is not system:nodes".to_owned())
}

/// Returns an error if the common name does not begin with `system:node:`.
fn subject_error(request: &ParsedRequest) -> Option<String> {
    let is_valid = request.subject.common_name.starts_with(NODE_USER_PREFIX);
    (!is_valid).then(|| "subject common name does not begin with system:node:".to_owned())
}

/// Returns the error unless the usages are `auth`, digital signature and optionally key encipherment, in any order.
fn usage_error(usages: &[String], auth: &str) -> Option<String> {
    let signature = "digital signature";
    let encipherment = "key encipherment";
    let mut allowed = [signature, encipherment, auth];
    allowed.sort_unstable();
    let has = |usage: &str| usages.iter().any(|other| other == usage);
    let has_only_allowed = usages.iter().all(|usage| allowed.contains(&&**usage));
    let is_valid = has_only_allowed && has(signature) && has(auth);
    (!is_valid).then(|| format!("usages did not match [{}]", allowed.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificates::request::Subject;

    fn usages(all: &[&str]) -> Vec<String> {
        all.iter().map(|usage| (*usage).to_owned()).collect()
    }

    fn node(change: impl FnOnce(&mut ParsedRequest)) -> ParsedRequest {
        let subject = Subject {
            organizations: vec![NODES_GROUP.to_owned()],
            common_name: "system:node:a".to_owned(),
            ..Subject::default()
        };
        let mut request = ParsedRequest::default();
        request.subject = subject;
        change(&mut request);
        request
    }

    #[test]
    fn client_request_needs_a_node_subject_no_names_and_client_auth() {
        let all = usages(&["client auth", "digital signature", "key encipherment"]);
        let required = usages(&["digital signature", "client auth"]);
        let repeated = usages(&["digital signature", "client auth", "client auth"]);
        for valid_usages in [&all, &required, &repeated] {
            assert_eq!(client_error(&node(|_| {}), valid_usages), None);
        }
        let organization = "subject organization is not system:nodes";
        let table: [(ParsedRequest, &str); 8] = [
            (node(|r| r.subject.organizations.clear()), organization),
            (node(|r| r.subject.organizations.push("more".into())), organization),
            (
                node(|r| r.subject.common_name = "a".into()),
                "subject common name does not begin with system:node:",
            ),
            (node(|r| r.dns_names.push("a".into())), "DNS subjectAltNames are not allowed"),
            (node(|r| r.emails.push("a".into())), "Email subjectAltNames are not allowed"),
            (node(|r| r.addresses.push([1, 2, 3, 4].into())), "IP subjectAltNames are not allowed"),
            (node(|r| r.uris.push("a".into())), "URI subjectAltNames are not allowed"),
            // The names are checked before the subject.
            (
                node(|r| {
                    r.uris.push("a".into());
                    r.subject.common_name.clear();
                }),
                "URI subjectAltNames are not allowed",
            ),
        ];
        for (request, expected) in table {
            assert_eq!(client_error(&request, &required).as_deref(), Some(expected));
        }
        let expected = "usages did not match [client auth digital signature key encipherment]";
        for wrong in [
            &["client auth"][..],
            &["digital signature"],
            &["digital signature", "client auth", "server auth"],
            &[],
        ] {
            assert_eq!(
                client_error(&node(|_| {}), &usages(wrong)).as_deref(),
                Some(expected),
                "{wrong:?}"
            );
        }
    }

    #[test]
    fn serving_request_needs_names_and_server_auth() {
        let valid_usages = usages(&["server auth", "digital signature"]);
        assert_eq!(serving_error(&node(|r| r.dns_names.push("a".into())), &valid_usages), None);
        assert_eq!(
            serving_error(&node(|r| r.addresses.push([1, 2, 3, 4].into())), &valid_usages),
            None
        );
        let without_names = serving_error(&node(|_| {}), &valid_usages);
        assert_eq!(without_names.as_deref(), Some("DNS or IP subjectAltName is required"));
        // Usages are checked before the subject.
        let wrong = node(|r| {
            r.dns_names.push("a".into());
            r.subject.common_name.clear();
        });
        let error = serving_error(&wrong, &usages(&["client auth"]));
        assert_eq!(
            error.as_deref(),
            Some("usages did not match [digital signature key encipherment server auth]")
        );
        let error = serving_error(&wrong, &valid_usages);
        assert_eq!(error.as_deref(), Some("subject common name does not begin with system:node:"));
    }
}
