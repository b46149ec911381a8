//! Parsing and formatting of numbers as in Go's `strconv` and `fmt`.

use evenkeel_api::quote::quote;

/// Error of a number that does not fit its type.
const RANGE: &str = "value out of range";
/// Error of a string that is not a number.
const SYNTAX: &str = "invalid syntax";

/// Returns the error of a function of Go's `strconv`.
fn parse_error(function: &str, text: &str, why: &str) -> String {
    format!("strconv.{function}: parsing {}: {why}", quote(text))
}

/// Parses a number of decimal digits only. The error is that of Go's `strconv.ParseUint`.
pub(super) fn parse_u64(text: &str) -> Result<u64, String> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(parse_error("ParseUint", text, SYNTAX));
    }
    text.parse().map_err(|_| parse_error("ParseUint", text, RANGE))
}

/// Parses an integer that may have a sign. The error is that of Go's `strconv.Atoi`.
pub(super) fn parse_i64(text: &str) -> Result<i64, String> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(parse_error("Atoi", text, SYNTAX));
    }
    text.parse().map_err(|_| parse_error("Atoi", text, RANGE))
}

/// Parses a floating-point number like Go's `strconv.ParseFloat`. Returns `None` for an invalid string and for numbers
/// beyond the range. Unlike Go, it refuses hexadecimal numbers and underscores.
pub(super) fn parse_f64(text: &str) -> Option<f64> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if unsigned.eq_ignore_ascii_case("nan") {
        // Go accepts no sign before `nan`.
        let has_sign = unsigned.len() < text.len();
        return if has_sign { None } else { Some(f64::NAN) };
    }
    let number: f64 = text.parse().ok()?;
    let is_infinity = ["inf", "infinity"].iter().any(|word| unsigned.eq_ignore_ascii_case(word));
    (is_infinity || number.is_finite()).then_some(number)
}

/// Formats a number like Go's `%g`: in the shortest form, and in scientific notation if the exponent is below -4 or
/// above 5.
pub(crate) fn double_text(number: f64) -> String {
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let scientific = format!("{number:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else { return scientific };
    let Ok(exponent) = exponent.parse::<i32>() else { return scientific };
    if number != 0.0 && !(-4..6).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.abs());
    }
    number.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_are_written_as_go_writes_them() {
        for (number, want) in [
            (1.0, "1"),
            (100_000.0, "100000"),
            (999_999.0, "999999"),
            (1e6, "1e+06"),
            (-1_234_567.5, "-1.2345675e+06"),
            (1e21, "1e+21"),
            (0.000_123_45, "0.00012345"),
            (0.000_012_345, "1.2345e-05"),
            (5e-324, "5e-324"),
            (0.0, "0"),
            (-0.0, "-0"),
            (f64::INFINITY, "+Inf"),
            (f64::NEG_INFINITY, "-Inf"),
            (f64::NAN, "NaN"),
        ] {
            assert_eq!(double_text(number), want);
        }
    }

    #[test]
    fn texts_are_read_as_go_reads_them() {
        for (text, want) in [
            (".5", Some(0.5)),
            ("5.", Some(5.0)),
            ("1e+5", Some(1e5)),
            ("1e-400", Some(0.0)),
            ("-Infinity", Some(f64::NEG_INFINITY)),
            ("+inf", Some(f64::INFINITY)),
            ("1e400", None),
            (".", None),
            ("e5", None),
            (" 1", None),
            ("-nan", None),
        ] {
            assert_eq!(parse_f64(text), want, "{text}");
        }
        assert_eq!(parse_i64("-5"), Ok(-5));
        assert_eq!(
            parse_i64("+-1"),
            Err("strconv.Atoi: parsing \"+-1\": invalid syntax".to_owned())
        );
    }
}
