//! Numbers and text as expositions write them.

use std::fmt::Write as _;

/// Appends a number as client_golang writes it (the shortest form, with an exponent below 1e-4 and from 1e6 on), so that
/// an `le` label is the same text whichever program served it.
pub(super) fn float(out: &mut String, value: f64) {
    if !value.is_finite() {
        return out.push_str(match (value.is_nan(), value > 0.0) {
            (true, _) => "NaN",
            (_, true) => "+Inf",
            (_, false) => "-Inf",
        });
    }
    // Writing to a String cannot fail.
    let start = out.len();
    if value == 0.0 || (1e-4..1e6).contains(&value.abs()) {
        let _ = write!(out, "{value}");
    } else {
        let _ = write!(out, "{value:e}");
    }
    // Rounding to the shortest form keeps a value on its side of 1e6, so that only the exponent's form is left to mend.
    if let Some(at) = out[start..].find('e') {
        let exponent: i32 = out[start + at + 1..].parse().unwrap_or_default();
        out.truncate(start + at);
        let sign = if exponent < 0 { '-' } else { '+' };
        let _ = write!(out, "e{sign}{:02}", exponent.abs());
    }
}

/// Appends a number as OpenMetrics wants those in labels: never without a point or an exponent.
pub(super) fn canonical(out: &mut String, value: f64) {
    let start = out.len();
    float(out, value);
    if out[start..].bytes().all(|byte| byte.is_ascii_digit() || byte == b'-') {
        out.push_str(".0");
    }
}

/// Appends text with what the formats escape: backslash, line feed and, in labels, the quote.
pub(super) fn escaped(out: &mut String, text: &str, quotes: bool) {
    if !text.bytes().any(|byte| matches!(byte, b'\\' | b'\n' | b'"')) {
        return out.push_str(text);
    }
    for character in text.chars() {
        match character {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '"' if quotes => out.push_str("\\\""),
            other => out.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_go_writes_them() {
        for (value, want) in [
            (0.0, "0"),
            (1.0, "1"),
            (-1.0, "-1"),
            (1e-8, "1e-08"),
            (9.999_999_999_999_999e-5, "9.999999999999999e-05"),
            (0.0001, "0.0001"),
            (0.005, "0.005"),
            (1.5, "1.5"),
            (999_999.0, "999999"),
            (1e6, "1e+06"),
            (2_592_000.0, "2.592e+06"),
            (1_795_264_307.49, "1.79526430749e+09"),
            (1.844_674_407_370_955_2e19, "1.8446744073709552e+19"),
            (1e100, "1e+100"),
            (f64::INFINITY, "+Inf"),
            (f64::NEG_INFINITY, "-Inf"),
            (f64::NAN, "NaN"),
        ] {
            let mut text = String::new();
            float(&mut text, value);
            assert_eq!(text, want);
        }
    }

    #[test]
    fn labels_of_openmetrics_have_a_point() {
        for (value, want) in [(1.0, "1.0"), (0.5, "0.5"), (1e6, "1e+06"), (f64::INFINITY, "+Inf")] {
            let mut text = String::new();
            canonical(&mut text, value);
            assert_eq!(text, want);
        }
    }

    #[test]
    fn text_is_escaped() {
        let mut text = String::new();
        escaped(&mut text, "a\\b\n\"c\"", true);
        escaped(&mut text, " \"d\"", false);
        assert_eq!(text, "a\\\\b\\n\\\"c\\\" \"d\"");
    }
}
