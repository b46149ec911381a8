//! Numbers, `le` labels and escaped text of the Prometheus and OpenMetrics text formats.

use std::fmt::Write as _;

/// Appends a number as client_golang does, so that an `le` label equals upstream's: the shortest decimal that parses to
/// the same number, with an exponent for magnitudes below 1e-4 and of at least 1e6.
///
/// Equal to `writeFloat` of Prometheus' `expfmt`.
pub(super) fn push_float(out: &mut String, value: f64) {
    if !value.is_finite() {
        return out.push_str(match (value.is_nan(), value > 0.0) {
            (true, _) => "NaN",
            (_, true) => "+Inf",
            (_, false) => "-Inf",
        });
    }
    let start = out.len();
    // Writing to a String cannot fail.
    if value == 0.0 || (1e-4..1e6).contains(&value.abs()) {
        let _ = write!(out, "{value}");
    } else {
        let _ = write!(out, "{value:e}");
    }
    // Rust writes an exponent as `e6` and `e-8`, Go as `e+06` and `e-08`.
    if let Some(digits) = out[start..].find('e') {
        let exponent: i32 = out[start + digits + 1..].parse().unwrap_or_default();
        out.truncate(start + digits);
        let sign = if exponent < 0 { '-' } else { '+' };
        let _ = write!(out, "e{sign}{:02}", exponent.abs());
    }
}

/// Appends a bucket's bound as OpenMetrics requires it in an `le` label: like [`push_float`], but with `1.0`
/// instead of `1`.
///
/// Equal to `writeOpenMetricsFloat` of Prometheus' `expfmt`.
pub(super) fn push_openmetrics_float(out: &mut String, value: f64) {
    let start = out.len();
    push_float(out, value);
    if out[start..].bytes().all(|byte| byte.is_ascii_digit() || byte == b'-') {
        out.push_str(".0");
    }
}

/// Appends text with escaped backslashes and line feeds. `escape_quotes` also escapes double quotes, for label
/// values and for help texts of OpenMetrics.
pub(super) fn push_escaped(out: &mut String, text: &str, escape_quotes: bool) {
    if !text.bytes().any(|byte| matches!(byte, b'\\' | b'\n' | b'"')) {
        return out.push_str(text);
    }
    for character in text.chars() {
        match character {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '"' if escape_quotes => out.push_str("\\\""),
            other => out.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_gos_format() {
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
            push_float(&mut text, value);
            assert_eq!(text, want);
        }
    }

    #[test]
    fn bounds_of_openmetrics_have_a_point_or_an_exponent() {
        for (value, want) in [(1.0, "1.0"), (0.5, "0.5"), (1e6, "1e+06"), (f64::INFINITY, "+Inf")] {
            let mut text = String::new();
            push_openmetrics_float(&mut text, value);
            assert_eq!(text, want);
        }
    }

    #[test]
    fn backslashes_line_feeds_and_quotes_are_escaped() {
        let mut text = String::new();
        push_escaped(&mut text, "a\\b\n\"c\"", true);
        push_escaped(&mut text, " \"d\"", false);
        assert_eq!(text, "a\\\\b\\n\\\"c\\\" \"d\"");
    }
}
