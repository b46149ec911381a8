//! Exact comparison and addition of quantities, as an integer number of billionths.

use serde_json::Value;
use std::fmt::{self, Display};

const NANO: i128 = 1_000_000_000;

/// Quantity in billionths, rounded away from zero.
///
/// Upstream: `Quantity`, `infDecAmount`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Amount(i128);

impl Amount {
    /// Converts an integer to an amount.
    pub fn whole(number: i64) -> Self {
        Self(i128::from(number) * NANO)
    }

    /// Parses a quantity from a JSON string or number; `None` if it is malformed or out of range.
    pub fn of(value: &Value) -> Option<Self> {
        match value {
            Value::String(text) => Self::parse(text),
            Value::Number(number) => Self::parse(&number.to_string()),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
        }
    }

    /// Parses a quantity; `None` if it is malformed or out of range.
    ///
    /// Upstream: `ParseQuantity`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let end = text
            .char_indices()
            .find(|(index, c)| {
                !(c.is_ascii_digit() || *c == '.' || (*index == 0 && matches!(c, '+' | '-')))
            })
            .map_or(text.len(), |(index, _)| index);
        let (number, suffix) = text.split_at(end);
        let (negative, digits) = match number.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, number.strip_prefix('+').unwrap_or(number)),
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
            return None;
        }
        let mut mantissa: i128 = 0;
        for digit in whole.bytes().chain(fraction.bytes()) {
            mantissa = mantissa.checked_mul(10)?.checked_add(i128::from(digit - b'0'))?;
        }
        let scaled = scale(mantissa, suffix, u32::try_from(fraction.len()).ok()?)?;
        Some(Self(if negative { -scaled } else { scaled }))
    }

    /// Returns whether the amount is below zero.
    pub fn is_negative(self) -> bool {
        self.0 < 0
    }

    /// Returns whether the amount is zero.
    pub fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// Returns whether the amount is an integer.
    pub fn is_whole(self) -> bool {
        self.0 % NANO == 0
    }
}

/// Returns `mantissa` x suffix / 10^decimals in billionths, rounded up.
fn scale(mantissa: i128, suffix: &str, decimals: u32) -> Option<i128> {
    let binary = |power: u32| 1024_i128.checked_pow(power);
    let (factor, exponent): (i128, i32) = match suffix {
        "" => (1, 0),
        "n" => (1, -9),
        "u" => (1, -6),
        "m" => (1, -3),
        "k" => (1, 3),
        "M" => (1, 6),
        "G" => (1, 9),
        "T" => (1, 12),
        "P" => (1, 15),
        "E" => (1, 18),
        "Ki" => (binary(1)?, 0),
        "Mi" => (binary(2)?, 0),
        "Gi" => (binary(3)?, 0),
        "Ti" => (binary(4)?, 0),
        "Pi" => (binary(5)?, 0),
        "Ei" => (binary(6)?, 0),
        other => (1, other.strip_prefix(['e', 'E'])?.parse().ok()?),
    };
    let exponent = exponent.checked_add(9)?.checked_sub(i32::try_from(decimals).ok()?)?;
    let value = mantissa.checked_mul(factor)?;
    let power = 10_i128.checked_pow(exponent.unsigned_abs())?;
    if exponent >= 0 {
        value.checked_mul(power)
    } else {
        Some(value / power + i128::from(value % power != 0))
    }
}

impl std::ops::Add for Amount {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Display for Amount {
    /// Formats the amount in decimal: as an integer, else in thousandths, else in billionths.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_whole() {
            write!(f, "{}", self.0 / NANO)
        } else if self.0 % 1_000_000 == 0 {
            write!(f, "{}m", self.0 / 1_000_000)
        } else {
            write!(f, "{}n", self.0)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_parsed_with_decimal_binary_and_exponent_suffixes() {
        let parse = |text: &str| Amount::parse(text).map(|amount| amount.to_string());
        assert_eq!(parse("1.5").as_deref(), Some("1500m"));
        assert_eq!(parse("1Ki").as_deref(), Some("1024"));
        assert_eq!(parse("1e3").as_deref(), Some("1000"));
        assert_eq!(parse("-2").as_deref(), Some("-2"));
        assert_eq!(parse("0.5Gi").as_deref(), Some("536870912"));
        assert_eq!(parse("100m").as_deref(), Some("100m"));
        assert_eq!(
            parse("1.70141183460469231731687303715884105727").as_deref(),
            Some("1701411835n"),
            "a mantissa at the limit of the type is rounded up"
        );
        assert_eq!(parse("x"), None);
        assert_eq!(parse(""), None);
        assert_eq!(parse("1.2.3"), None);
    }
}
