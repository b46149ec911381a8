//! Names in expressions: escapes of field names that are not identifiers, and uses of variables.

use cel::common::ast::{EntryExpr, Expr, LiteralValue, operators};
use cel::parser::Expression;

/// Reserved words of CEL, which a field's name must be escaped for.
const WORDS: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// Escapes of characters in names. The first must be replaced first.
const SIGNS: [(&str, &str); 4] =
    [("__", "__underscores__"), (".", "__dot__"), ("-", "__dash__"), ("/", "__slash__")];

/// Escapes a field's name for expressions; `None` if it cannot be written. Upstream: `cel.Escape`.
#[cfg(test)]
pub(super) fn escape(name: &str) -> Option<String> {
    if WORDS.contains(&name) {
        return Some(format!("__{name}__"));
    }
    let first = name.chars().next()?;
    if first.is_ascii_digit() {
        return None;
    }
    let mut escaped = name.to_owned();
    for (sign, written) in SIGNS {
        escaped = escaped.replace(sign, written);
    }
    escaped.chars().all(|c| c.is_ascii_alphanumeric() || c == '_').then_some(escaped)
}

/// Returns the field's name for an escaped one.
pub fn unescape(name: &str) -> String {
    if !name.contains("__") {
        return name.to_owned();
    }
    let word = name.strip_prefix("__").and_then(|n| n.strip_suffix("__"));
    if let Some(word) = word.filter(|word| WORDS.contains(word)) {
        return word.to_owned();
    }
    let mut plain = name.to_owned();
    for (sign, written) in SIGNS.into_iter().rev() {
        plain = plain.replace(written, sign);
    }
    plain
}

/// Returns the nesting of an expression's parts: 1 for a literal or an identifier.
pub(super) fn depth(expression: &Expression) -> usize {
    let most = |all: &[Expression]| all.iter().map(depth).max().unwrap_or(0);
    let of_entry = |entry: &EntryExpr| match entry {
        EntryExpr::StructField(field) => depth(&field.value),
        EntryExpr::MapEntry(entry) => depth(&entry.key).max(depth(&entry.value)),
    };
    let inner = match &expression.expr {
        Expr::Select(select) => depth(&select.operand),
        Expr::Call(call) => call.target.as_ref().map_or(0, |t| depth(t)).max(most(&call.args)),
        Expr::List(list) => most(&list.elements),
        Expr::Comprehension(c) => {
            [&c.iter_range, &c.accu_init, &c.loop_cond, &c.loop_step, &c.result]
                .into_iter()
                .map(depth)
                .max()
                .unwrap_or(0)
        }
        Expr::Map(map) => map.entries.iter().map(|e| of_entry(&e.expr)).max().unwrap_or(0),
        Expr::Struct(made) => made.entries.iter().map(|e| of_entry(&e.expr)).max().unwrap_or(0),
        Expr::Ident(_) | Expr::Literal(_) | Expr::Unspecified => 0,
    };
    inner + 1
}

/// Whether an expression uses a variable. A variable of that name that a macro binds counts, too.
pub(super) fn uses(expression: &Expression, variable: &str) -> bool {
    let any = |all: &[Expression]| all.iter().any(|e| uses(e, variable));
    match &expression.expr {
        Expr::Ident(name) => name == variable,
        Expr::Select(select) => uses(&select.operand, variable),
        Expr::Call(call) => {
            call.target.as_ref().is_some_and(|t| uses(t, variable)) || any(&call.args)
        }
        Expr::List(list) => any(&list.elements),
        Expr::Comprehension(c) => {
            [&c.iter_range, &c.accu_init, &c.loop_cond, &c.loop_step, &c.result]
                .into_iter()
                .any(|e| uses(e, variable))
        }
        Expr::Map(map) => map.entries.iter().any(|e| entry_uses(&e.expr, variable)),
        Expr::Struct(made) => made.entries.iter().any(|e| entry_uses(&e.expr, variable)),
        Expr::Literal(_) | Expr::Unspecified => false,
    }
}

/// Whether an expression reads a field of a variable by the field's name: `variable.field`, `has(variable.field)` or
/// `variable.?field`.
///
/// Upstream: `hasSelectExp`.
pub(super) fn selects(expression: &Expression, variable: &str, field: &str) -> bool {
    let within = |e: &Expression| selects(e, variable, field);
    let is_variable = |e: &Expression| matches!(&e.expr, Expr::Ident(name) if name == variable);
    match &expression.expr {
        Expr::Select(select) => {
            is_variable(&select.operand) && select.field == field || within(&select.operand)
        }
        Expr::Call(call) => {
            let optional = call.func_name == operators::OPT_SELECT
                && matches!(&*call.args, [of, name] if is_variable(of) && is_text(name, field));
            optional
                || call.target.as_ref().is_some_and(|t| within(t))
                || call.args.iter().any(within)
        }
        Expr::List(list) => list.elements.iter().any(within),
        Expr::Comprehension(c) => {
            [&c.iter_range, &c.accu_init, &c.loop_cond, &c.loop_step, &c.result]
                .into_iter()
                .any(within)
        }
        Expr::Map(map) => map.entries.iter().any(|e| entry_selects(&e.expr, variable, field)),
        Expr::Struct(made) => made.entries.iter().any(|e| entry_selects(&e.expr, variable, field)),
        Expr::Ident(_) | Expr::Literal(_) | Expr::Unspecified => false,
    }
}

fn entry_selects(entry: &EntryExpr, variable: &str, field: &str) -> bool {
    let within = |e: &Expression| selects(e, variable, field);
    match entry {
        EntryExpr::StructField(entry) => within(&entry.value),
        EntryExpr::MapEntry(entry) => within(&entry.key) || within(&entry.value),
    }
}

fn is_text(expression: &Expression, text: &str) -> bool {
    matches!(&expression.expr, Expr::Literal(LiteralValue::String(literal)) if literal.inner() == text)
}

fn entry_uses(entry: &EntryExpr, variable: &str) -> bool {
    match entry {
        EntryExpr::StructField(field) => uses(&field.value, variable),
        EntryExpr::MapEntry(entry) => uses(&entry.key, variable) || uses(&entry.value, variable),
    }
}

/// Returns the type that an expression names; `None` if there is no such type.
pub fn named(name: &str) -> Option<&'static str> {
    const NAMES: [&str; 12] = [
        "bool",
        "int",
        "uint",
        "double",
        "string",
        "bytes",
        "list",
        "map",
        "null_type",
        "type",
        "google.protobuf.Timestamp",
        "google.protobuf.Duration",
    ];
    NAMES.into_iter().find(|known| *known == name)
}
