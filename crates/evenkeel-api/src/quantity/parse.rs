//! Parser of quantities such as `1500m`, `2Gi` and `1e3`.

use super::{Format, NANO, Quantity, QuantityError};

/// Upstream's maximum for binary quantities outside its fast path, in billionths.
const MAX_BINARY: i128 = i64::MAX as i128 * NANO;
/// Exponent beyond which any non-zero quantity is above the maximum or rounds to the minimum.
const MAX_EXPONENT: i32 = 64;

pub(super) fn parse(text: &str) -> Result<Quantity, QuantityError> {
    let format_error = || QuantityError::Format(text.into());
    let (is_negative, unsigned) = match text.as_bytes().first() {
        None => return Err(format_error()),
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        Some(_) => (false, text),
    };
    let (whole, rest) = split_digits(unsigned);
    let (fraction, suffix) = match rest.strip_prefix('.') {
        Some(after_point) => split_digits(after_point),
        None => ("", rest),
    };
    if whole.is_empty() && fraction.is_empty() {
        return Err(format_error());
    }
    let unit = parse_suffix(suffix).ok_or_else(|| {
        let is_suffix_character =
            |byte: u8| byte.is_ascii_digit() || b"eEinumkKMGTP+-".contains(&byte);
        if suffix.bytes().all(is_suffix_character) {
            QuantityError::Suffix(text.into())
        } else {
            format_error()
        }
    })?;
    let (nanos, format) = match unit {
        // 10^9 converts to billionths.
        Unit::PowerOfTen(exponent, format) => (decimal(whole, fraction, exponent + 9), format),
        Unit::PowerOfTwo(exponent) => binary(whole, fraction, exponent),
    };
    Ok(Quantity::new(if is_negative { -nanos } else { nanos }, format))
}

/// Splits `text` into its leading digits and the rest.
fn split_digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

/// Factor that a suffix represents.
enum Unit {
    /// Ten to the power of this exponent, with the format that the suffix implies.
    PowerOfTen(i32, Format),
    /// Two to the power of this exponent.
    PowerOfTwo(u32),
}

fn parse_suffix(suffix: &str) -> Option<Unit> {
    let decimal = |exponent| Some(Unit::PowerOfTen(exponent, Format::DecimalSi));
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
        "Ki" => Some(Unit::PowerOfTwo(10)),
        "Mi" => Some(Unit::PowerOfTwo(20)),
        "Gi" => Some(Unit::PowerOfTwo(30)),
        "Ti" => Some(Unit::PowerOfTwo(40)),
        "Pi" => Some(Unit::PowerOfTwo(50)),
        "Ei" => Some(Unit::PowerOfTwo(60)),
        _ => {
            let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            let exponent = exponent.clamp(-MAX_EXPONENT, MAX_EXPONENT);
            Some(Unit::PowerOfTen(exponent, Format::DecimalExponent))
        }
    }
}

/// Returns `whole.fraction` times ten to the power of `exponent`, rounded away from zero to an integer.
fn decimal(whole: &str, fraction: &str, exponent: i32) -> i128 {
    let digits = whole.bytes().chain(fraction.bytes()).map(|digit| i128::from(digit - b'0'));
    // Number of digits before the decimal point, after the exponent has moved it.
    let integer_digits = whole.len() as i64 + i64::from(exponent);
    let mut value = 0i128;
    let mut has_fraction = false;
    for (index, digit) in digits.enumerate() {
        if (index as i64) < integer_digits {
            value = value.saturating_mul(10).saturating_add(digit);
        } else {
            has_fraction |= digit != 0;
        }
    }
    let trailing_zeros = integer_digits - (whole.len() + fraction.len()) as i64;
    if value != 0 {
        for _ in 0..trailing_zeros.max(0) {
            value = value.saturating_mul(10);
        }
    }
    value.saturating_add(i128::from(has_fraction))
}

/// Returns `whole.fraction` times two to the power of `exponent`, in billionths and rounded up, with its format.
fn binary(whole: &str, fraction: &str, exponent: u32) -> (i128, Format) {
    let unit_nanos = NANO << exponent;
    let whole_nanos = decimal(whole, "", 0).saturating_mul(unit_nanos);
    // Start from the last digit. Each step divides by ten. Rounding down in each step does not change the result,
    // because a remainder in any step rounds the final result up.
    let (mut fraction_nanos, mut is_inexact) = (0, false);
    for digit in fraction.bytes().rev() {
        let sum = i128::from(digit - b'0') * unit_nanos + fraction_nanos;
        fraction_nanos = sum / 10;
        is_inexact |= sum % 10 != 0;
    }
    fraction_nanos += i128::from(is_inexact);
    let total = whole_nanos.saturating_add(fraction_nanos).min(MAX_BINARY);
    // A binary suffix cannot express an amount below one.
    (total, if total > 0 && total < NANO { Format::DecimalSi } else { Format::BinarySi })
}
