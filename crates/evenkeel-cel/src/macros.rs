//! Macros that the parser expands: `has`, and the comprehensions over lists and maps.
//!
//! The two variables of a comprehension are the index and the element of a list, or the key and the value of a map.
//!
//! Upstream: cel-go's `parser/macro.go` and `ext.TwoVarComprehensions`.

use std::sync::LazyLock;

use cel::Env;
use cel::common::ast::{
    CallExpr, ComprehensionExpr, Expr, IdedExpr, ListExpr, LiteralValue, MapExpr, SelectExpr,
    operators as op,
};
use cel::parser::{Macro, MacroExprHelper, ParseError, Parser};

/// Function that adds an entry to the map in the accumulator of a comprehension. Only expanded macros call it: its name
/// is not a valid identifier.
pub(crate) const MAP_INSERT: &str = "cel.@mapInsert";

/// Name of the accumulator of a comprehension, the same as in the parser's own macros.
pub(crate) const ACCUMULATOR: &str = "@result";

/// Name of the accumulator in older versions of cel-go, which still reserves it. Upstream: `AccumulatorName`.
pub(crate) const OLD_ACCUMULATOR: &str = "__result__";

/// Environment with the macros.
static ENVIRONMENT: LazyLock<Env> = LazyLock::new(|| {
    let mut env = Env::default();
    for (name, arg_counts, kind) in [
        ("all", &[2_usize, 3][..], Kind::All),
        ("exists", &[2, 3], Kind::Exists),
        ("exists_one", &[2, 3], Kind::ExistsOne),
        ("existsOne", &[3], Kind::ExistsOne),
        ("map", &[2, 3], Kind::List),
        ("filter", &[2], Kind::Filter),
        ("transformList", &[3, 4], Kind::List),
        ("transformMap", &[3, 4], Kind::Map),
        ("transformMapEntry", &[3, 4], Kind::MapEntry),
    ] {
        for arg_count in arg_counts {
            // With three arguments, `map` has a filter, and each of the other macros a second variable.
            let n_variables = if name == "map" || *arg_count == 2 { 1 } else { 2 };
            let expander = move |helper: &mut MacroExprHelper<'_>,
                                 target: &mut Option<IdedExpr>,
                                 args: &mut Vec<IdedExpr>| {
                expand(kind, n_variables, helper, target, args)
            };
            // It fails only if two macros have the same name and number of arguments.
            let _ = env.add_macro(Macro::receiver(name, *arg_count, expander));
        }
    }
    let _ = env.add_macro(Macro::global("has", 1, |helper, _, args| expand_has(helper, args)));
    env
});

/// Returns a parser that expands all macros.
pub(crate) fn parser() -> Parser {
    ENVIRONMENT.parser()
}

/// Kind of a comprehension, by its result.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    All,
    Exists,
    ExistsOne,
    Filter,
    /// List with the body's value for each element: `map` and `transformList`.
    List,
    /// Map with the body's value for each key: `transformMap`.
    Map,
    /// Map with the entries that the body returns as a map: `transformMapEntry`.
    MapEntry,
}

/// Expands `has(a.b)`.
fn expand_has(
    helper: &mut MacroExprHelper<'_>,
    args: &mut Vec<IdedExpr>,
) -> Result<Option<IdedExpr>, ParseError> {
    let Some(IdedExpr { id, expr }) = args.pop() else { return Ok(None) };
    match expr {
        Expr::Select(select) => {
            Ok(Some(helper.next_expr(Expr::Select(SelectExpr { test: true, ..select }))))
        }
        _ => Err(helper.new_error(id, "invalid argument to has() macro")),
    }
}

/// Returns the names of a macro's variables: its first arguments, which must be different identifiers.
fn variable_names(
    kind: Kind,
    n_variables: usize,
    helper: &MacroExprHelper<'_>,
    args: &[IdedExpr],
) -> Result<Vec<String>, ParseError> {
    let not_a_name = match kind {
        Kind::List | Kind::Filter if n_variables == 1 => "argument is not an identifier",
        _ => "argument must be a simple name",
    };
    let mut names: Vec<String> = Vec::new();
    for argument in args.iter().take(n_variables) {
        match &argument.expr {
            Expr::Ident(name) => names.push(name.clone()),
            _ => return Err(helper.new_error(argument.id, not_a_name)),
        }
    }
    if let ([first, second], Some(argument)) = (names.as_slice(), args.get(1))
        && first == second
    {
        let error = format!("duplicate variable name: {first}");
        return Err(helper.new_error(argument.id, error));
    }
    let reserved = names.iter().position(|name| name == ACCUMULATOR || name == OLD_ACCUMULATOR);
    match reserved.and_then(|index| args.get(index)) {
        Some(argument) => {
            let message = "iteration variable overwrites accumulator variable";
            Err(helper.new_error(argument.id, message))
        }
        None => Ok(names),
    }
}

/// Expands a comprehension macro. Its arguments are the variables, the filter if there is one, and the body.
fn expand(
    kind: Kind,
    n_variables: usize,
    helper: &mut MacroExprHelper<'_>,
    target: &mut Option<IdedExpr>,
    args: &mut Vec<IdedExpr>,
) -> Result<Option<IdedExpr>, ParseError> {
    let mut names = variable_names(kind, n_variables, helper, args)?.into_iter();
    let Some(first) = names.next() else { return Ok(None) };
    let second = names.next();
    let Some(iter_range) = target.take() else { return Ok(None) };
    let Some(body) = args.pop() else { return Ok(None) };
    let filter = if args.len() > n_variables { args.pop() } else { None };
    let mut build = Builder(helper);
    let accumulator = || Expr::Ident(ACCUMULATOR.to_owned());
    let mut loop_cond = build.literal(LiteralValue::Boolean(true.into()));
    let mut result = build.make(accumulator());
    let (accu_init, step) = match kind {
        Kind::All => {
            let so_far = build.make(accumulator());
            loop_cond = build.call(op::NOT_STRICTLY_FALSE, vec![so_far]);
            let so_far = build.make(accumulator());
            let step = build.call(op::LOGICAL_AND, vec![so_far, body]);
            (build.literal(LiteralValue::Boolean(true.into())), step)
        }
        Kind::Exists => {
            let so_far = build.make(accumulator());
            let not = build.call(op::LOGICAL_NOT, vec![so_far]);
            loop_cond = build.call(op::NOT_STRICTLY_FALSE, vec![not]);
            let so_far = build.make(accumulator());
            let step = build.call(op::LOGICAL_OR, vec![so_far, body]);
            (build.literal(LiteralValue::Boolean(false.into())), step)
        }
        Kind::ExistsOne => {
            let one = build.literal(LiteralValue::Int(1.into()));
            result = build.call(op::EQUALS, vec![result, one]);
            let so_far = build.make(accumulator());
            let one = build.literal(LiteralValue::Int(1.into()));
            let count_plus_one = build.call(op::ADD, vec![so_far, one]);
            let so_far = build.make(accumulator());
            let step = build.call(op::CONDITIONAL, vec![body, count_plus_one, so_far]);
            (build.literal(LiteralValue::Int(0.into())), step)
        }
        Kind::Filter => {
            let item = build.make(Expr::Ident(first.clone()));
            let with_item = build.append_to_accumulator(item);
            let so_far = build.make(accumulator());
            let step = build.call(op::CONDITIONAL, vec![body, with_item, so_far]);
            (build.make(Expr::List(ListExpr::new(Vec::new()))), step)
        }
        Kind::List => {
            let step = build.append_to_accumulator(body);
            (build.make(Expr::List(ListExpr::new(Vec::new()))), step)
        }
        Kind::Map | Kind::MapEntry => {
            let mut insert_args = vec![build.make(accumulator())];
            if kind == Kind::Map {
                insert_args.push(build.make(Expr::Ident(first.clone())));
            }
            insert_args.push(body);
            let step = build.call(MAP_INSERT, insert_args);
            (build.make(Expr::Map(MapExpr::default())), step)
        }
    };
    let loop_step = match filter {
        Some(filter) => {
            let so_far = build.make(accumulator());
            build.call(op::CONDITIONAL, vec![filter, step, so_far])
        }
        None => step,
    };
    let comprehension = ComprehensionExpr {
        iter_range,
        iter_var: first,
        iter_var2: second,
        accu_var: ACCUMULATOR.to_owned(),
        accu_init,
        loop_cond,
        loop_step,
        result,
    };
    Ok(Some(build.make(Expr::Comprehension(Box::new(comprehension)))))
}

/// Builder of the nodes that replace a macro.
struct Builder<'h, 'p>(&'h mut MacroExprHelper<'p>);

impl Builder<'_, '_> {
    fn make(&mut self, expr: Expr) -> IdedExpr {
        self.0.next_expr(expr)
    }

    fn literal(&mut self, value: LiteralValue) -> IdedExpr {
        self.make(Expr::Literal(value))
    }

    /// Returns the expression that adds an element to the list in the accumulator.
    fn append_to_accumulator(&mut self, element: IdedExpr) -> IdedExpr {
        let so_far = self.make(Expr::Ident(ACCUMULATOR.to_owned()));
        let next_element = self.make(Expr::List(ListExpr::new(vec![element])));
        self.call(op::ADD, vec![so_far, next_element])
    }

    fn call(&mut self, name: &str, args: Vec<IdedExpr>) -> IdedExpr {
        self.make(Expr::Call(CallExpr { func_name: name.to_owned(), target: None, args }))
    }
}

#[cfg(test)]
mod tests {
    use crate::tests::assert_results;
    use crate::{PER_CALL_LIMIT, Program, Scope};

    #[test]
    fn macros_have_two_variables() {
        assert_results(&[
            ("[1, 2, 3].all(i, v, i < v)", "true"),
            ("[1, 2, 1].all(i, v, i < v)", "false"),
            ("{'a': 1, 'b': 2}.all(k, v, k != '' && v > 0)", "true"),
            ("{'a': 1}.exists(k, v, k == 'a' && v == 1)", "true"),
            ("{'a': 1}.exists(k, v, v == 2)", "false"),
            ("[1, 0].exists(i, v, 1 / v == 1)", "true"),
            ("[0].exists(i, v, 1 / v == 1)", "error: division by zero"),
            ("[5, 6, 5].existsOne(i, v, i == 1 && v == 6)", "true"),
            ("[5, 6, 5].exists_one(i, v, v == 5)", "false"),
            ("[5, 6].transformList(i, v, i * 10 + v)", "[5,16]"),
            ("[5, 6, 7].transformList(i, v, i > 0, v)", "[6,7]"),
            ("{'a': 1}.transformList(k, v, k)", r#"["a"]"#),
            ("[5, 6].transformMap(i, v, v * 2)", r#"{"0":10,"1":12}"#),
            ("{'a': 1, 'b': 2}.transformMap(k, v, v > 1, v * 2)", r#"{"b":4}"#),
            ("{'a': 'x', 'b': 'y'}.transformMapEntry(k, v, {v: k})", r#"{"x":"a","y":"b"}"#),
            ("{'a': 'x', 'b': 'y'}.transformMapEntry(k, v, k == 'b', {v: k})", r#"{"y":"b"}"#),
            (
                "['x', 'x'].transformMapEntry(i, v, {v: i})",
                "error: insert failed: key x already exists",
            ),
            (
                "['x', 'y'].transformMapEntry(i, v, {v: i, v + '!': i})",
                r#"{"x":0,"x!":0,"y":1,"y!":1}"#,
            ),
            ("[].transformMap(i, v, v)", "{}"),
            ("[1].transformMap(i, v, [2].transformMap(j, w, v + w))", r#"{"0":{"0":3}}"#),
            ("'a'.all(i, v, true)", "error: unsupported comprehension range type: types.String"),
            ("dyn(1).all(v, true)", "error: got 'types.Int', expected iterable type"),
        ]);
    }

    #[test]
    fn variables_are_two_names() {
        for (source, why) in [
            ("[1].all(i, i, true)", "duplicate variable name: i"),
            ("[1].transformMap(i, v + 1, true)", "argument must be a simple name"),
            ("[1].exists(1, v, true)", "argument must be a simple name"),
        ] {
            let error = Program::parse(source).expect_err(source);
            assert!(error.contains(why), "{source}: {error}");
        }
    }

    /// Entries whose keys have to be compared with all others cost more.
    #[test]
    fn a_growing_map_is_paid_for() {
        let cost = |source: &str| {
            let program = Program::parse(source).expect(source);
            let mut left = PER_CALL_LIMIT;
            assert!(program.run(&Scope::default(), &mut left).is_ok(), "{source}");
            PER_CALL_LIMIT - left
        };
        let by_key = cost("lists.range(2000).transformMap(i, v, v).size()");
        let by_entry = cost("lists.range(2000).transformMapEntry(i, v, {v: v}).size()");
        let (literals, key) = (2000 * 30, 2000);
        let compared: u64 = (0..2000).map(|entries| entries / 100).sum();
        assert_eq!(by_entry - by_key, literals + key - 2000 + compared);
    }
}
