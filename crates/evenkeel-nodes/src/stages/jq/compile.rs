//! Compiles the syntax tree of a jq expression to filters. Refuses unsupported syntax and functions.

use jaq_core::{
    load::{
        lex::{Lexer, StrPart, Tok, Token},
        parse::{BinaryOp, Parser, Pattern, Term},
    },
    ops::{Cmp, Math},
    path::{Opt, Part},
};
use serde_json::{Number, Value};

use super::builtins::{Builtin, find};

/// Maximum depth of the syntax tree.
const MAX_DEPTH: usize = 64;

/// Maximum number of filters of an expression. The evaluation of each may need a stack frame at the same time.
const MAX_FILTERS: usize = 200;

/// Maximum number of tokens. The parser may recurse at each token, such as `-`, `try`, `if` or `|`.
const MAX_TOKENS: usize = 400;

/// Maximum depth of nested brackets. The parser recurses several times for each level.
const MAX_NESTED: usize = 24;

/// Filter: a function of an input value that outputs any number of values.
#[derive(Debug, Clone)]
pub(super) enum Filter {
    Identity,
    /// Outputs the input and, recursively, all values in it (`..`).
    Recurse,
    Value(Value),
    /// String with interpolated filters, and whether their outputs are printed as JSON.
    Text(Vec<Piece>, bool),
    /// Array of the outputs of a filter; empty without a filter.
    Array(Option<Box<Self>>),
    /// Object, from filters for its keys and values.
    Object(Vec<(Self, Self)>),
    Negate(Box<Self>),
    Pipe(Box<Self>, Box<Self>),
    /// `f as $x | g`
    Bind(Box<Self>, String, Box<Self>),
    Comma(Box<Self>, Box<Self>),
    /// `f // g`
    Alternative(Box<Self>, Box<Self>),
    Or(Box<Self>, Box<Self>),
    And(Box<Self>, Box<Self>),
    Math(Math, Box<Self>, Box<Self>),
    Compare(Cmp, Box<Self>, Box<Self>),
    /// `try f catch g`
    Try(Box<Self>, Option<Box<Self>>),
    If(Box<Self>, Box<Self>, Option<Box<Self>>),
    Variable(String),
    /// `reduce f as $x (init; update)`, or `foreach f as $x (init; update; extract)`.
    Fold(Box<Fold>),
    /// Steps from each output of a filter. The flag is whether a step is optional.
    Path(Box<Self>, Vec<(Step, bool)>),
    Call(Builtin, Vec<Self>),
}

/// Loop over the outputs of `source`: `reduce` or `foreach`.
#[derive(Debug, Clone)]
pub(super) struct Fold {
    pub(super) source: Filter,
    pub(super) variable: String,
    pub(super) init: Filter,
    pub(super) update: Filter,
    /// Filter that `foreach` applies to each state; `None` for `reduce`, which outputs only the last state.
    pub(super) extract: Option<Filter>,
}

/// Part of a string with interpolated filters.
#[derive(Debug, Clone)]
pub(super) enum Piece {
    Text(String),
    Filter(Filter),
}

/// Step of a path. The errors of an optional step (`?`) are ignored.
#[derive(Debug, Clone)]
pub(super) enum Step {
    /// All items or fields (`[]`).
    All,
    /// `.name` or `[f]`
    Index(Filter),
    /// Slice of an array or a string (`[from:to]`).
    Range(Option<Filter>, Option<Filter>),
}

/// Compiles an expression.
pub(super) fn compile(source: &str) -> Result<Filter, String> {
    let tokens = Lexer::new(source).lex().map_err(|errors| {
        let at = errors.first().map_or("", |(_, at)| *at);
        format!("{source:?} is not a jq expression, at {:?}", excerpt(at))
    })?;
    check_tokens(&tokens, &mut 0, 0)?;
    let term = Parser::new(&tokens).parse(Parser::term).map_err(|errors| {
        let found = errors.first().and_then(|(_, found)| found.map(|token| token.0));
        let at = found.map_or("its end".to_owned(), |at| format!("{:?}", excerpt(at)));
        format!("{source:?} is not a jq expression, at {at}")
    })?;
    filter(&term, &mut Scope::default(), 0)
}

/// Checks that the number of tokens and the depth of nested brackets do not overflow the stack of the parser.
/// `n_tokens` counts the tokens so far.
fn check_tokens(tokens: &[Token<&str>], n_tokens: &mut usize, depth: usize) -> Result<(), String> {
    if depth > MAX_NESTED {
        return Err(format!("brackets are nested more than {MAX_NESTED} times"));
    }
    for Token(_, token) in tokens {
        *n_tokens += 1;
        if *n_tokens > MAX_TOKENS {
            return Err(format!("the expression has more than {MAX_TOKENS} tokens"));
        }
        match token {
            Tok::Block(inner) => check_tokens(inner, n_tokens, depth + 1)?,
            Tok::Str(parts) => {
                for part in parts {
                    if let StrPart::Term(term) = part {
                        check_tokens(std::slice::from_ref(term), n_tokens, depth + 1)?;
                    }
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// Returns the first characters of `text`, for error messages.
fn excerpt(text: &str) -> String {
    text.chars().take(20).collect()
}

/// State of a compilation: the variables in scope, and the number of filters so far.
#[derive(Default)]
struct Scope<'s> {
    /// Names of the variables in scope, with their `$`.
    variables: Vec<&'s str>,
    /// Number of filters so far.
    filters: usize,
}

/// Compiles a term.
fn filter<'s>(term: &Term<&'s str>, scope: &mut Scope<'s>, depth: usize) -> Result<Filter, String> {
    if depth > MAX_DEPTH {
        return Err(format!("the expression is nested more than {MAX_DEPTH} times"));
    }
    let depth = depth + 1;
    scope.filters += 1;
    if scope.filters > MAX_FILTERS {
        return Err(format!("the expression has more than {MAX_FILTERS} filters"));
    }
    let boxed =
        |term: &Term<&'s str>, scope: &mut Scope<'s>| filter(term, scope, depth).map(Box::new);
    Ok(match term {
        Term::Id => Filter::Identity,
        Term::Recurse => Filter::Recurse,
        Term::Num(digits) => {
            let integer = digits.parse::<i64>().ok().map(Number::from);
            let number = integer.or_else(|| digits.parse().ok().and_then(Number::from_f64));
            Filter::Value(number.map(Value::Number).ok_or(format!("{digits} is not a number"))?)
        }
        Term::Str(format, parts) => {
            let is_json = match format {
                None | Some("@text") => false,
                Some("@json") => true,
                Some(other) => return Err(format!("the format {other} is not supported")),
            };
            let mut pieces = Vec::new();
            for part in parts {
                pieces.push(match part {
                    StrPart::Str(text) => Piece::Text((*text).to_owned()),
                    StrPart::Char(c) => Piece::Text(c.to_string()),
                    StrPart::Term(term) => Piece::Filter(filter(term, scope, depth)?),
                });
            }
            Filter::Text(pieces, is_json)
        }
        Term::Arr(items) => {
            let items = items.as_ref().map(|items| boxed(items, scope)).transpose()?;
            Filter::Array(items)
        }
        Term::Obj(entries) => {
            let mut fields = Vec::new();
            for (key, value) in entries {
                fields.push(match (key, value) {
                    (_, Some(value)) => (filter(key, scope, depth)?, filter(value, scope, depth)?),
                    (Term::Var(name), None) => {
                        let value = filter(key, scope, depth)?;
                        (Filter::Value(name.trim_start_matches('$').into()), value)
                    }
                    (_, None) => {
                        let key = filter(key, scope, depth)?;
                        let step = (Step::Index(key.clone()), false);
                        (key, Filter::Path(Box::new(Filter::Identity), vec![step]))
                    }
                });
            }
            Filter::Object(fields)
        }
        Term::Neg(term) => Filter::Negate(boxed(term, scope)?),
        Term::BinOp(left, operator, right) => {
            let first = boxed(left, scope)?;
            if let BinaryOp::Pipe(Some(pattern)) = operator {
                let name = variable(pattern)?;
                scope.variables.push(name);
                let rest = boxed(right, scope);
                scope.variables.pop();
                return Ok(Filter::Bind(first, name.to_owned(), rest?));
            }
            let second = boxed(right, scope)?;
            match operator {
                BinaryOp::Pipe(_) => Filter::Pipe(first, second),
                BinaryOp::Comma => Filter::Comma(first, second),
                BinaryOp::Alt => Filter::Alternative(first, second),
                BinaryOp::Or => Filter::Or(first, second),
                BinaryOp::And => Filter::And(first, second),
                BinaryOp::Math(math) => Filter::Math(*math, first, second),
                BinaryOp::Cmp(compare) => Filter::Compare(*compare, first, second),
                _ => return Err("an expression can't assign".to_owned()),
            }
        }
        Term::Label(..) | Term::Break(_) => return Err("label is not supported".to_owned()),
        Term::Def(..) => return Err("def is not supported".to_owned()),
        Term::Fold(keyword, source, pattern, arguments) => {
            let name = variable(pattern)?;
            let (source, init) = match arguments.first() {
                Some(init) => (filter(source, scope, depth)?, filter(init, scope, depth)?),
                None => return Err(format!("{keyword} has no initial value")),
            };
            scope.variables.push(name);
            let mut rest = Vec::new();
            for argument in arguments.iter().skip(1) {
                rest.push(filter(argument, scope, depth)?);
            }
            scope.variables.pop();
            let mut rest = rest.into_iter();
            let (update, extract) = (rest.next(), rest.next());
            let update = update.ok_or_else(|| format!("{keyword} has no update"))?;
            let extract = match *keyword {
                "reduce" => None,
                _ => Some(extract.unwrap_or(Filter::Identity)),
            };
            let variable = name.to_owned();
            Filter::Fold(Box::new(Fold { source, variable, init, update, extract }))
        }
        Term::TryCatch(body, handler) => {
            let handler = handler.as_ref().map(|handler| boxed(handler, scope)).transpose()?;
            Filter::Try(boxed(body, scope)?, handler)
        }
        Term::IfThenElse(branches, otherwise) => {
            let mut last = otherwise.as_ref().map(|term| boxed(term, scope)).transpose()?;
            for (condition, then) in branches.iter().rev() {
                let branch = Filter::If(boxed(condition, scope)?, boxed(then, scope)?, last);
                last = Some(Box::new(branch));
            }
            last.map_or(Filter::Identity, |filter| *filter)
        }
        Term::Var(name) if scope.variables.contains(name) => Filter::Variable((*name).to_owned()),
        Term::Var(name) => return Err(format!("undefined variable {name}")),
        Term::Call(name, arguments) => {
            let builtin = find(name, arguments.len());
            let builtin = builtin.ok_or_else(|| {
                format!("the jq function {name}/{} is not known", arguments.len())
            })?;
            let arguments: Result<_, _> =
                arguments.iter().map(|argument| filter(argument, scope, depth)).collect();
            Filter::Call(builtin, arguments?)
        }
        Term::Path(term, path) => {
            let term = boxed(term, scope)?;
            let mut steps = Vec::new();
            for (part, optional) in &path.0 {
                let step = match part {
                    Part::Index(index) => Step::Index(filter(index, scope, depth)?),
                    Part::Range(None, None) => Step::All,
                    Part::Range(from, to) => {
                        let mut bound = |bound: &Option<Term<&'s str>>| {
                            bound.as_ref().map(|bound| filter(bound, scope, depth)).transpose()
                        };
                        Step::Range(bound(from)?, bound(to)?)
                    }
                };
                steps.push((step, matches!(optional, Opt::Optional)));
            }
            Filter::Path(term, steps)
        }
    })
}

/// Returns the name of a pattern's variable. Patterns of arrays and objects are not supported.
fn variable<'s>(pattern: &Pattern<&'s str>) -> Result<&'s str, String> {
    match pattern {
        Pattern::Var(name) => Ok(name),
        _ => Err("patterns of arrays and objects are not supported".to_owned()),
    }
}
