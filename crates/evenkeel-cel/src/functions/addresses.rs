//! Error messages for invalid IP addresses.
//!
//! Upstream: Go's `net/netip`.

use evenkeel_api::quote::quote;

/// Returns Go's error for a string that is not an IP address; `None` for a valid address.
pub(crate) fn parse_error(text: &str) -> Option<String> {
    let error = match text.find(['.', ':', '%']) {
        None => Some(("unable to parse IP", "")),
        Some(at) => match text.as_bytes().get(at) {
            Some(b'.') => check_ipv4(text),
            Some(b':') => check_ipv6(text),
            _ => Some(("missing IPv6 address", "")),
        },
    };
    error.map(|(message, rest)| {
        let position =
            if rest.is_empty() { String::new() } else { format!(" (at {})", quote(rest)) };
        format!("ParseAddr({}): {message}{position}", quote(text))
    })
}

/// Message of an error, and the rest of the string from the error's position; empty if the error has no position.
/// `None` without an error.
type Problem<'t> = Option<(&'static str, &'t str)>;

/// Checks the four fields of an IPv4 address.
fn check_ipv4(text: &str) -> Problem<'_> {
    let bytes = text.as_bytes();
    let (mut value, mut digits, mut dots) = (0u32, 0, 0);
    for (index, byte) in bytes.iter().enumerate() {
        let rest = text.get(index..).unwrap_or_default();
        match byte {
            b'0'..=b'9' => {
                if digits == 1 && value == 0 {
                    return Some(("IPv4 field has octet with leading zero", ""));
                }
                value = value * 10 + u32::from(byte - b'0');
                digits += 1;
                if value > 255 {
                    return Some(("IPv4 field has value >255", ""));
                }
            }
            b'.' => {
                let before = index.checked_sub(1).and_then(|index| bytes.get(index));
                if before.is_none_or(|before| *before == b'.') || index + 1 == bytes.len() {
                    return Some(("IPv4 field must have at least one digit", rest));
                }
                if dots == 3 {
                    return Some(("IPv4 address too long", ""));
                }
                (value, digits, dots) = (0, 0, dots + 1);
            }
            _ => return Some(("unexpected character", rest)),
        }
    }
    (dots < 3).then_some(("IPv4 address too short", ""))
}

/// Checks the groups of an IPv6 address.
fn check_ipv6(text: &str) -> Problem<'_> {
    let mut rest = match text.split_once('%') {
        Some((_, "")) => return Some(("zone must be a non-empty string", "")),
        Some((address, _)) => address,
        None => text,
    };
    // Whether `::` has occurred.
    let mut has_gap = false;
    if let Some(after) = rest.strip_prefix("::") {
        if after.is_empty() {
            return None;
        }
        (rest, has_gap) = (after, true);
    }
    // Number of bytes of the address so far.
    let mut length = 0;
    while length < 16 {
        let end = rest.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(rest.len());
        if end > 4 {
            return Some(("each group must have 4 or less digits", rest));
        }
        if end == 0 {
            return Some(("each colon-separated field must have at least one digit", rest));
        }
        let after = rest.get(end..).unwrap_or_default();
        if after.starts_with('.') {
            if !has_gap && length != 12 {
                let what = "embedded IPv4 address must replace the final 2 fields of the address";
                return Some((what, rest));
            }
            if length + 4 > 16 {
                let what = "too many hex fields to fit an embedded IPv4 at the end of the address";
                return Some((what, rest));
            }
            if let Some(problem) = check_ipv4(rest) {
                return Some(problem);
            }
            (rest, length) = ("", length + 4);
            break;
        }
        length += 2;
        if after.is_empty() {
            rest = after;
            break;
        }
        let Some(next) = after.strip_prefix(':') else {
            return Some(("unexpected character, want colon", after));
        };
        if next.is_empty() {
            return Some(("colon must be followed by more characters", after));
        }
        rest = next;
        if let Some(after) = next.strip_prefix(':') {
            if has_gap {
                return Some(("multiple :: in address", next));
            }
            (rest, has_gap) = (after, true);
            if after.is_empty() {
                break;
            }
        }
    }
    match (rest.is_empty(), length < 16, has_gap) {
        (false, _, _) => Some(("trailing garbage after address", rest)),
        (_, true, false) => Some(("address string too short", "")),
        (_, false, true) => Some(("the :: must expand to at least one field of zeros", "")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_go() {
        for (text, want) in [
            ("", "unable to parse IP"),
            ("nope", "unable to parse IP"),
            ("1.2.3", "IPv4 address too short"),
            ("01.2.3.4", "IPv4 field has octet with leading zero"),
            ("1.2.3.4.5", "IPv4 address too long"),
            ("1..2.3", "IPv4 field must have at least one digit (at \".2.3\")"),
            ("1.2.3.256", "IPv4 field has value >255"),
            ("1.2.3.x", "unexpected character (at \"x\")"),
            ("1:2", "address string too short"),
            ("1::2::3", "multiple :: in address (at \":3\")"),
            ("::12345", "each group must have 4 or less digits (at \"12345\")"),
            ("fe80::1%", "zone must be a non-empty string"),
            ("::g", "each colon-separated field must have at least one digit (at \"g\")"),
        ] {
            let want = format!("ParseAddr({}): {want}", quote(text));
            assert_eq!(parse_error(text).as_deref(), Some(&*want), "{text}");
        }
        for text in
            ["1.2.3.4", "::", "::1", "1:2:3:4:5:6:7:8", "::ffff:1.2.3.4", "fe80::1%e", "1::"]
        {
            assert_eq!(parse_error(text), None, "{text}");
        }
    }
}
