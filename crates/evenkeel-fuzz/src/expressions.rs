//! Fuzz targets for CEL and JSONPath: the first part is the expression, the second a value.

use evenkeel_api::json;
use evenkeel_apiextensions::jsonpath::JsonPath;
use evenkeel_cel::check::{self, DeclType, Type, Variable};
use evenkeel_cel::{Failure, Program, Scope, Val};
use serde_json::Value;

use crate::input;

/// Cost budget of one evaluation: a tenth of the limit per expression, because debug builds are slow.
const BUDGET: u64 = 100_000;

/// Parses, checks and evaluates a CEL expression. Checks that evaluations stay within the budget and cost the same
/// each time.
pub(crate) fn cel(data: &[u8]) {
    let mut parts = input::parts(data);
    let source = String::from_utf8_lossy(parts.next().unwrap_or_default());
    let value: Value =
        parts.next().and_then(|part| json::from_slice(part).ok()).unwrap_or(Value::Null);
    let Ok(program) = Program::parse(&source) else { return };
    program.uses("self");
    program.selects("self", "metadata");
    let root = DeclType::of(Type::Dyn);
    if let Ok(checked) = check::check(&program, &[Variable::new("self", Type::Dyn)]) {
        checked.max_cost(&root);
    }
    let scope = Scope::default().with("self", Val::of(&value, None));
    let mut left = BUDGET;
    let result = program.run(&scope, &mut left);
    assert!(left <= BUDGET, "an evaluation never raises the budget");
    if result.as_ref().is_err_and(|failure| *failure == Failure::BudgetExceeded) {
        assert_eq!(left, 0, "an evaluation that costs too much uses up the budget");
    }
    let mut again = BUDGET;
    let repeated = program.run(&scope, &mut again);
    assert_eq!(again, left, "an evaluation costs the same each time");
    assert_eq!(repeated.is_ok(), result.is_ok());
    if let Ok(result) = result {
        let _ = result.to_json();
    }
}

/// Evaluates a JSONPath expression. Checks that the search ends, and that a scalar yields no result but itself.
pub(crate) fn jsonpath(data: &[u8]) {
    let mut parts = input::parts(data);
    let path = JsonPath::parse(&String::from_utf8_lossy(parts.next().unwrap_or_default()));
    let value: Value =
        parts.next().and_then(|part| json::from_slice(part).ok()).unwrap_or(Value::Null);
    for found in path.find(&value) {
        assert!(
            json::is_deeper(&value, 0) || std::ptr::eq(found, &value),
            "the result is within the value"
        );
    }
}
