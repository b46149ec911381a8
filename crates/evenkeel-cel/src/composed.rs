//! Composited variables of a policy: named expressions, each evaluated when another expression first uses it as
//! `variables.name`.
//!
//! Upstream: `lazy.MapValue`, and `compositionContext` of `admission/plugin/cel`.

use std::cell::{Cell, OnceCell};
use std::rc::Rc;

use evenkeel_api::quote::quote;

use crate::eval::{self, Failure, Scope};
use crate::{PER_CALL_LIMIT, Program, RUNTIME_COST_BUDGET, Val, unescape};

/// Maximum sum of the depths of all expressions that are evaluated within each other. The stack of a worker thread
/// suffices for this depth.
///
/// An expression that uses a variable is evaluated within the recursion of this expression. If the variable would
/// exceed the maximum, the evaluation stops, the variable is evaluated alone, and the evaluation begins again.
const MAX_STACKED_DEPTH: usize = 250;

/// Variables of one policy for one evaluation of its expressions.
///
/// A variable can use earlier variables. Its value, or its error, is kept for all expressions of the policy.
#[derive(Debug)]
pub(crate) struct CompositedVariables<'a> {
    scope: Scope<'a>,
    variables: Vec<Variable<'a>>,
    /// Cost of the variables that were evaluated because the current expression is the first to use them.
    cost: Cell<u64>,
    /// Maximum of `cost`.
    cost_limit: Cell<u64>,
    /// Index of a variable that must be evaluated before the current expression begins again.
    postponed: Cell<Option<usize>>,
    /// Remaining cost of evaluations that stop and begin again. It limits work that is charged to no other budget.
    restart_budget: Cell<u64>,
}

/// Variable of a policy, evaluated when it is first used.
#[derive(Debug)]
struct Variable<'a> {
    name: &'a str,
    /// Parsed expression of the variable, or the error of its compilation.
    program: Result<&'a Program, &'a str>,
    /// Value or error of the expression, once it was evaluated.
    value: OnceCell<Result<Val<'a>, String>>,
}

impl<'a> Scope<'a> {
    /// Adds the variable `variables` with these fields. Each field is a parsed expression, or the error of its
    /// compilation, and can use earlier fields.
    pub fn with_composited_variables(
        self,
        fields: impl IntoIterator<Item = (&'a str, Result<&'a Program, &'a str>)>,
    ) -> Self {
        let variable = |(name, program)| Variable { name, program, value: OnceCell::new() };
        let variables: Vec<_> = fields.into_iter().map(variable).collect();
        let composited = Rc::new(CompositedVariables {
            scope: self,
            variables,
            cost: Cell::new(0),
            cost_limit: Cell::new(RUNTIME_COST_BUDGET),
            postponed: Cell::new(None),
            restart_budget: Cell::new(RUNTIME_COST_BUDGET),
        });
        composited.scope_with_first(composited.variables.len())
    }
}

impl<'a> CompositedVariables<'a> {
    /// Returns the scope of an expression that can use the first `n_visible` variables.
    fn scope_with_first(self: &Rc<Self>, n_visible: usize) -> Scope<'a> {
        let mut scope = self.scope.clone().with("variables", Val::Variables(n_visible));
        scope.composited = Some(Rc::clone(self));
        scope
    }

    /// Returns the value of one of the first `n_visible` variables. Evaluates it at its first use.
    ///
    /// # Errors
    /// Fails if the evaluation failed, or the variable was postponed because its expression is deeper than
    /// `remaining_depth`.
    pub(crate) fn get(
        self: &Rc<Self>,
        field: &str,
        n_visible: usize,
        remaining_depth: usize,
    ) -> Result<Val<'a>, Failure> {
        let name = unescape(field);
        let mut visible = self.variables.iter().take(n_visible);
        let Some(index) = visible.rposition(|variable| variable.name == name) else {
            return Err(Failure::Error(format!("no such key: {name}")));
        };
        self.evaluate(index, remaining_depth)?;
        let value = self.variables[index].value.get().cloned();
        value.unwrap_or_else(|| Err(format!("no such key: {name}"))).map_err(Failure::Error)
    }

    /// Evaluates a variable unless it has a value. If its expression is deeper than `remaining_depth`, postpones it and
    /// returns an error, which ends the evaluation of the expressions that use it.
    fn evaluate(self: &Rc<Self>, index: usize, remaining_depth: usize) -> Result<(), Failure> {
        let variable = &self.variables[index];
        if variable.value.get().is_some() {
            return Ok(());
        }
        let program = match variable.program {
            Ok(program) => program,
            Err(error) => {
                let name = quote(variable.name);
                let error = format!("composited variable {name} fails to compile: {error}");
                self.set_value(index, Err(error));
                return Ok(());
            }
        };
        let Some(remaining_depth) = remaining_depth.checked_sub(program.depth()) else {
            self.postponed.set(Some(index));
            return Err(Failure::BudgetExceeded);
        };
        let budget = self.cost_limit.get().saturating_sub(self.cost.get()).min(PER_CALL_LIMIT);
        let mut remaining = budget;
        let scope = self.scope_with_first(index);
        let result = eval::run(program.expression(), &scope, &mut remaining, remaining_depth);
        // The expression used another variable, which was postponed.
        if self.postponed.get().is_some() {
            return Err(Failure::BudgetExceeded);
        }
        self.cost.set(self.cost.get().saturating_add(budget - remaining));
        if result == Err(Failure::BudgetExceeded) && budget < PER_CALL_LIMIT {
            // The evaluation exceeded the budget of all expressions, rather than the limit of one.
            self.cost.set(u64::MAX);
            return Err(Failure::BudgetExceeded);
        }
        let value = result.map_err(|failure| {
            let name = quote(variable.name);
            format!("composited variable {name} fails to evaluate: {}", failure.message())
        });
        self.set_value(index, value);
        Ok(())
    }

    fn set_value(&self, index: usize, value: Result<Val<'a>, String>) {
        // The cell is empty: a variable is evaluated only once, and cannot use itself.
        let _ = self.variables[index].value.set(value);
    }

    /// Evaluates the postponed variable, and all variables that it uses. Returns whether the evaluation that used it
    /// can begin again. `wasted_cost` is the cost of that evaluation until it stopped.
    fn evaluate_postponed(self: &Rc<Self>, wasted_cost: u64) -> bool {
        let Some(postponed) = self.postponed.take() else { return false };
        let Some(restart_budget) = self.restart_budget.get().checked_sub(wasted_cost) else {
            return false;
        };
        self.restart_budget.set(restart_budget);
        // Each variable uses the one after it. The last is evaluated first.
        let mut stack = vec![postponed];
        while let Some(&index) = stack.last() {
            let depth = self.variables[index].program.map_or(0, Program::depth);
            match self.evaluate(index, MAX_STACKED_DEPTH.max(depth)) {
                Ok(()) => drop(stack.pop()),
                Err(_) => match self.postponed.take() {
                    Some(used) => stack.push(used),
                    None => return false,
                },
            }
        }
        true
    }
}

/// Evaluates an expression, and the variables that it is the first to use. Deducts only the cost of the expression
/// itself from `budget`.
pub(crate) fn run<'a>(
    program: &'a Program,
    scope: &Scope<'a>,
    budget: &mut u64,
) -> Result<Val<'a>, Failure> {
    let remaining_depth = MAX_STACKED_DEPTH.saturating_sub(program.depth());
    loop {
        let mut remaining = *budget;
        let result = eval::run(program.expression(), scope, &mut remaining, remaining_depth);
        let Some(composited) = &scope.composited else {
            *budget = remaining;
            return result;
        };
        if composited.postponed.get().is_none() {
            *budget = remaining;
            return result;
        }
        if !composited.evaluate_postponed(*budget - remaining) {
            *budget = 0;
            return Err(Failure::BudgetExceeded);
        }
    }
}

/// Evaluates an expression. Deducts from `budget` its cost and the cost of each variable that no earlier expression has
/// used. `None` if the budget is exceeded.
///
/// Upstream: `Evaluate` of `admission/plugin/cel`.
pub(crate) fn run_within<'a>(
    program: &'a Program,
    scope: &Scope<'a>,
    budget: &mut u64,
) -> Option<Result<Val<'a>, Failure>> {
    if let Some(composited) = &scope.composited {
        composited.cost.set(0);
        composited.cost_limit.set(*budget);
    }
    let limit = PER_CALL_LIMIT.min(*budget);
    let mut remaining = limit;
    let result = run(program, scope, &mut remaining);
    let cost_of_variables =
        scope.composited.as_ref().map_or(0, |composited| composited.cost.take());
    let total_cost = (limit - remaining).saturating_add(cost_of_variables);
    let is_exceeded = result == Err(Failure::BudgetExceeded) && limit < PER_CALL_LIMIT;
    match budget.checked_sub(total_cost) {
        Some(rest) if !is_exceeded => {
            *budget = rest;
            Some(result)
        }
        _ => {
            *budget = 0;
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Parses named expressions.
    fn parsed(sources: &[(&str, String)]) -> Vec<(String, Result<Program, String>)> {
        sources.iter().map(|(name, text)| ((*name).to_owned(), crate::tests::parse(text))).collect()
    }

    /// Evaluates expressions one after the other with the same variables. Returns the result and the cost of each.
    fn evaluate(
        variables: &[(String, Result<Program, String>)],
        sources: &[&str],
        mut budget: u64,
    ) -> Vec<(String, u64)> {
        let programs: Vec<Program> =
            sources.iter().map(|source| crate::tests::parse(source).expect(source)).collect();
        let fields = variables
            .iter()
            .map(|(name, program)| (name.as_str(), program.as_ref().map_err(String::as_str)));
        let scope = Scope::default().with_composited_variables(fields);
        let one = |program| {
            let before = budget;
            let shown = match run_within(program, &scope, &mut budget) {
                None => "out of budget".to_owned(),
                Some(Ok(value)) => value.shown(),
                Some(Err(failure)) => format!("error: {}", failure.message()),
            };
            (shown, before - budget)
        };
        programs.iter().map(one).collect()
    }

    fn shown(source: &str, variables: &[(String, Result<Program, String>)]) -> String {
        evaluate(variables, &[source], RUNTIME_COST_BUDGET).remove(0).0
    }

    #[test]
    fn a_variable_is_evaluated_when_it_is_used() {
        let own = |text: &str| text.to_owned();
        let variables = parsed(&[
            ("fails", own("1 / 0")),
            ("broken", own("1 +")),
            ("two", own("1 + 1")),
            ("four", own("variables.two + variables.two")),
            ("on", own("variables.fails + 1")),
        ]);
        for (source, want) in [
            ("true || variables.fails > 0", "true"),
            ("variables.fails > 0 || true", "true"),
            ("variables.four", "4"),
            ("variables.?two.orValue(0)", "2"),
            ("has(variables.fails)", "true"),
            ("cel.bind(v, variables, v.two + v.four)", "6"),
            (
                "variables.fails",
                "error: composited variable \"fails\" fails to evaluate: division by zero",
            ),
            (
                "variables.on",
                "error: composited variable \"on\" fails to evaluate: composited variable \"fails\" fails to evaluate: division by zero",
            ),
            ("variables.nope", "error: no such key: nope"),
        ] {
            assert_eq!(shown(source, &variables), want, "{source}");
        }
        let broken = shown("variables.broken", &variables);
        assert!(
            broken.starts_with("error: composited variable \"broken\" fails to compile: "),
            "{broken}"
        );
    }

    #[test]
    fn a_variable_sees_only_those_before_it() {
        let variables =
            parsed(&[("a", "variables.b".to_owned()), ("b", "variables.b + 1".to_owned())]);
        for name in ["a", "b"] {
            let found = shown(&format!("variables.{name}"), &variables);
            let want =
                format!("error: composited variable \"{name}\" fails to evaluate: no such key: b");
            assert_eq!(found, want);
        }
    }

    #[test]
    fn a_variable_costs_once_and_only_if_it_is_used() {
        let sum = "[1, 2, 3, 4, 5, 6, 7, 8, 9].map(x, x * x).sum()".to_owned();
        let variables = parsed(&[("sum", sum.clone()), ("other", sum.clone())]);
        let sources = ["1 > 0", &sum, "variables.sum + variables.sum", "variables.sum"];
        let found = evaluate(&variables, &sources, RUNTIME_COST_BUDGET);
        let [compared, own, first, second] = [0, 1, 2, 3].map(|at: usize| found[at].1);
        let (field, addition) = (2, 1);
        assert_eq!(compared, 1);
        assert_eq!(first, 2 * field + addition + own);
        assert_eq!(second, field);
    }

    #[test]
    fn variables_and_expression_share_the_budget() {
        let all = "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]";
        let heavy =
            format!("{all}.all(a, {all}.all(b, {all}.all(c, {all}.all(d, a + b + c + d > 0))))");
        let names = ["a", "b", "c", "d"];
        let variables = parsed(&names.map(|name| (name, heavy.clone())));
        let source = "variables.a && variables.b && variables.c && variables.d";
        let (found, used) = evaluate(&variables, &[source], RUNTIME_COST_BUDGET).remove(0);
        assert_eq!(found, "true");
        assert!(used > 200_000, "{used}");
        for missing in [1, used / 2, used] {
            let budget = used - missing;
            let found = evaluate(&variables, &[source], budget).remove(0);
            assert_eq!(found, ("out of budget".to_owned(), budget), "without {missing}");
        }
        let found = evaluate(&variables, &[source], used).remove(0);
        assert_eq!(found, ("true".to_owned(), used));
    }

    /// Each variable uses the previous one, more deeply than the stack allows.
    #[test]
    fn long_chains_of_variables_are_evaluated() {
        const LENGTH: usize = 600;
        let texts: Vec<(String, String)> = (0..LENGTH)
            .map(|at| {
                let text = if at == 0 {
                    "1".to_owned()
                } else {
                    format!("[[variables.v{} + 1].map(x, x)[0]].filter(x, x > 0)[0]", at - 1)
                };
                (format!("v{at}"), text)
            })
            .collect();
        let programs: Vec<(String, Result<Program, String>)> =
            texts.into_iter().map(|(name, text)| (name, crate::tests::parse(&text))).collect();
        let source = format!("false || variables.v{} > 2", LENGTH - 1);
        let run = || shown(&source, &programs);
        let found = std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().stack_size(2 * 1024 * 1024);
            thread.spawn_scoped(scope, run).expect("a thread").join().expect("no overflow")
        });
        assert_eq!(found, "true");
    }

    proptest! {
        // Each case parses dozens of expressions, each on a thread.
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// An expression with variables has the same value as the expression with each variable replaced by its
        /// definition.
        #[test]
        fn a_variable_is_as_its_expression(
            shapes in prop::collection::vec((0u8..5, any::<prop::sample::Index>(), any::<prop::sample::Index>()), 1..12),
        ) {
            let (mut texts, mut written): (Vec<(String, String)>, Vec<String>) = Default::default();
            for (at, (shape, a, b)) in shapes.into_iter().enumerate() {
                let pick = |index: prop::sample::Index, all: &[String], names: bool| match at {
                    0 => "1".to_owned(),
                    _ if names => format!("variables.v{}", index.index(at)),
                    _ => all[index.index(at)].clone(),
                };
                let spell = |names: bool| {
                    let (a, b) = (pick(a, &written, names), pick(b, &written, names));
                    match shape {
                        0 => format!("({a} + {b})"),
                        1 => format!("({a} > {b} ? {a} : {b})"),
                        2 => format!("({a} / ({b} - {b}))"),
                        3 => format!("[{a}, {b}].map(x, x % 7)[0]"),
                        _ => format!("([{a}].exists(x, x > 3) || {b} > 0 ? 1 : 2)"),
                    }
                };
                let (text, whole) = (spell(true), spell(false));
                if whole.len() > 2_000 {
                    break;
                }
                texts.push((format!("v{at}"), text));
                written.push(whole);
            }
            let programs: Vec<(String, Result<Program, String>)> =
                texts.iter().map(|(name, text)| (name.clone(), crate::tests::parse(text))).collect();
            for (at, whole) in written.iter().enumerate() {
                if crate::tests::parse(whole).is_err() {
                    continue;
                }
                let by_name = shown(&format!("variables.v{at}"), &programs);
                let by_text = shown(whole, &[]);
                if by_text.starts_with("error: ") {
                    prop_assert!(by_name.ends_with(by_text.trim_start_matches("error: ")), "{by_name} {by_text}");
                } else {
                    prop_assert_eq!(by_name, by_text);
                }
            }
        }
    }
}
