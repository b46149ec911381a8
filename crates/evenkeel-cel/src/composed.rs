//! Variables of a policy: named expressions, each evaluated when an expression first uses it.
//!
//! Upstream: `lazy.MapValue`, and `compositionContext` of `admission/plugin/cel`.

use std::cell::{Cell, OnceCell};
use std::rc::Rc;

use evenkeel_api::quote::quote;

use crate::eval::{self, Failure, Scope};
use crate::{BUDGET, PER_CALL, Program, Val, unescape};

/// Nesting of expressions that the stack of a worker holds, an expression within the variables that use it.
///
/// Variables that would nest deeper are evaluated before the expression that uses them begins again.
const MAX_STACKED: usize = 250;

/// Variables of one policy for one evaluation of its expressions.
///
/// A variable sees the variables before it. Its value, or its error, is kept for the expressions after it.
#[derive(Debug)]
pub(crate) struct Composed<'a> {
    scope: Scope<'a>,
    variables: Vec<Variable<'a>>,
    /// Cost of the variables that the current expression has used first.
    cost: Cell<u64>,
    /// Cost that these variables may have.
    limit: Cell<u64>,
    /// Index of a variable that has to be evaluated before the expression that uses it.
    postponed: Cell<Option<usize>>,
    /// Cost that evaluations may still waste when they begin again.
    spare: Cell<u64>,
}

#[derive(Debug)]
struct Variable<'a> {
    name: &'a str,
    program: Result<&'a Program, &'a str>,
    value: OnceCell<Result<Val<'a>, String>>,
}

impl<'a> Scope<'a> {
    /// Adds the variable `variables`, with these fields in order. Each is a program, or the error of its compilation.
    pub fn composed(
        self,
        fields: impl IntoIterator<Item = (&'a str, Result<&'a Program, &'a str>)>,
    ) -> Self {
        let variable = |(name, program)| Variable { name, program, value: OnceCell::new() };
        let variables: Vec<_> = fields.into_iter().map(variable).collect();
        let composed = Composed {
            scope: self,
            variables,
            cost: Cell::new(0),
            limit: Cell::new(BUDGET),
            postponed: Cell::new(None),
            spare: Cell::new(BUDGET),
        };
        let composed = Rc::new(composed);
        composed.scope_of(composed.variables.len())
    }
}

impl<'a> Composed<'a> {
    /// Returns the scope of an expression that sees the first variables.
    fn scope_of(self: &Rc<Self>, visible: usize) -> Scope<'a> {
        let mut scope = self.scope.clone().with("variables", Val::Variables(visible));
        scope.composed = Some(Rc::clone(self));
        scope
    }

    /// Returns the value of a variable. Evaluates it at its first use, if `room` is enough for its expression.
    pub(crate) fn get(
        self: &Rc<Self>,
        field: &str,
        visible: usize,
        room: usize,
    ) -> Result<Val<'a>, Failure> {
        let field = unescape(field);
        let known = self.variables.iter().take(visible).rposition(|one| one.name == field);
        let Some(index) = known else {
            return Err(Failure::Error(format!("no such key: {field}")));
        };
        self.evaluate(index, room)?;
        let value = self.variables[index].value.get().cloned();
        value.unwrap_or_else(|| Err(format!("no such key: {field}"))).map_err(Failure::Error)
    }

    /// Evaluates a variable unless it has a value. Without enough room it is postponed, which ends the evaluation of
    /// the expressions that wait for it.
    fn evaluate(self: &Rc<Self>, index: usize, room: usize) -> Result<(), Failure> {
        let variable = &self.variables[index];
        if variable.value.get().is_some() {
            return Ok(());
        }
        let program = match variable.program {
            Ok(program) => program,
            Err(error) => {
                let name = quote(variable.name);
                self.settle(
                    index,
                    Err(format!("composited variable {name} fails to compile: {error}")),
                );
                return Ok(());
            }
        };
        let Some(room) = room.checked_sub(program.depth()) else {
            self.postponed.set(Some(index));
            return Err(Failure::Cost);
        };
        let most = self.limit.get().saturating_sub(self.cost.get()).min(PER_CALL);
        let mut left = most;
        let result = eval::run(program.expression(), &self.scope_of(index), &mut left, room);
        if self.postponed.get().is_some() {
            return Err(Failure::Cost);
        }
        self.cost.set(self.cost.get().saturating_add(most - left));
        if result == Err(Failure::Cost) && most < PER_CALL {
            // The budget is used up, rather than the limit of one expression.
            self.cost.set(u64::MAX);
            return Err(Failure::Cost);
        }
        self.settle(
            index,
            result.map_err(|failure| {
                let name = quote(variable.name);
                format!("composited variable {name} fails to evaluate: {}", failure.words())
            }),
        );
        Ok(())
    }

    fn settle(&self, index: usize, value: Result<Val<'a>, String>) {
        // A variable is evaluated once: it sees only the variables before it.
        let _ = self.variables[index].value.set(value);
    }

    /// Evaluates the variable that ended an evaluation, and those that it waits for. Returns whether the evaluation can
    /// begin again; `wasted` is what it cost.
    fn resume(self: &Rc<Self>, wasted: u64) -> bool {
        let Some(postponed) = self.postponed.take() else { return false };
        let Some(spare) = self.spare.get().checked_sub(wasted) else { return false };
        self.spare.set(spare);
        let mut waiting = vec![postponed];
        while let Some(&index) = waiting.last() {
            let room = MAX_STACKED.max(self.variables[index].program.map_or(0, Program::depth));
            match self.evaluate(index, room) {
                Ok(()) => drop(waiting.pop()),
                Err(_) => match self.postponed.take() {
                    Some(earlier) => waiting.push(earlier),
                    None => return false,
                },
            }
        }
        true
    }
}

/// Evaluates an expression, and the variables that it uses first. `budget` pays for the expression alone.
pub(crate) fn run<'a>(
    program: &'a Program,
    scope: &Scope<'a>,
    budget: &mut u64,
) -> Result<Val<'a>, Failure> {
    let room = MAX_STACKED.saturating_sub(program.depth());
    loop {
        let mut left = *budget;
        let result = eval::run(program.expression(), scope, &mut left, room);
        let Some(composed) = &scope.composed else {
            *budget = left;
            return result;
        };
        if composed.postponed.get().is_none() {
            *budget = left;
            return result;
        }
        if !composed.resume(*budget - left) {
            *budget = 0;
            return Err(Failure::Cost);
        }
    }
}

/// Evaluates an expression within a budget that pays for its variables, too. `None` if the budget is used up.
///
/// Upstream: `Evaluate` of `admission/plugin/cel`.
pub(crate) fn run_within<'a>(
    program: &'a Program,
    scope: &Scope<'a>,
    budget: &mut u64,
) -> Option<Result<Val<'a>, Failure>> {
    if let Some(composed) = &scope.composed {
        composed.cost.set(0);
        composed.limit.set(*budget);
    }
    let most = PER_CALL.min(*budget);
    let mut left = most;
    let result = run(program, scope, &mut left);
    let of_variables = scope.composed.as_ref().map_or(0, |composed| composed.cost.take());
    let is_exceeded = result == Err(Failure::Cost) && most < PER_CALL;
    match budget.checked_sub((most - left).saturating_add(of_variables)) {
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

    /// Evaluates expressions one after the other with the same variables: the result and the cost of each.
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
        let scope = Scope::default().composed(fields);
        let one = |program| {
            let before = budget;
            let shown = match run_within(program, &scope, &mut budget) {
                None => "out of budget".to_owned(),
                Some(Ok(value)) => value.shown(),
                Some(Err(failure)) => format!("error: {}", failure.words()),
            };
            (shown, before - budget)
        };
        programs.iter().map(one).collect()
    }

    fn shown(source: &str, variables: &[(String, Result<Program, String>)]) -> String {
        evaluate(variables, &[source], BUDGET).remove(0).0
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
        let found = evaluate(&variables, &sources, BUDGET);
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
        let (found, used) = evaluate(&variables, &[source], BUDGET).remove(0);
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

    /// Each variable uses the one before it, more deeply than a stack would hold.
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
        // Each case parses dozens of expressions, which takes a thread each.
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// The value is that of the expression in which each variable is written out.
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
