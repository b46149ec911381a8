//! Validation of CEL device selectors.
//!
//! Upstream: `k8s.io/dynamic-resource-allocation/cel`.

use super::{ErrorLists, items};
use evenkeel_apimachinery::validation::{Errors, Path};
use evenkeel_apimachinery::value::{get, text};
use evenkeel_cel::check::{Declaration, Declared, Type, check};
use evenkeel_cel::{Program, Schema};
use serde_json::Value;

/// Maximum number of selectors of a class or a request.
const MAX_SELECTORS: usize = 32;
/// Maximum length of an expression in bytes.
const MAX_EXPRESSION_BYTES: usize = 10 * 1024;
/// Maximum estimated cost of one evaluation.
///
/// Upstream: `CELSelectorExpressionMaxCost`.
const MAX_COST: u64 = 1_000_000;

/// Validates selectors. If `stored`, the stored object has the same selectors, and their expressions are not
/// compiled. Upstream compiles stored expressions, too, but allows the functions of every version.
///
/// Upstream: `validateSelectorSlice`.
pub(super) fn selectors(list: &[Value], stored: bool, path: &Path<'_>, lists: &mut ErrorLists) {
    items(list, MAX_SELECTORS, path, lists, |selector, path, lists| {
        let path = path.field("cel");
        match get(selector, "cel") {
            None => lists.handwritten.required(&path, ""),
            Some(_) if stored => {}
            Some(cel) => {
                let path = path.field("expression");
                expression(text(cel, "expression"), &path, &mut lists.handwritten);
            }
        }
    });
}

/// Upstream: `validateCELExpression`.
fn expression(source: &str, path: &Path<'_>, errors: &mut Errors) {
    if source.len() > MAX_EXPRESSION_BYTES {
        return errors.too_long(path, MAX_EXPRESSION_BYTES);
    }
    match max_cost(source) {
        Err(detail) => errors.invalid(path, source, &detail),
        Ok(cost) if cost > MAX_COST => errors.forbidden(path, "too complex, exceeds cost limit"),
        Ok(_) => {}
    }
}

/// Compiles an expression, and returns its estimated maximum cost.
///
/// Upstream: `CompileCELExpression`.
fn max_cost(source: &str) -> Result<u64, String> {
    let program = Program::parse(source)?;
    let device = Declared::schema(&DeviceType::Device, false);
    let checked = check(&program, device.map(|device| ("device", device)).into_iter().collect())?;
    match checked.known.kind {
        Type::Bool | Type::Dyn => Ok(checked.cost),
        other => Err(format!("must evaluate to bool or the unknown type, not {}", other.name())),
    }
}

/// Types of the variable `device` and its parts, with the maximum sizes for cost estimates.
#[derive(Debug)]
enum DeviceType {
    Device,
    Driver,
    AllowMultipleAllocations,
    /// Attributes by domain.
    Attributes,
    DomainAttributes,
    Attribute,
    /// Capacities by domain.
    Capacity,
    DomainCapacity,
    Quantity,
}

/// Maximum number of attributes and capacities of a device.
///
/// Upstream: `ResourceSliceMaxAttributesAndCapacitiesPerDevice`.
const MAX_ENTRIES: u64 = 32;

impl Schema for DeviceType {
    fn kind(&self) -> &str {
        match self {
            Self::AllowMultipleAllocations => "boolean",
            Self::Driver | Self::Attribute => "string",
            Self::Quantity => "quantity",
            _ => "object",
        }
    }

    fn format(&self) -> &str {
        ""
    }

    fn names_fields(&self) -> bool {
        matches!(self, Self::Device)
    }

    fn child(&self, _: &str) -> Option<&dyn Schema> {
        None
    }

    fn items(&self) -> Option<&dyn Schema> {
        None
    }

    fn is_unordered(&self) -> bool {
        false
    }
}

impl Declaration for DeviceType {
    fn is_int_or_string(&self) -> bool {
        // The checker gives an int-or-string the type `dyn`. An attribute needs this type, because its value is a
        // bool, an int, a string or a version.
        matches!(self, Self::Attribute)
    }

    fn is_embedded(&self) -> bool {
        false
    }

    fn element(&self) -> Option<&dyn Declaration> {
        None
    }

    fn additional(&self) -> Option<&dyn Declaration> {
        match self {
            Self::Attributes => Some(&Self::DomainAttributes),
            Self::DomainAttributes => Some(&Self::Attribute),
            Self::Capacity => Some(&Self::DomainCapacity),
            Self::DomainCapacity => Some(&Self::Quantity),
            _ => None,
        }
    }

    fn property(&self, name: &str) -> Option<&dyn Declaration> {
        match (self, name) {
            (Self::Device, "driver") => Some(&Self::Driver),
            (Self::Device, "allowMultipleAllocations") => Some(&Self::AllowMultipleAllocations),
            (Self::Device, "attributes") => Some(&Self::Attributes),
            (Self::Device, "capacity") => Some(&Self::Capacity),
            _ => None,
        }
    }

    fn n_properties(&self) -> usize {
        if matches!(self, Self::Device) { 4 } else { 0 }
    }

    fn max_items(&self) -> Option<u64> {
        None
    }

    fn max_properties(&self) -> Option<u64> {
        Some(MAX_ENTRIES)
    }

    fn max_length(&self) -> Option<u64> {
        match self {
            Self::Driver => Some(63),
            Self::Attribute => Some(64),
            _ => None,
        }
    }

    fn longest_value(&self) -> Option<u64> {
        None
    }

    fn required(&self) -> Vec<(&str, &dyn Declaration)> {
        Vec::new()
    }
}
