//! Rules for object names and for the prefixes in `generateName`.

use evenkeel_api::forms;

/// Function that validates a name and returns its errors. The second argument is true for the prefix of a name, from
/// `generateName`.
///
/// Upstream: `ValidateNameFunc`.
pub type ValidateName = fn(&str, bool) -> Vec<String>;

/// Validates an RFC 1123 subdomain.
///
/// Upstream: `NameIsDNSSubdomain`.
pub fn dns_subdomain(name: &str, is_prefix: bool) -> Vec<String> {
    forms::dns_subdomain(&mask_trailing_dash(name, is_prefix))
}

/// Validates an RFC 1123 label.
///
/// Upstream: `NameIsDNSLabel`.
pub(crate) fn dns_label(name: &str, is_prefix: bool) -> Vec<String> {
    forms::dns_label(&mask_trailing_dash(name, is_prefix))
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
pub fn path_segment_or_prefix(name: &str, is_prefix: bool) -> Vec<String> {
    if is_prefix && matches!(name, "." | "..") { Vec::new() } else { forms::path_segment(name) }
}

/// Returns the string to validate: a name unchanged, or a prefix without its trailing dash. A prefix may end in a dash,
/// because the generated name continues with letters and digits. As in upstream, `a` replaces the dash and the byte
/// before it.
///
/// Upstream: `maskTrailingDash`.
fn mask_trailing_dash(name: &str, is_prefix: bool) -> String {
    let has_trailing_dash = is_prefix && name.len() > 1 && name.ends_with('-');
    if !has_trailing_dash {
        return name.to_owned();
    }
    let kept = &name.as_bytes()[..name.len() - 2];
    // If the cut splits a character, its first bytes become U+FFFD, which no rule allows.
    String::from_utf8_lossy(kept).into_owned() + "a"
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
