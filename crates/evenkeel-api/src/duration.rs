//! Go durations in flags and in `metav1.Duration`: `1h30m`, `1.5s`, `-2ms`.

/// Units and their nanoseconds.
const UNITS: [(&str, f64); 8] = [
    ("ns", 1.0),
    ("us", 1e3),
    ("µs", 1e3),
    ("μs", 1e3),
    ("ms", 1e6),
    ("s", 1e9),
    ("m", 60e9),
    ("h", 3600e9),
];

/// Returns a duration in Go's canonical form: `90m` becomes `1h30m0s`. Fails if the text is not a duration.
pub fn canonical(text: &str) -> Result<String, String> {
    nanoseconds(text).map(format)
}

/// Parses a duration to nanoseconds. Errors have Go's texts.
///
/// Upstream: Go's `time.ParseDuration`.
pub fn nanoseconds(text: &str) -> Result<i64, String> {
    let invalid = || format!("time: invalid duration \"{text}\"");
    let (negative, mut rest) = match text.as_bytes().first() {
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
    let mut total = 0f64;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let amount: f64 = rest[..end].parse().map_err(|_| invalid())?;
        rest = &rest[end..];
        let end = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        let unit = &rest[..end];
        if unit.is_empty() {
            return Err(format!("time: missing unit in duration \"{text}\""));
        }
        let Some((_, scale)) = UNITS.iter().find(|(name, _)| *name == unit) else {
            return Err(format!("time: unknown unit \"{unit}\" in duration \"{text}\""));
        };
        total += amount * scale;
        rest = &rest[end..];
    }
    if total > i64::MAX as f64 {
        return Err(invalid());
    }
    let nanos = total.round() as i64;
    Ok(if negative { -nanos } else { nanos })
}

/// Formats nanoseconds as a Go duration.
pub fn format(nanos: i64) -> String {
    let (sign, n) = (if nanos < 0 { "-" } else { "" }, nanos.unsigned_abs());
    let mut out = sign.to_owned();
    match n {
        0 => out.push_str("0s"),
        1..1_000 => out.push_str(&format!("{n}ns")),
        1_000..1_000_000 => out.push_str(&format!("{}µs", decimal(n, 1_000))),
        1_000_000..1_000_000_000 => out.push_str(&format!("{}ms", decimal(n, 1_000_000))),
        _ => {
            let seconds = decimal(n % 60_000_000_000, 1_000_000_000);
            let minutes = n / 60_000_000_000;
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

/// Formats `n / scale` with as many decimals as needed.
fn decimal(n: u64, scale: u64) -> String {
    let (whole, part) = (n / scale, n % scale);
    if part == 0 {
        return whole.to_string();
    }
    let digits = scale.ilog10() as usize;
    format!("{whole}.{part:0digits$}").trim_end_matches('0').to_owned()
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
        ] {
            assert_eq!(canonical(text).as_deref(), Ok(want), "{text}");
        }
        assert!(canonical("1").is_err());
        assert!(canonical("").is_err());
        assert!(canonical("1x").is_err());
    }
}
