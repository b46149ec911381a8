//! Validation of names, labels and other strings, with upstream's messages
//! (`k8s.io/apimachinery/pkg/util/validation`). Each function returns one message for each rule that the string breaks.
//! The list is empty if the string is valid.

use crate::address;

/// Messages about the rules that a string breaks; empty if the string is valid.
pub type Messages = Vec<String>;

// Regular expressions that the messages show. The checks do not use them.
const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const QUALIFIED: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";

/// Returns a message that names valid examples and the regular expression of the rule.
///
/// Upstream: `RegexError`.
fn regex_error(message: &str, regex: &str, examples: &[&str]) -> String {
    let examples: Vec<String> = examples.iter().map(|example| format!("'{example}', ")).collect();
    format!("{message} (e.g. {}regex used for validation is '{regex}')", examples.join(" or "))
}

fn is_lower_or_digit(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

/// Returns whether `text` matches the regular expression [`LABEL`].
fn is_label(text: &str) -> bool {
    let bytes = text.as_bytes();
    match (bytes.first(), bytes.last()) {
        (Some(&first), Some(&last)) => {
            is_lower_or_digit(first)
                && is_lower_or_digit(last)
                && bytes.iter().all(|&byte| is_lower_or_digit(byte) || byte == b'-')
        }
        _ => false,
    }
}

/// Returns whether `text` matches the regular expression [`SUBDOMAIN`].
fn is_subdomain(text: &str) -> bool {
    text.split('.').all(is_label)
}

/// Adds a message if `text` is longer than `limit` bytes.
fn check_max_length(text: &str, limit: usize, messages: &mut Messages) {
    if text.len() > limit {
        messages.push(format!("must be no more than {limit} characters"));
    }
}

/// Validates an RFC 1123 label, such as the name of a namespace, container or volume.
///
/// Upstream: `IsDNS1123Label`.
pub fn dns_label(text: &str) -> Messages {
    let mut messages = Messages::new();
    check_max_length(text, 63, &mut messages);
    if !is_label(text) {
        messages.push(if is_subdomain(text) {
            "must not contain dots".to_owned()
        } else {
            regex_error(
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start \
                 and end with an alphanumeric character",
                LABEL,
                &["my-name", "123-abc"],
            )
        });
    }
    messages
}

/// Validates an RFC 1123 subdomain, such as the name of most objects.
///
/// Upstream: `IsDNS1123Subdomain`.
pub fn dns_subdomain(text: &str) -> Messages {
    let mut messages = Messages::new();
    check_max_length(text, 253, &mut messages);
    if !is_subdomain(text) {
        messages.push(regex_error(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
             start and end with an alphanumeric character",
            SUBDOMAIN,
            &["example.com"],
        ));
    }
    messages
}

/// Validates an RFC 1123 subdomain with letters of either case, such as the name of a driver.
///
/// Upstream: `IsDNS1123SubdomainCaseless`.
pub fn dns_subdomain_caseless(text: &str) -> Messages {
    let mut messages = Messages::new();
    if text.len() > 253 {
        messages.push("must be no more than 253 bytes".to_owned());
    }
    if !is_subdomain(&text.to_ascii_lowercase()) {
        messages.push(regex_error(
            "an RFC 1123 subdomain must consist of alphanumeric characters, '-' or '.', and must start and end with an \
             alphanumeric character",
            SUBDOMAIN,
            &["Example.com"],
        ));
    }
    messages
}

/// Validates an RFC 1123 subdomain whose labels may have underscores, such as a search path of a resolver.
///
/// Upstream: `IsDNS1123SubdomainWithUnderscore`.
pub fn dns_subdomain_with_underscore(text: &str) -> Messages {
    let mut messages = Messages::new();
    check_max_length(text, 253, &mut messages);
    let is_label_with_underscore = |label: &str| {
        let rest = label.strip_prefix('_').unwrap_or(label).as_bytes();
        rest.first().is_some_and(|first| is_lower_or_digit(*first))
            && rest.last().is_some_and(|last| is_lower_or_digit(*last))
            && rest.iter().all(|byte| is_lower_or_digit(*byte) || matches!(byte, b'-' | b'_'))
    };
    if !text.split('.').all(is_label_with_underscore) {
        messages.push(regex_error(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and \
             must start and end with an alphanumeric character",
            "_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*",
            &["example.com"],
        ));
    }
    messages
}

/// Validates a C identifier.
///
/// Upstream: `IsCIdentifier`.
pub fn c_identifier(text: &str) -> Messages {
    let is_word = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if is_word && text.bytes().next().is_some_and(|first| !first.is_ascii_digit()) {
        return Messages::new();
    }
    let message = "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric \
                 characters or '_'";
    vec![regex_error(message, "[A-Za-z_][A-Za-z0-9_]*", &["my_name", "MY_NAME", "MyName"])]
}

/// Validates an RFC 1035 label, which begins with a letter.
///
/// Upstream: `IsDNS1035Label`.
pub fn dns_1035_label(text: &str) -> Messages {
    let mut messages = Messages::new();
    check_max_length(text, 63, &mut messages);
    if !is_label(text) || text.starts_with(|c: char| c.is_ascii_digit()) {
        messages.push(regex_error(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
             character, and end with an alphanumeric character",
            "[a-z]([-a-z0-9]*[a-z0-9])?",
            &["my-name", "abc-123"],
        ));
    }
    messages
}

/// Validates a wildcard subdomain such as `*.example.com`.
///
/// Upstream: `IsWildcardDNS1123Subdomain`.
pub fn wildcard_subdomain(text: &str) -> Messages {
    let mut messages = Messages::new();
    check_max_length(text, 253, &mut messages);
    if !text.strip_prefix("*.").is_some_and(is_subdomain) {
        messages.push(regex_error(
            "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist \
             of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character",
            &format!(r"\*\.{SUBDOMAIN}"),
            &["*.example.com"],
        ));
    }
    messages
}

/// Returns whether `text` matches the regular expression [`QUALIFIED`].
fn is_qualified_part(text: &str) -> bool {
    let bytes = text.as_bytes();
    match (bytes.first(), bytes.last()) {
        (Some(first), Some(last)) => {
            first.is_ascii_alphanumeric()
                && last.is_ascii_alphanumeric()
                && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
        }
        _ => false,
    }
}

/// Validates a name with an optional domain prefix, such as a label key, finalizer, taint key or resource name.
///
/// Upstream: `IsQualifiedName`.
pub fn qualified_name(text: &str) -> Messages {
    let mut messages = Messages::new();
    let rule = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric \
                 character";
    let mut parts = text.split('/');
    let name = match (parts.next(), parts.next(), parts.next()) {
        (Some(name), None, None) => name,
        (Some(prefix), Some(name), None) => {
            if prefix.is_empty() {
                messages.push("prefix part must be non-empty".to_owned());
            } else {
                let prefix_messages = dns_subdomain(prefix).into_iter();
                messages.extend(prefix_messages.map(|message| format!("prefix part {message}")));
            }
            name
        }
        _ => {
            let error = regex_error(rule, QUALIFIED, &["MyName", "my.name", "123-abc"]);
            return vec![format!(
                "a valid label key {error} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        messages.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        messages.push("name part must be no more than 63 bytes".to_owned());
    }
    if !is_qualified_part(name) {
        messages.push(format!(
            "name part {}",
            regex_error(rule, QUALIFIED, &["MyName", "my.name", "123-abc"])
        ));
    }
    messages
}

/// Validates a label's value.
///
/// Upstream: `IsValidLabelValue`.
pub fn label_value(text: &str) -> Messages {
    let mut messages = Messages::new();
    if text.len() > 63 {
        messages.push("must be no more than 63 bytes".to_owned());
    }
    if !text.is_empty() && !is_qualified_part(text) {
        messages.push(regex_error(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
             start and end with an alphanumeric character",
            "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?",
            &["MyValue", "my_value", "12345"],
        ));
    }
    messages
}

/// Validates a name whose only rule is that it fits into a path segment, such as the name of an RBAC role or binding.
///
/// Upstream: `ValidatePathSegmentName`.
pub fn path_segment(text: &str) -> Messages {
    if text == "." || text == ".." {
        return vec![format!("may not be '{text}'")];
    }
    ["/", "%"]
        .iter()
        .filter(|part| text.contains(**part))
        .map(|part| format!("may not contain '{part}'"))
        .collect()
}

/// Adds a message if `text` is `.` or begins with `..`, because a volume has a file for each key.
fn check_not_parent_directory(text: &str, messages: &mut Messages) {
    match text {
        "." | ".." => messages.push(format!("must not be '{text}'")),
        _ if text.starts_with("..") => messages.push("must not start with '..'".to_owned()),
        _ => {}
    }
}

/// Validates a key of a ConfigMap or a Secret.
///
/// Upstream: `IsConfigMapKey`.
pub fn config_key(text: &str) -> Messages {
    let mut messages = Messages::new();
    check_max_length(text, 253, &mut messages);
    if text.is_empty()
        || !text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
    {
        messages.push(regex_error(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
            "[-._a-zA-Z0-9]+",
            &["key.name", "KEY_NAME", "key-name"],
        ));
    }
    check_not_parent_directory(text, &mut messages);
    messages
}

/// Validates the name of an environment variable: any printable ASCII characters except `=`.
///
/// Upstream: `IsRelaxedEnvVarName`.
pub fn env_name(text: &str) -> Messages {
    if text.is_empty() {
        return vec!["environment variable name must be non-empty".to_owned()];
    }
    if text.bytes().all(|byte| (b' '..=b'~').contains(&byte) && byte != b'=') {
        return Messages::new();
    }
    vec!["a valid environment variable name must consist only of printable ASCII characters other than '='".to_owned()]
}

/// Validates the name of a container's or Service's port.
///
/// Upstream: `IsValidPortName`.
pub fn port_name(text: &str) -> Messages {
    let mut messages = Messages::new();
    check_max_length(text, 15, &mut messages);
    if text.is_empty() || !text.bytes().all(|byte| is_lower_or_digit(byte) || byte == b'-') {
        messages.push(
            "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned(),
        );
    }
    if !text.bytes().any(|byte| byte.is_ascii_lowercase()) {
        messages.push("must contain at least one letter (a-z)".to_owned());
    }
    if text.contains("--") {
        messages.push("must not contain consecutive hyphens".to_owned());
    }
    if text.starts_with('-') || text.ends_with('-') {
        messages.push("must not begin or end with a hyphen".to_owned());
    }
    messages
}

/// Validates the name of an HTTP header.
///
/// Upstream: `IsHTTPHeaderName`.
pub fn http_header(text: &str) -> Messages {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
        return Messages::new();
    }
    let message = "a valid HTTP header must consist of alphanumeric characters or '-'";
    vec![regex_error(message, "[-A-Za-z0-9]+", &["X-Header-Name"])]
}

/// Validates an IP address of either family. Rejects IPv4-mapped IPv6 addresses and octets with leading zeros, because
/// programs interpret them differently.
///
/// Upstream: `IsValidIPForLegacyField`.
pub fn ip(text: &str) -> Messages {
    match text.parse::<core::net::IpAddr>() {
        Ok(core::net::IpAddr::V6(address)) if address.to_ipv4_mapped().is_some() => {
            vec!["must not be an IPv4-mapped IPv6 address".to_owned()]
        }
        Ok(_) => Messages::new(),
        Err(_) if address::parse(text).is_some() => vec!["must not have leading 0s".to_owned()],
        Err(_) => vec!["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)".to_owned()],
    }
}

/// Validates an IP address in canonical form. Each address has exactly one canonical form.
///
/// Upstream: `IsValidIP`.
pub fn canonical_ip(text: &str) -> Messages {
    let mut messages = ip(text);
    if !messages.is_empty() {
        return messages;
    }
    let address = text.parse::<core::net::IpAddr>().ok();
    let canonical = address.map(|address| address.to_string());
    if let Some(canonical) = canonical.filter(|canonical| canonical != text) {
        messages.push(format!("must be in canonical form (\"{canonical}\")"));
    }
    messages
}

/// Parses a CIDR into address and prefix length, and keeps the host bits.
pub fn parse_cidr(text: &str) -> Option<(core::net::IpAddr, u8)> {
    let (address, bits) = text.split_once('/')?;
    let address: core::net::IpAddr = address.parse().ok()?;
    Some((address, crate::cidr::parse_prefix_length(address, bits)?))
}

/// Validates a CIDR of either family.
///
/// Upstream: `IsValidCIDR`.
pub fn cidr(text: &str) -> Messages {
    if parse_cidr(text).is_some() {
        return Messages::new();
    }
    vec!["must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)".to_owned()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(form: fn(&str) -> Messages, good: &[&str], bad: &[&str]) {
        for text in good {
            assert_eq!(form(text), Messages::new(), "{text:?} is valid");
        }
        for text in bad {
            assert!(!form(text).is_empty(), "{text:?} is invalid");
        }
    }

    #[test]
    fn forms_accept_valid_and_reject_invalid_names() {
        let x = |length: usize| "x".repeat(length);
        check(dns_label, &["a", "0-b", &x(63)], &["", "A", "-a", "a-", "a.b", "é", &x(64)]);
        check(
            dns_subdomain,
            &["a.b-c.d", "0", &x(253)],
            &["", "a..b", ".a", "-a", "A", "a_b", "é", &x(254)],
        );
        check(dns_subdomain_caseless, &["A.b-C", "0"], &["", "A..b", "a_b"]);
        check(c_identifier, &["a", "_1", "A_b"], &["", "1a", "a-b", "é"]);
        check(dns_1035_label, &["a-1", &x(63)], &["1a", "a.b", "", &x(64)]);
        check(
            qualified_name,
            &["a", "a.b/C_d", "A", "1", &x(63)],
            &["", "/a", "a/", "a/b/c", "a b", "UP/a", "A_B/c", "-a", "é", &x(64)],
        );
        check(label_value, &["", "A_b.c", &x(63)], &["-", "-a", "a b", "a/b", &x(64)]);
        check(path_segment, &["a:b", "A b", "a.b"], &[".", "..", "a/b", "50%"]);
        check(config_key, &["a.B_c-d", ".a"], &["", "..", "..a", "a b"]);
        check(env_name, &["A", "a b"], &["", "a=b", "é"]);
        check(port_name, &["http", "a-1"], &["", "1", "a--b", "-a", "HTTP", "abcdefghijklmnop"]);
        check(wildcard_subdomain, &["*.a.b"], &["*", "a.b", "*.*.a"]);
        check(ip, &["10.0.0.1", "::1"], &["", "10.0.0", "x"]);
        check(cidr, &["10.0.0.0/8", "::/0"], &["10.0.0.0", "10.0.0.0/33", "10.0.0.0/+8"]);
    }

    #[test]
    fn messages_equal_upstreams() {
        let why = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and \
                   must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation \
                   is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
        assert_eq!(dns_subdomain("Bad_"), [why]);
        // Each broken rule has a message.
        assert_eq!(dns_subdomain(&"X".repeat(254)).len(), 2);
        assert_eq!(qualified_name("a/")[0], "name part must be non-empty");
        assert_eq!(qualified_name("a/").len(), 2);
    }
}
