//! Rules of object names, and of the prefixes in `generateName`.

use evenkeel_api::forms;

/// Returns the errors of a name, or of a prefix of one if the second argument is true.
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

/// Validates an IP address in canonical form; no prefix is one.
///
/// Upstream: `ValidateIPAddressName`.
pub(crate) fn ip_address(name: &str, _: bool) -> Vec<String> {
    forms::canonical_ip(name)
}

/// Validates a path segment; a prefix must be one, too.
///
/// Upstream: `ValidateRBACName`.
pub(crate) fn path_segment(name: &str, _: bool) -> Vec<String> {
    forms::path_segment(name)
}

/// Validates a path segment, or a prefix of one, which may also be `.` or `..`.
///
/// Upstream: `ValidatePathSegmentName`.
pub fn path_segment_or_prefix(name: &str, prefix: bool) -> Vec<String> {
    if prefix && matches!(name, "." | "..") { Vec::new() } else { forms::path_segment(name) }
}

/// Returns a name, or a prefix without the last dash: generated names end in letters, so a prefix may end in a dash.
/// The character before the dash gives way with it, as upstream.
///
/// Upstream: `maskTrailingDash`.
fn masked(name: &str, prefix: bool) -> String {
    let before = name.len().checked_sub(2).filter(|_| prefix && name.ends_with('-'));
    // Part of a character, which no rule allows, stays one.
    before.map_or_else(
        || name.to_owned(),
        |end| String::from_utf8_lossy(&name.as_bytes()[..end]).into_owned() + "a",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers of kube-apiserver to `generateName`.
    #[test]
    fn prefixes_are_validated_as_upstream_does() {
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
