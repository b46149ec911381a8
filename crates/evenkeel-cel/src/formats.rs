//! Checks of string formats; an unknown format accepts any string. Upstream: `kube-openapi/pkg/validation/strfmt`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use base64::{DecodeError, Engine as _};

/// Formats that upstream supports. A CustomResourceDefinition with another format gets a warning.
const KNOWN: [&str; 26] = [
    "bsonobjectid",
    "uri",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "cidr",
    "mac",
    "uuid",
    "uuid3",
    "uuid4",
    "uuid5",
    "isbn",
    "isbn10",
    "isbn13",
    "creditcard",
    "ssn",
    "hexcolor",
    "rgbcolor",
    "byte",
    "password",
    "date",
    "duration",
    "datetime",
    "date-time",
    "k8s-short-name",
];

/// Decoder of `byte` fields. Upstream uses the URL-safe alphabet, so that `+` and `/` are invalid.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::URL_SAFE,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

/// Decodes the value of a `byte` field.
///
/// Upstream: `Base64.UnmarshalText`.
pub(crate) fn bytes(text: &str) -> Result<Vec<u8>, String> {
    BASE64.decode(text).map_err(|error| {
        let at = match error {
            DecodeError::InvalidByte(at, _) | DecodeError::InvalidLastSymbol(at, _) => at,
            DecodeError::InvalidLength(_) | DecodeError::InvalidPadding => text.len(),
        };
        format!("Invalid byte formatted string {text}: illegal base64 data at input byte {at}")
    })
}

/// Returns whether upstream supports the format for values of this type.
pub fn is_known(kind: &str, format: &str) -> bool {
    match kind {
        "integer" => matches!(format, "int32" | "int64"),
        "number" => matches!(format, "float" | "double" | "int32" | "int64"),
        _ => KNOWN.contains(&format) || matches!(format, "int32" | "int64" | "float" | "double"),
    }
}

/// Returns whether a string has the format; an unknown format accepts any string.
pub fn fits(format: &str, text: &str) -> bool {
    match format {
        "date-time" | "datetime" => is_date_time(text),
        "date" => is_date(text),
        "ipv4" => text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
        "cidr" => is_cidr(text),
        "uri" => is_uri(text),
        "byte" => !text.is_empty() && base64::prelude::BASE64_STANDARD.decode(text).is_ok(),
        "uuid" => is_uuid(text, None),
        "uuid3" => is_uuid(text, Some('3')),
        "uuid4" => is_uuid(text, Some('4')),
        "uuid5" => is_uuid(text, Some('5')),
        "hostname" => is_hostname(text),
        "email" => is_email(text),
        "mac" => is_mac(text),
        "hexcolor" => is_color(text),
        "duration" => is_duration(text),
        _ => true,
    }
}

fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else { return false };
    address
        .parse::<IpAddr>()
        .is_ok_and(|address| evenkeel_api::cidr::parse_prefix_length(address, bits).is_some())
}

fn is_uri(text: &str) -> bool {
    let scheme = text.split_once(':').map(|(scheme, _)| scheme);
    text.starts_with('/')
        || scheme.is_some_and(|s| {
            s.starts_with(|c: char| c.is_ascii_alphabetic())
                && s.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
        })
}

fn is_uuid(text: &str, version: Option<char>) -> bool {
    let digits: Vec<char> = text.chars().filter(|c| *c != '-').collect();
    // Either no dashes at all, or all of them: 8-4-4-4-12 digits.
    let has_valid_dashes = !text.contains('-')
        || text.char_indices().all(|(index, c)| (c == '-') == matches!(index, 8 | 13 | 18 | 23));
    digits.len() == 32
        && has_valid_dashes
        && digits.iter().all(char::is_ascii_hexdigit)
        && version.is_none_or(|v| digits[12] == v)
}

fn is_hostname(text: &str) -> bool {
    let is_label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && label.chars().all(|c| c.is_alphanumeric() || c == '-' || c == '_')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    !text.is_empty() && text.len() <= 255 && text.trim_end_matches('.').split('.').all(is_label)
}

fn is_email(text: &str) -> bool {
    text.rsplit_once('@').is_some_and(|(local, host)| !local.is_empty() && is_hostname(host))
}

fn is_mac(text: &str) -> bool {
    let pairs: Vec<&str> = text.split([':', '-']).collect();
    pairs.len() == 6
        && pairs.iter().all(|p| p.len() == 2 && p.chars().all(|c| c.is_ascii_hexdigit()))
}

fn is_color(text: &str) -> bool {
    let digits = text.strip_prefix('#').unwrap_or(text);
    matches!(digits.len(), 3 | 6) && digits.chars().all(|c| c.is_ascii_hexdigit())
}

/// Returns whether `text` is a Go duration, or a phrase such as `3 days`, which strfmt also accepts.
fn is_duration(text: &str) -> bool {
    let mut rest = text.trim_start_matches(['-', '+']);
    if rest == "0" {
        return true;
    }
    let mut has_parts = false;
    while !rest.is_empty() {
        let after_number = rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        let has_number = after_number.len() < rest.len();
        let unit = after_number.trim_start();
        let unit_length = unit.len() - unit.trim_start_matches(char::is_alphabetic).len();
        const UNITS: [&str; 25] = [
            "ns",
            "us",
            "µs",
            "ms",
            "s",
            "m",
            "h",
            "d",
            "w",
            "nano",
            "nanoseconds",
            "micro",
            "milli",
            "sec",
            "second",
            "seconds",
            "min",
            "minute",
            "minutes",
            "hr",
            "hour",
            "hours",
            "day",
            "days",
            "weeks",
        ];
        if !has_number || !UNITS.contains(&&unit[..unit_length]) {
            return false;
        }
        has_parts = true;
        rest = unit[unit_length..].trim_start();
    }
    has_parts
}

/// Returns whether the text is a date, as `2006-01-02`.
fn is_date(text: &str) -> bool {
    text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok()
}

/// Returns whether the text is a date and time of RFC 3339, without leap seconds. As upstream, the letters `T` and `Z` may be
/// small, the mark before the fraction may be any, and the offset has no range.
///
/// Upstream: `IsDateTime`.
fn is_date_time(text: &str) -> bool {
    let text = text.to_lowercase();
    let mut parts = text.split('t');
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else { return false };
    is_date(date) && is_time(time)
}

/// Returns whether the text is a time with an offset, as `15:04:05.999z` or `15:04:05+07:00`.
fn is_time(text: &str) -> bool {
    let is_digits = |text: &str| text.bytes().all(|letter| letter.is_ascii_digit());
    let is_two_digits = |text: &str| text.len() == 2 && is_digits(text);
    let Some((clock, rest)) = text.split_at_checked(8) else { return false };
    let mut fields = clock.split(':');
    let is_clock = ["23", "59", "59"]
        .into_iter()
        .all(|max| fields.next().is_some_and(|field| is_two_digits(field) && field <= max));
    let offset = rest.len().checked_sub(6).and_then(|at| rest.split_at_checked(at));
    let fraction = match (rest.strip_suffix('z'), offset) {
        (Some(fraction), _) => fraction,
        (None, Some((fraction, offset))) => {
            let zone = offset.strip_prefix(['+', '-']).and_then(|zone| zone.split_once(':'));
            let is_offset =
                zone.is_some_and(|(hours, minutes)| is_two_digits(hours) && is_two_digits(minutes));
            if !is_offset {
                return false;
            }
            fraction
        }
        (None, None) => return false,
    };
    let mut letters = fraction.chars();
    let is_fraction = match letters.next() {
        None => true,
        Some('\n') => false,
        Some(_) => !letters.as_str().is_empty() && is_digits(letters.as_str()),
    };
    is_clock && is_fraction
}

#[cfg(test)]
mod tests {
    use super::fits;

    #[test]
    fn formats() {
        for (format, good, bad) in [
            ("date-time", "2024-01-02T03:04:05Z", "2024-01-02"),
            ("date", "2024-01-02", "2024-1-2"),
            ("ipv4", "1.2.3.4", "::1"),
            ("cidr", "10.0.0.0/8", "10.0.0.0/33"),
            ("uuid", "123e4567-e89b-12d3-a456-426614174000", "123e4567"),
            ("uri", "https://x/y", "no uri"),
            ("byte", "aGk=", "a"),
            ("duration", "1h30m", "1x"),
            ("email", "a@b.c", "a"),
        ] {
            assert!(fits(format, good), "{format} {good}");
            assert!(!fits(format, bad), "{format} {bad}");
        }
        assert!(fits("whatever", "x"));
    }

    #[test]
    fn times_are_those_of_rfc_3339() {
        for (text, want) in [
            ("2020-01-01T00:00:00Z", true),
            ("2020-01-01t23:59:59.123456789012+99:99", true),
            ("2020-01-01T00:00:00,5z", true),
            ("2020-01-01 00:00:00Z", false),
            ("2020-01-01T00:00:60Z", false),
            ("2020-01-01T24:00:00Z", false),
            ("2020-01-01T00:00:00", false),
            ("2020-01-01T00:00:00.Z", false),
            ("2020-01-01T00:00:00+0100", false),
            ("2020-02-30T00:00:00Z", false),
            ("2020-01-01T00:00Z", false),
            ("2020-01-01T0\u{e9}:00:00Z", false),
            ("", false),
        ] {
            assert_eq!(fits("date-time", text), want, "{text}");
        }
    }
}
