//! Parser of quantities such as `1500m`, `2Gi` and `1e3`.

use super::{Format, NANO, Quantity, QuantityError};

/// Upstream's maximum for binary quantities outside its fast path, in billionths.
const MAX_BINARY: i128 = i64::MAX as i128 * NANO;
/// Exponent beyond which any non-zero quantity exceeds the limits.
const MAX_EXPONENT: i32 = 64;

pub(super) fn parse(text: &str) -> Result<Quantity, QuantityError> {
    let format_error = || QuantityError::Format(text.into());
    let (negative, unsigned) = match text.as_bytes().first() {
        None => return Err(format_error()),
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        Some(_) => (false, text),
    };
    let digits_end = |from: usize| {
        unsigned[from..]
            .find(|c: char| !c.is_ascii_digit())
            .map_or(unsigned.len(), |index| from + index)
    };
    let whole_end = digits_end(0);
    let fraction = if unsigned[whole_end..].starts_with('.') {
        whole_end + 1..digits_end(whole_end + 1)
    } else {
        whole_end..whole_end
    };
    let (whole, suffix) = (&unsigned[..whole_end], &unsigned[fraction.end..]);
    let fraction = &unsigned[fraction];
    if whole.is_empty() && fraction.is_empty() {
        return Err(format_error());
    }
    let unit = unit(suffix).ok_or_else(|| {
        let shaped = suffix.bytes().all(|b| b.is_ascii_digit() || b"eEinumkKMGTP+-".contains(&b));
        if shaped { QuantityError::Suffix(text.into()) } else { format_error() }
    })?;
    let (nanos, format) = match unit {
        Unit::Ten(exponent, format) => (decimal(whole, fraction, exponent + 9), format),
        Unit::Two(shift) => binary(whole, fraction, shift),
    };
    Ok(Quantity::new(if negative { -nanos } else { nanos }, format))
}

enum Unit {
    Ten(i32, Format),
    Two(u32),
}

fn unit(suffix: &str) -> Option<Unit> {
    let decimal = |exponent| Some(Unit::Ten(exponent, Format::DecimalSi));
    match suffix {
        "" => decimal(0),
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => Some(Unit::Two(10)),
        "Mi" => Some(Unit::Two(20)),
        "Gi" => Some(Unit::Two(30)),
        "Ti" => Some(Unit::Two(40)),
        "Pi" => Some(Unit::Two(50)),
        "Ei" => Some(Unit::Two(60)),
        _ => {
            let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            Some(Unit::Ten(exponent.clamp(-MAX_EXPONENT, MAX_EXPONENT), Format::DecimalExponent))
        }
    }
}

/// Returns `whole.fraction` times ten to the power of `exponent`, rounded away from zero to an integer.
fn decimal(whole: &str, fraction: &str, exponent: i32) -> i128 {
    let digits = || whole.bytes().chain(fraction.bytes()).map(|digit| i128::from(digit - b'0'));
    // Number of digits before the decimal point, after the exponent has moved it.
    let kept = whole.len() as i64 + i64::from(exponent);
    let mut value = 0i128;
    let mut rest = false;
    for (index, digit) in digits().enumerate() {
        if (index as i64) < kept {
            value = value.saturating_mul(10).saturating_add(digit);
        } else {
            rest |= digit != 0;
        }
    }
    let missing = kept - (whole.len() + fraction.len()) as i64;
    if value != 0 {
        for _ in 0..missing.max(0) {
            value = value.saturating_mul(10);
        }
    }
    value.saturating_add(i128::from(rest))
}

/// Returns `whole.fraction` times two to the power of `shift`, in billionths.
fn binary(whole: &str, fraction: &str, shift: u32) -> (i128, Format) {
    let unit = NANO << shift;
    let units = decimal(whole, "", 0).saturating_mul(unit);
    // Start from the last digit. Each step divides by ten; rounding down in each step does not change the result.
    let (mut nanos, mut inexact) = (0, false);
    for digit in fraction.bytes().rev() {
        let sum = i128::from(digit - b'0') * unit + nanos;
        nanos = sum / 10;
        inexact |= sum % 10 != 0;
    }
    nanos += i128::from(inexact);
    let total = units.saturating_add(nanos).min(MAX_BINARY);
    // A binary suffix cannot express an amount below one.
    (total, if total > 0 && total < NANO { Format::DecimalSi } else { Format::BinarySi })
}
