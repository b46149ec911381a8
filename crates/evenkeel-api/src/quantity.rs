//! Resource quantities with exact arithmetic.
//!
//! Upstream: `k8s.io/apimachinery/pkg/api/resource`. A quantity is an integer number of billionths; input with more
//! digits is rounded away from zero. Values are capped at about 1.7e29 (upstream: at about 1e36 for some forms).

mod parse;

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::{AddAssign, SubAssign};

use crate::decode::{Field, FromScalar, Reader, Scalar, Shape, Slot, Wire, WireError};

/// Number of billionths in one unit.
const NANO: i128 = 1_000_000_000;

/// Suffix style of a quantity.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Format {
    /// Decimal suffixes: `n u m k M G T P E`.
    #[default]
    DecimalSi,
    /// Binary suffixes: `Ki Mi Gi Ti Pi Ei`.
    BinarySi,
    /// Decimal exponents: `e3`, `e6`, …
    DecimalExponent,
}

/// A resource quantity. Equality, order and hash ignore its format.
#[derive(Debug, Clone, Copy, Default)]
pub struct Quantity {
    /// High and low half of an `i128` of billionths. With two halves, the struct takes three words instead of four,
    /// because an `i128` must be aligned to two words.
    high: i64,
    low: u64,
    format: Format,
}

/// Error for a malformed quantity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// The string is not a number with a suffix.
    #[error("{0:?} is not a quantity: it must be a number with an optional suffix")]
    Format(Box<str>),
    /// The suffix is unknown.
    #[error("{0:?} is not a quantity: its suffix is unknown")]
    Suffix(Box<str>),
}

impl Quantity {
    /// The quantity 0, in decimal format.
    pub const ZERO: Self = Self { high: 0, low: 0, format: Format::DecimalSi };

    fn new(nanos: i128, format: Format) -> Self {
        Self { high: (nanos >> 64) as i64, low: nanos as u64, format }
    }

    fn nanos(self) -> i128 {
        (i128::from(self.high) << 64) | i128::from(self.low)
    }

    /// Parses a quantity such as `100m`, `1.5Gi` or `12e6`.
    ///
    /// # Errors
    /// Fails if the string is malformed.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        parse::parse(text)
    }

    /// Returns this number of units, in decimal format.
    pub fn from_units(units: i64) -> Self {
        Self::new(i128::from(units) * NANO, Format::DecimalSi)
    }

    /// Returns this number of units, in binary format.
    pub fn from_bytes(bytes: i64) -> Self {
        Self::new(i128::from(bytes) * NANO, Format::BinarySi)
    }

    /// Returns this number of thousandths, in decimal format.
    pub fn from_millis(millis: i64) -> Self {
        Self::new(i128::from(millis) * (NANO / 1000), Format::DecimalSi)
    }

    /// Returns this number of thousandths. The format is binary if it is an integer.
    pub fn from_milli_bytes(millis: i64) -> Self {
        Self::new(i128::from(millis) * (NANO / 1000), Format::BinarySi)
    }

    /// Returns whether the quantity is zero.
    pub fn is_zero(self) -> bool {
        self.high == 0 && self.low == 0
    }

    /// Returns the sign: -1, 0 or 1.
    pub fn sign(self) -> i32 {
        self.nanos().signum() as i32
    }

    /// Returns the number of units, rounded away from zero and saturated to `i64`.
    pub fn value(self) -> i64 {
        saturate(div_away(self.nanos(), NANO))
    }

    /// Returns the number of thousandths, rounded away from zero and saturated to `i64`.
    pub fn milli_value(self) -> i64 {
        saturate(div_away(self.nanos(), NANO / 1000))
    }

    /// Returns the number of units as a floating-point number, which may lose precision.
    pub fn as_f64(self) -> f64 {
        self.nanos() as f64 / NANO as f64
    }

    /// Returns the sum. It has the format of the left operand, or of the right one if the left is zero.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let format = if self.is_zero() { other.format } else { self.format };
        Self::new(self.nanos().saturating_add(other.nanos()), format)
    }

    /// Returns the difference. It has the format of the left operand, or of the right one if the left is zero.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        let format = if self.is_zero() { other.format } else { self.format };
        Self::new(self.nanos().saturating_sub(other.nanos()), format)
    }

    /// Returns a multiple of the quantity.
    #[must_use]
    pub fn times(self, number: usize) -> Self {
        let number = i128::try_from(number).unwrap_or(i128::MAX);
        Self::new(self.nanos().saturating_mul(number), self.format)
    }

    /// Rounds to an integer number of units, away from zero.
    #[must_use]
    pub fn rounded_up(self) -> Self {
        Self::new(div_away(self.nanos(), NANO).saturating_mul(NANO), self.format)
    }

    /// Returns the quantity with the opposite sign.
    #[must_use]
    pub fn negated(self) -> Self {
        Self::new(self.nanos().saturating_neg(), self.format)
    }
}

/// Converts to `i64`, and clamps values that do not fit.
fn saturate(value: i128) -> i64 {
    i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX })
}

/// Divides and rounds away from zero.
fn div_away(value: i128, by: i128) -> i128 {
    let quotient = value / by;
    if value % by == 0 { quotient } else { quotient + value.signum() }
}

impl fmt::Display for Quantity {
    /// Formats the canonical form, which has the largest suffix that leaves the number without a fraction.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.nanos();
        if nanos == 0 {
            return f.write_str("0");
        }
        // Binary suffixes cannot express fractions. The canonical form uses them only from 1024 on.
        let binary =
            self.format == Format::BinarySi && nanos % NANO == 0 && (nanos / NANO).abs() >= 1024;
        if binary {
            let (mut number, mut power) = (nanos / NANO, 0);
            while number % 1024 == 0 && power < 6 {
                number /= 1024;
                power += 1;
            }
            return write!(f, "{number}{}", ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"][power]);
        }
        let (mut number, mut power) = (nanos, 0);
        // The largest suffix is exa, but exponents have no limit.
        let max_power = if self.format == Format::DecimalExponent { usize::MAX } else { 9 };
        while number % 1000 == 0 && power < max_power {
            number /= 1000;
            power += 1;
        }
        if self.format == Format::DecimalExponent {
            // The number counts billionths (10^-9), and each power is a factor of a thousand.
            match power as i64 * 3 - 9 {
                0 => write!(f, "{number}"),
                exponent => write!(f, "{number}e{exponent}"),
            }
        } else {
            write!(f, "{number}{}", ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"][power])
        }
    }
}

impl std::str::FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        Self::parse(text)
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos() == other.nanos()
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos().cmp(&other.nanos())
    }
}

impl Hash for Quantity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.nanos().hash(state);
    }
}

impl AddAssign for Quantity {
    fn add_assign(&mut self, other: Self) {
        *self = self.plus(other);
    }
}

impl SubAssign for Quantity {
    fn sub_assign(&mut self, other: Self) {
        *self = self.minus(other);
    }
}

impl FromScalar for Quantity {
    fn set_scalar(&mut self, scalar: Scalar<'_>) -> Result<(), String> {
        let parsed = match scalar {
            Scalar::Text(text) => Self::parse(text.trim()),
            Scalar::Whole(number) => Ok(Self::from_units(number)),
            Scalar::Number(number) => Self::parse(&number.to_string()),
        };
        *self = parsed.map_err(|error| error.to_string())?;
        Ok(())
    }
}

impl Field for Quantity {
    const SHAPE: Shape = Shape::Named("k8s.io.apimachinery.pkg.api.resource.Quantity");
    type Partial = Self;

    fn absent() -> Self {
        Self::ZERO
    }

    fn slot(&mut self) -> Slot<'_> {
        Slot::StringOrNumber(self)
    }

    fn into_partial(self) -> Self {
        self
    }

    fn merge(partial: &mut Self, wire: Wire, reader: &mut Reader<'_>) -> Result<(), WireError> {
        let mut body = Reader::new(reader.expect_bytes(wire)?);
        while let Some((number, wire)) = body.tag()? {
            if number != 1 {
                body.skip(number, wire)?;
                continue;
            }
            let text = String::from_utf8_lossy(body.expect_bytes(wire)?);
            // Upstream encodes zero as an empty string.
            *partial = if text.is_empty() {
                Self::ZERO
            } else {
                Self::parse(&text).map_err(|error| WireError::new(error.to_string()))?
            };
        }
        Ok(())
    }

    fn finish(partial: Self) -> Result<Self, WireError> {
        Ok(partial)
    }
}
