//! Go durations in flags and in `metav1.Duration`: `1h30m`, `1.5s`, `-2ms`.

/// Units and their nanoseconds.
const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Returns a duration in Go's canonical form: `90m` becomes `1h30m0s`. Fails if `text` is not a duration.
pub fn canonical(text: &str) -> Result<String, String> {
    nanoseconds(text).map(format)
}

/// Parses a duration to nanoseconds. Errors have Go's messages.
///
/// Upstream: Go's `time.ParseDuration`.
pub fn nanoseconds(text: &str) -> Result<i64, String> {
    let invalid = || format!("time: invalid duration \"{text}\"");
    let (is_negative, mut rest) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut total = 0u64;
    while !rest.is_empty() {
        if !rest.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
            return Err(invalid());
        }
        let (whole_digits, after) = split_digits(rest);
        let whole = leading_integer(whole_digits).ok_or_else(invalid)?;
        let (fraction_digits, after) = match after.strip_prefix('.') {
            Some(after) => split_digits(after),
            None => ("", after),
        };
        if whole_digits.is_empty() && fraction_digits.is_empty() {
            return Err(invalid());
        }
        let unit_end = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_end);
        if unit.is_empty() {
            return Err(format!("time: missing unit in duration \"{text}\""));
        }
        let Some((_, unit_nanos)) = UNITS.iter().find(|(name, _)| *name == unit) else {
            return Err(format!("time: unknown unit \"{unit}\" in duration \"{text}\""));
        };
        let whole_nanos =
            whole.checked_mul(*unit_nanos).filter(|nanos| *nanos <= LIMIT).ok_or_else(invalid)?;
        let (fraction, divisor) = leading_fraction(fraction_digits);
        // As in Go, only the fraction is computed in floating point. It is rounded toward zero.
        let fraction_nanos = (fraction as f64 * (*unit_nanos as f64 / divisor)) as u64;
        let nanos = whole_nanos + fraction_nanos;
        total = total.checked_add(nanos).ok_or_else(invalid)?;
        if nanos > LIMIT || total > LIMIT {
            return Err(invalid());
        }
        rest = after;
    }
    match i64::try_from(total) {
        Ok(total) => Ok(if is_negative { -total } else { total }),
        // The total is 2^63, whose negative value is `i64::MIN`.
        Err(_) if is_negative => Ok(i64::MIN),
        Err(_) => Err(invalid()),
    }
}

/// Maximum absolute value of a duration in nanoseconds: 2^63, the absolute value of `i64::MIN`.
const LIMIT: u64 = 1 << 63;

/// Splits `text` into its leading digits and the rest.
fn split_digits(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text.split_at(end)
}

/// Parses digits as a number; `None` if the number is above the limit.
fn leading_integer(digits: &str) -> Option<u64> {
    match digits {
        "" => Some(0),
        digits => digits.parse().ok().filter(|number| *number <= LIMIT),
    }
}

/// Returns the digits after a decimal point as a number and its divisor: `25` yields 25 and 100. Ignores digits that
/// do not fit.
fn leading_fraction(digits: &str) -> (u64, f64) {
    let (mut number, mut divisor) = (0u64, 1.0);
    for digit in digits.bytes() {
        let next = number.checked_mul(10).and_then(|n| n.checked_add(u64::from(digit - b'0')));
        let Some(next) = next.filter(|next| *next <= LIMIT) else { break };
        (number, divisor) = (next, divisor * 10.0);
    }
    (number, divisor)
}

/// Formats nanoseconds as a Go duration.
pub fn format(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let mut out = sign.to_owned();
    let nanos = nanos.unsigned_abs();
    match nanos {
        0 => out.push_str("0s"),
        1..1_000 => out.push_str(&format!("{nanos}ns")),
        1_000..1_000_000 => out.push_str(&format!("{}µs", decimal(nanos, 1_000))),
        1_000_000..1_000_000_000 => out.push_str(&format!("{}ms", decimal(nanos, 1_000_000))),
        _ => {
            let seconds = decimal(nanos % 60_000_000_000, 1_000_000_000);
            let minutes = nanos / 60_000_000_000;
            if minutes >= 60 {
                out.push_str(&format!("{}h", minutes / 60));
            }
            if minutes > 0 {
                out.push_str(&format!("{}m", minutes % 60));
            }
            out.push_str(&format!("{seconds}s"));
        }
    }
    out
}

/// Formats `number / divisor` with as many decimals as needed. The divisor is a power of ten.
fn decimal(number: u64, divisor: u64) -> String {
    let (whole, fraction) = (number / divisor, number % divisor);
    if fraction == 0 {
        return whole.to_string();
    }
    let digits = divisor.ilog10() as usize;
    format!("{whole}.{fraction:0digits$}").trim_end_matches('0').to_owned()
}

#[cfg(test)]
mod tests {
    use super::canonical;

    #[test]
    fn canonical_form_equals_gos() {
        for (text, want) in [
            ("90m", "1h30m0s"),
            ("1.5s", "1.5s"),
            ("0", "0s"),
            ("100ms", "100ms"),
            ("-2h0.5m", "-2h0m30s"),
            ("60s", "1m0s"),
            ("2562047h47m16.854775807s", "2562047h47m16.854775807s"),
            ("-2562047h47m16.854775808s", "-2562047h47m16.854775808s"),
            ("9007199.254740993s", "2501h59m59.254740993s"),
            ("1.9ns", "1ns"),
            (".5s", "500ms"),
            ("1.s", "1s"),
        ] {
            assert_eq!(canonical(text).as_deref(), Ok(want), "{text}");
        }
        assert!(canonical("1").is_err());
        assert!(canonical("").is_err());
        assert!(canonical("1x").is_err());
        assert!(canonical("2562047h47m16.854775808s").is_err());
        assert!(canonical("9223372036854775809ns").is_err());
        assert!(canonical(".s").is_err());
        assert!(canonical("s").is_err());
    }
}
