//! Validation of CEL device selectors.
//!
//! Upstream: `k8s.io/dynamic-resource-allocation/cel`.

use super::{ErrorLists, items};
use evenkeel_apimachinery::validation::{Errors, Path};
use evenkeel_apimachinery::value::{get, text};
use evenkeel_cel::check::{DeclType, Type, Variable, check};
use evenkeel_cel::{Extensions, Program};
use serde_json::Value;
use std::sync::LazyLock;

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

/// Validates a CEL expression that selects devices: its length, syntax, types and estimated cost.
///
/// Upstream: `validateCELExpression`.
fn expression(source: &str, path: &Path<'_>, errors: &mut Errors) {
    if source.len() > MAX_EXPRESSION_BYTES {
        return errors.too_long(path, MAX_EXPRESSION_BYTES);
    }
    match max_cost(source) {
        Err(Refusal::Invalid(detail)) => errors.invalid(path, source, &detail),
        Err(Refusal::Internal(detail)) => errors.internal(path, &detail),
        Ok(cost) if cost > MAX_COST => errors.forbidden(path, "too complex, exceeds cost limit"),
        Ok(_) => {}
    }
}

/// Reason why an expression cannot be compiled.
enum Refusal {
    Invalid(String),
    Internal(String),
}

/// Compiles an expression, and returns its estimated maximum cost.
///
/// Upstream: `CompileCELExpression`.
fn max_cost(source: &str) -> Result<u64, Refusal> {
    let extensions = Extensions { bindings: true, ..Extensions::default() };
    let program = Program::parse_with(source, extensions).map_err(Refusal::Invalid)?;
    let variables = [Variable::new("device", DEVICE.kind.clone())];
    let checked = check(&program, &variables).map_err(Refusal::Invalid)?;
    if !matches!(checked.kind(), Type::Bool | Type::Any) {
        let found = checked.kind().declared_name();
        let detail = format!("must evaluate to bool or the unknown type, not {found}");
        return Err(Refusal::Invalid(detail));
    }
    checked.instantiate().map_err(Refusal::Internal)?;
    Ok(checked.max_cost_over("device", &DEVICE))
}

/// Maximum number of attributes and capacities of a device.
///
/// Upstream: `ResourceSliceMaxAttributesAndCapacitiesPerDevice`.
const MAX_ENTRIES: u64 = 32;

/// Declaration of the variable `device`, with the maximum sizes for cost estimates.
static DEVICE: LazyLock<DeclType> = LazyLock::new(|| {
    let by_name = |value: DeclType| DeclType::map(DeclType::map(value, MAX_ENTRIES), MAX_ENTRIES);
    // The value of an attribute is a bool, an int, a string or a version.
    let attribute = DeclType::of(Type::Any).with_max_size(64);
    DeclType::object(
        Some("kubernetes.DRADevice"),
        [
            ("driver", DeclType::of(Type::Str).with_max_size(63)),
            ("allowMultipleAllocations", DeclType::of(Type::Bool).with_max_size(1)),
            ("attributes", by_name(attribute)),
            ("capacity", by_name(DeclType::of(Type::Library("kubernetes.Quantity")))),
        ],
    )
});
