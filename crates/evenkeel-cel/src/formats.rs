//! Checks of string formats; an unknown format accepts any string. Upstream: `kube-openapi/pkg/validation/strfmt`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use base64::{DecodeError, Engine as _};

/// Formats that upstream knows. A CustomResourceDefinition with another format gets a warning.
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

/// Bytes in base64 as fields have them. Upstream's decoder knows only the alphabet of URLs.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::URL_SAFE,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

/// Decodes the bytes of a field.
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

/// Whether upstream knows the format for values of this type.
pub fn is_known(kind: &str, format: &str) -> bool {
    match kind {
        "integer" => matches!(format, "int32" | "int64"),
        "number" => matches!(format, "float" | "double" | "int32" | "int64"),
        _ => KNOWN.contains(&format) || matches!(format, "int32" | "int64" | "float" | "double"),
    }
}

/// Whether a text has the format; an unknown format accepts any text.
pub fn fits(format: &str, text: &str) -> bool {
    match format {
        "date-time" | "datetime" => text.parse::<jiff::Timestamp>().is_ok(),
        "date" => text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok(),
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
    let dashed = !text.contains('-')
        || text.char_indices().all(|(at, c)| (c == '-') == matches!(at, 8 | 13 | 18 | 23));
    digits.len() == 32
        && dashed
        && digits.iter().all(char::is_ascii_hexdigit)
        && version.is_none_or(|v| digits[12] == v)
}

fn is_hostname(text: &str) -> bool {
    let label = |l: &str| {
        !l.is_empty()
            && l.len() <= 63
            && l.chars().all(|c| c.is_alphanumeric() || c == '-' || c == '_')
            && !l.starts_with('-')
            && !l.ends_with('-')
    };
    !text.is_empty() && text.len() <= 255 && text.trim_end_matches('.').split('.').all(label)
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

/// Whether the text is a Go duration, or a phrase such as `3 days` that strfmt also accepts.
fn is_duration(text: &str) -> bool {
    let mut rest = text.trim_start_matches(['-', '+']);
    if rest == "0" {
        return true;
    }
    let mut any = false;
    while !rest.is_empty() {
        let number =
            rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.').len();
        let unit = rest[number..].trim_start();
        let length = unit.len() - unit.trim_start_matches(char::is_alphabetic).len();
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
        if number == 0 || !UNITS.contains(&&unit[..length]) {
            return false;
        }
        any = true;
        rest = unit[length..].trim_start();
    }
    any
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
}
