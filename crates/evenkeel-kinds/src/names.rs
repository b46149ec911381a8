//! Rules for object names and for the prefixes in `generateName`.

use evenkeel_api::forms;

/// Function that returns the errors of a name. If the second argument is true, the name is a prefix.
///
/// Upstream: `ValidateNameFunc`.
pub type ValidateName = fn(&str, bool) -> Vec<String>;

/// Validates an RFC 1123 subdomain.
///
/// Upstream: `NameIsDNSSubdomain`.
pub fn dns_subdomain(name: &str, prefix: bool) -> Vec<String> {
    forms::dns_subdomain(&masked(name, prefix))
}

/// Validates an RFC 1123 label.
///
/// Upstream: `NameIsDNSLabel`.
pub(crate) fn dns_label(name: &str, prefix: bool) -> Vec<String> {
    forms::dns_label(&masked(name, prefix))
}

/// Validates an IP address in canonical form. A prefix must be a whole address too.
///
/// Upstream: `ValidateIPAddressName`.
pub(crate) fn ip_address(name: &str, _: bool) -> Vec<String> {
    forms::canonical_ip(name)
}

/// Validates a path segment. A prefix must be a path segment too.
///
/// Upstream: `ValidateRBACName`.
pub(crate) fn path_segment(name: &str, _: bool) -> Vec<String> {
    forms::path_segment(name)
}

/// Validates a path segment. A prefix may also be `.` or `..`.
///
/// Upstream: `ValidatePathSegmentName`.
pub fn path_segment_or_prefix(name: &str, prefix: bool) -> Vec<String> {
    if prefix && matches!(name, "." | "..") { Vec::new() } else { forms::path_segment(name) }
}

/// Returns the text to validate: a name as it is, or a prefix whose last dash is masked. A prefix may end in a
/// dash, because generated names end in letters. As upstream, `a` replaces the dash and the character before it.
///
/// Upstream: `maskTrailingDash`.
fn masked(name: &str, prefix: bool) -> String {
    let before = name.len().checked_sub(2).filter(|_| prefix && name.ends_with('-'));
    // A part of a cut character becomes U+FFFD, which no rule allows.
    before.map_or_else(
        || name.to_owned(),
        |end| String::from_utf8_lossy(&name.as_bytes()[..end]).into_owned() + "a",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_validated_as_upstream_does() {
        // Rules with prefixes that kube-apiserver accepts, and prefixes that it rejects.
        let rules: [(ValidateName, &[&str], &[&str]); 4] = [
            (
                dns_subdomain,
                &["--", "a-", "A-", "ab_-", "a%-", "a.-", "a.b"],
                &["-", "ab_--", "é-", ".", "..", "../", "a."],
            ),
            (
                dns_label,
                &["--", "a-", "A-", "ab_-", "a%-", "a.-"],
                &["-", "ab_--", "é-", ".", "a.b"],
            ),
            (path_segment, &["-", "--", "A-", "é-", "a.-"], &[".", "..", "../", "a%-"]),
            (path_segment_or_prefix, &["-", "A-", "é-", ".", ".."], &["../", "a%-"]),
        ];
        for (rule, valid, invalid) in rules {
            for prefix in valid {
                assert_eq!(rule(prefix, true), Vec::<String>::new(), "{prefix}");
            }
            for prefix in invalid {
                assert_ne!(rule(prefix, true), Vec::<String>::new(), "{prefix}");
            }
        }
        for rule in [dns_subdomain as ValidateName, dns_label, path_segment_or_prefix] {
            assert_ne!(rule("..", false), Vec::<String>::new());
        }
        assert_ne!(dns_subdomain("a-", false), Vec::<String>::new());
    }
}
