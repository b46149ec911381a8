//! Names in expressions: escapes of field names that are not identifiers, and uses of variables.

use cel::common::ast::{EntryExpr, Expr, LiteralValue, MapExpr, SelectExpr, StructExpr, operators};
use cel::parser::Expression;

use crate::Val;

/// Reserved words of CEL. A field with such a name must be escaped.
const RESERVED: [&str; 21] = [
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

/// Characters of field names with their escapes. Two underscores must be escaped first, because the other escapes
/// contain them.
const ESCAPES: [(&str, &str); 4] =
    [("__", "__underscores__"), (".", "__dot__"), ("-", "__dash__"), ("/", "__slash__")];

/// Escapes a field's name for expressions; `None` if it cannot be written. Upstream: `cel.Escape`.
pub fn escape(name: &str) -> Option<String> {
    if RESERVED.contains(&name) {
        return Some(format!("__{name}__"));
    }
    let first = name.chars().next()?;
    if first.is_ascii_digit() {
        return None;
    }
    let mut escaped = name.to_owned();
    for (characters, escape) in ESCAPES {
        escaped = escaped.replace(characters, escape);
    }
    escaped.chars().all(|c| c.is_ascii_alphanumeric() || c == '_').then_some(escaped)
}

/// Returns a field's name from its escaped form.
pub fn unescape(name: &str) -> String {
    if !name.contains("__") {
        return name.to_owned();
    }
    let word = name.strip_prefix("__").and_then(|n| n.strip_suffix("__"));
    if let Some(word) = word.filter(|word| RESERVED.contains(word)) {
        return word.to_owned();
    }
    let mut unescaped = name.to_owned();
    for (characters, escape) in ESCAPES.into_iter().rev() {
        unescaped = unescaped.replace(escape, characters);
    }
    unescaped
}

/// Returns the Go type that cel-go prints for a value that is neither a list nor a map.
pub(crate) fn go_name(value: &Val<'_>) -> String {
    match value {
        Val::Null => "types.Null".to_owned(),
        Val::Bool(_) => "types.Bool".to_owned(),
        Val::Int(_) => "types.Int".to_owned(),
        Val::Uint(_) => "types.Uint".to_owned(),
        Val::Double(_) => "types.Double".to_owned(),
        Val::Str(_) => "types.String".to_owned(),
        Val::Bytes(_) => "types.Bytes".to_owned(),
        Val::Time(_) => "types.Timestamp".to_owned(),
        Val::Duration(_) => "types.Duration".to_owned(),
        Val::Type(_) => "*types.Type".to_owned(),
        Val::Optional(_) => "*types.Optional".to_owned(),
        other => other.type_name().replace("kubernetes.", "cel.").replace("net.", "cel."),
    }
}

/// Returns a name without its leading dot. In CEL, `.x` refers to a global variable even if a macro binds `x`.
pub(crate) fn without_dot(name: &str) -> &str {
    name.strip_prefix('.').unwrap_or(name)
}

/// Returns whether a name is a reserved word of CEL.
pub(crate) fn is_reserved(name: &str) -> bool {
    RESERVED.contains(&name)
}

/// Visits the direct subexpressions of an expression.
pub(crate) fn each_child<'e>(e: &'e Expression, visit: &mut dyn FnMut(&'e Expression)) {
    match &e.expr {
        Expr::Select(select) => visit(&select.operand),
        Expr::Call(call) => {
            call.target.as_deref().into_iter().chain(&call.args).for_each(visit);
        }
        Expr::List(list) => list.elements.iter().for_each(visit),
        Expr::Comprehension(c) => {
            [&c.iter_range, &c.accu_init, &c.loop_cond, &c.loop_step, &c.result]
                .into_iter()
                .for_each(visit);
        }
        Expr::Map(MapExpr { entries }) | Expr::Struct(StructExpr { entries, .. }) => {
            for entry in entries {
                match &entry.expr {
                    EntryExpr::StructField(field) => visit(&field.value),
                    EntryExpr::MapEntry(entry) => {
                        visit(&entry.key);
                        visit(&entry.value);
                    }
                }
            }
        }
        Expr::Ident(_) | Expr::Literal(_) | Expr::Unspecified => {}
    }
}

/// Visits the direct subexpressions of an expression, to change them.
pub(crate) fn each_child_mut(e: &mut Expression, visit: &mut dyn FnMut(&mut Expression)) {
    match &mut e.expr {
        Expr::Select(select) => visit(&mut select.operand),
        Expr::Call(call) => {
            call.target.as_deref_mut().into_iter().chain(&mut call.args).for_each(visit);
        }
        Expr::List(list) => list.elements.iter_mut().for_each(visit),
        Expr::Comprehension(c) => {
            let c = &mut **c;
            visit(&mut c.iter_range);
            visit(&mut c.accu_init);
            visit(&mut c.loop_cond);
            visit(&mut c.loop_step);
            visit(&mut c.result);
        }
        Expr::Map(MapExpr { entries }) | Expr::Struct(StructExpr { entries, .. }) => {
            for entry in entries {
                match &mut entry.expr {
                    EntryExpr::StructField(field) => visit(&mut field.value),
                    EntryExpr::MapEntry(entry) => {
                        visit(&mut entry.key);
                        visit(&mut entry.value);
                    }
                }
            }
        }
        Expr::Ident(_) | Expr::Literal(_) | Expr::Unspecified => {}
    }
}

/// Returns the qualified name that a chain of selections forms, such as `a.b.c`; `None` if it does not begin with an
/// identifier.
///
/// Upstream: `computeQualifiers`.
pub(crate) fn qualified_name(select: &SelectExpr) -> Option<String> {
    if select.test {
        return None;
    }
    let operand = match &select.operand.expr {
        Expr::Ident(name) => name.clone(),
        Expr::Select(inner) => qualified_name(inner)?,
        _ => return None,
    };
    Some(format!("{operand}.{}", select.field))
}

/// Returns the depth of an expression's syntax tree: 1 for a literal or an identifier.
pub(super) fn depth(expression: &Expression) -> usize {
    let mut deepest = 0;
    each_child(expression, &mut |child| deepest = deepest.max(depth(child)));
    deepest + 1
}

/// Returns whether an expression contains a variable's name, even if a macro binds another variable of that name.
pub(super) fn uses(expression: &Expression, variable: &str) -> bool {
    let mut found = matches!(&expression.expr, Expr::Ident(name) if name == variable);
    each_child(expression, &mut |child| found = found || uses(child, variable));
    found
}

/// Returns whether an expression reads a field of a variable by the field's name: `variable.field`,
/// `has(variable.field)` or `variable.?field`.
///
/// Upstream: `hasSelectExp`.
pub(super) fn selects(expression: &Expression, variable: &str, field: &str) -> bool {
    let is_variable = |e: &Expression| matches!(&e.expr, Expr::Ident(name) if name == variable);
    let mut found = match &expression.expr {
        Expr::Select(select) => is_variable(&select.operand) && select.field == field,
        Expr::Call(call) if call.func_name == operators::OPT_SELECT => match &*call.args {
            [operand, name] => is_variable(operand) && is_string(name, field),
            _ => false,
        },
        _ => false,
    };
    each_child(expression, &mut |child| found = found || selects(child, variable, field));
    found
}

/// Returns whether an expression is a string literal with this value.
fn is_string(expression: &Expression, text: &str) -> bool {
    matches!(&expression.expr, Expr::Literal(LiteralValue::String(literal)) if literal.inner() == text)
}

/// Returns the type of this name, such as `int`; `None` for an unknown name.
pub fn type_named(name: &str) -> Option<&'static str> {
    crate::check::TYPES.iter().map(|(known, _)| *known).find(|known| *known == name)
}
