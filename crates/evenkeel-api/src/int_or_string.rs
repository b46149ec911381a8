//! Type IntOrString, and percentages.
//!
//! Upstream: `k8s.io/apimachinery/pkg/util/intstr`.

use std::fmt;

use crate::decode::{Field, FromScalar, Reader, Scalar, Shape, Slot, Wire, WireError};
use crate::text::Text;

/// An integer, or a string with a percentage or a name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum IntOrString {
    /// An integer, such as a port or a count.
    Int(i32),
    /// A string, such as a port's name or a percentage.
    String(Text),
}

/// Error for a string that is not a percentage.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid value for IntOrString: invalid type: string is not a percentage: {0:?}")]
pub struct NotPercent(Text);

/// Rounding of a scaled percentage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rounding {
    /// Rounds up to the next integer.
    Up,
    /// Rounds down to the previous integer.
    Down,
}

impl IntOrString {
    /// Returns the integer, or the percentage of `total`. Upstream: `GetScaledValueFromIntOrPercent`.
    ///
    /// # Errors
    /// Fails if the string is not a percentage.
    pub fn scaled(&self, total: i32, rounding: Rounding) -> Result<i32, NotPercent> {
        match self {
            Self::Int(number) => Ok(*number),
            Self::String(text) => {
                let percent = percent(text).ok_or_else(|| NotPercent(text.clone()))?;
                let product = i64::from(percent) * i64::from(total);
                let scaled = match rounding {
                    // Euclidean division rounds negative quotients like upstream's `math.Ceil` and `math.Floor`.
                    Rounding::Up => {
                        product.div_euclid(100) + i64::from(product.rem_euclid(100) != 0)
                    }
                    Rounding::Down => product.div_euclid(100),
                };
                Ok(scaled.clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as i32)
            }
        }
    }

    /// Returns the integer; 0 for a string.
    pub fn int(&self) -> i32 {
        match self {
            Self::Int(number) => *number,
            Self::String(_) => 0,
        }
    }

    /// Encodes the value as JSON.
    pub fn to_json(&self) -> serde_json::Value {
        match self {
            Self::Int(number) => (*number).into(),
            Self::String(text) => (&**text).into(),
        }
    }
}

/// Parses a percentage such as `25%`.
fn percent(text: &str) -> Option<i32> {
    text.strip_suffix('%')?.parse().ok()
}

impl Default for IntOrString {
    fn default() -> Self {
        Self::Int(0)
    }
}

impl fmt::Display for IntOrString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(number) => write!(f, "{number}"),
            Self::String(text) => f.write_str(text),
        }
    }
}

/// Fields of an IntOrString that have been decoded from protobuf.
#[derive(Debug, Default)]
pub(crate) struct IntOrStringFields {
    /// 0 for an integer, 1 for a string.
    type_: i64,
    int: i32,
    text: Text,
}

impl FromScalar for IntOrString {
    fn set_scalar(&mut self, scalar: Scalar<'_>) -> Result<(), String> {
        *self = match scalar {
            Scalar::Text(text) => Self::String(text.into()),
            Scalar::Whole(number) => {
                let int = i32::try_from(number);
                Self::Int(int.map_err(|_| format!("{number} is out of range"))?)
            }
            Scalar::Number(number) => return Err(format!("{number} is not a whole number")),
        };
        Ok(())
    }
}

impl Field for IntOrString {
    const SHAPE: Shape = Shape::Named("k8s.io.apimachinery.pkg.util.intstr.IntOrString");
    type Partial = IntOrStringFields;

    fn absent() -> Self {
        Self::Int(0)
    }

    fn slot(&mut self) -> Slot<'_> {
        Slot::StringOrNumber(self)
    }

    fn into_partial(self) -> IntOrStringFields {
        match self {
            Self::Int(int) => IntOrStringFields { int, ..IntOrStringFields::default() },
            Self::String(text) => IntOrStringFields { type_: 1, int: 0, text },
        }
    }

    fn merge(
        partial: &mut IntOrStringFields,
        wire: Wire,
        reader: &mut Reader<'_>,
    ) -> Result<(), WireError> {
        let mut body = Reader::new(reader.expect_bytes(wire)?);
        while let Some((number, wire)) = body.tag()? {
            match number {
                1 => i64::merge(&mut partial.type_, wire, &mut body)?,
                2 => i32::merge(&mut partial.int, wire, &mut body)?,
                3 => <Text>::merge(&mut partial.text, wire, &mut body)?,
                _ => body.skip(number, wire)?,
            }
        }
        Ok(())
    }

    fn finish(partial: IntOrStringFields) -> Result<Self, WireError> {
        Ok(if partial.type_ == 1 { Self::String(partial.text) } else { Self::Int(partial.int) })
    }
}
