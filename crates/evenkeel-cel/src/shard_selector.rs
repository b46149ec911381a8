//! Parser of shard selectors (KEP-5866), which are CEL expressions that are never evaluated.
//!
//! Upstream: `apiserver/pkg/sharding`.

use cel::common::ast::{CallExpr, Expr, LiteralValue, operators};
use evenkeel_api::quote::quote;
use evenkeel_api::sharding::{HASH_SPACE, ShardField, ShardRange, ShardSelector};

use crate::parse;

/// Function of a shard selector: field, start and end of a range.
const SHARD_RANGE: &str = "shardRange";

/// Text of the greatest end of a range, 2^64, the only number with 17 digits.
const HASH_SPACE_TEXT: &str = "0x10000000000000000";

/// Parses the query parameter `shardSelector`: calls of `shardRange` that `||` combines.
///
/// # Errors
/// Returns the first error, of the syntax, of a call, or of two fields, with upstream's message.
///
/// Upstream: `Parse`.
pub fn parse(expression: &str) -> Result<ShardSelector, String> {
    let expression = expression.trim();
    if expression.is_empty() {
        let why = "empty shard selector is not allowed; omit the parameter for unfiltered lists";
        return Err(why.to_owned());
    }
    let parsed = parse::parse_without_macros(expression)
        .map_err(|message| format!("CEL parse error: {message}"))?;
    let mut requirements = Vec::new();
    collect(&parsed.expr, &mut requirements)?;
    let Some((field, _)) = requirements.first().copied() else {
        return Err("a shard selector needs a range".to_owned());
    };
    if let Some((other, _)) = requirements.iter().find(|(other, _)| *other != field) {
        return Err(format!(
            "all shard ranges must use the same field, got {} and {}",
            quote(field.path()),
            quote(other.path())
        ));
    }
    Ok(ShardSelector::new(field, requirements.into_iter().map(|(_, range)| range).collect()))
}

/// Collects the calls of `shardRange` from left to right.
///
/// Upstream: `walkExpr`.
fn collect(expr: &Expr, requirements: &mut Vec<(ShardField, ShardRange)>) -> Result<(), String> {
    let Expr::Call(call) = expr else {
        let kind = kind(expr);
        return Err(format!(
            "unexpected expression kind {kind}; expected shardRange() call or || operator"
        ));
    };
    match (&*call.func_name, &*call.args) {
        (operators::LOGICAL_OR, [left, right]) => {
            collect(&left.expr, requirements)?;
            collect(&right.expr, requirements)
        }
        (SHARD_RANGE, _) => {
            requirements.push(requirement(call)?);
            Ok(())
        }
        (function, _) => Err(format!(
            "unsupported function {}; only shardRange() and || are allowed",
            quote(function)
        )),
    }
}

/// Returns the field and the range of a call. Like upstream, it ignores the target of a method call.
///
/// Upstream: `parseShardRangeCall`.
fn requirement(call: &CallExpr) -> Result<(ShardField, ShardRange), String> {
    let [field, start, end] = &*call.args else {
        let count = call.args.len();
        return Err(format!("shardRange() requires exactly 3 arguments, got {count}"));
    };
    let path =
        field_path(&field.expr).map_err(|error| format!("shardRange() first argument: {error}"))?;
    let field = ShardField::of_path(&path).ok_or_else(|| {
        format!(
            "unsupported field path {}; supported: object.metadata.uid, object.metadata.namespace",
            quote(&path)
        )
    })?;
    let start = hash_literal(&start.expr, "hexStart")?;
    let end = hash_literal(&end.expr, "hexEnd")?;
    let range = ShardRange::new(start, end).ok_or_else(|| {
        format!("shard range start 0x{start:016x} must be less than end 0x{end:016x}")
    })?;
    Ok((field, range))
}

/// Returns the dotted path of a chain of selections.
///
/// Upstream: `extractFieldPath`.
fn field_path(expr: &Expr) -> Result<String, String> {
    match expr {
        Expr::Ident(name) => Ok(name.clone()),
        Expr::Select(select) => {
            Ok(format!("{}.{}", field_path(&select.operand.expr)?, select.field))
        }
        other => Err(format!(
            "expected field path (e.g. object.metadata.uid), got expression kind {}",
            kind(other)
        )),
    }
}

/// Returns the number of a string such as `'0x00000000000000ff'`. `name` is the name of the argument, for errors.
///
/// Upstream: `extractHexLiteral`.
fn hash_literal(expr: &Expr, name: &str) -> Result<u128, String> {
    let Expr::Literal(literal) = expr else {
        let kind = kind(expr);
        return Err(format!(
            "{name} must be a string literal (e.g. '0xff'), got expression kind {kind}"
        ));
    };
    let LiteralValue::String(text) = literal else {
        let found = go_type(literal);
        return Err(format!("{name} must be a string literal, got {found}"));
    };
    let text = text.inner();
    let Some(digits) = text.strip_prefix("0x") else {
        return Err(format!("{name} must have '0x' prefix, got {}", quote(text)));
    };
    if digits.is_empty() {
        return Err(format!("{name}: hex value is required after '0x'"));
    }
    if digits.len() > 17 {
        let (count, digits) = (digits.len(), quote(digits));
        return Err(format!("{name}: hex value too long ({count} chars, max 17): {digits}"));
    }
    if let Some(other) = digits.chars().find(|c| !matches!(c, '0'..='9' | 'a'..='f')) {
        let (other, text) = (quote(other.encode_utf8(&mut [0; 4])), quote(text));
        return Err(format!("{name}: invalid hex character {other} in {text}"));
    }
    match digits.len() {
        17 if text == HASH_SPACE_TEXT => Ok(HASH_SPACE),
        17 => Err(format!(
            "{name}: 17-digit hex value must be '{HASH_SPACE_TEXT}' (2^64), got {}",
            quote(text)
        )),
        16 => u128::from_str_radix(digits, 16).map_err(|error| format!("{name}: {error}")),
        _ => Err(format!(
            "{name} must be a 0x-prefixed 16-digit hex value, got {} (did you mean {}?)",
            quote(text),
            quote(&format!("0x{digits:0>16}"))
        )),
    }
}

/// Returns the number of an expression's kind, which upstream's messages have.
///
/// Upstream: cel-go's `ast.ExprKind`.
fn kind(expr: &Expr) -> u8 {
    match expr {
        Expr::Unspecified => 0,
        Expr::Call(_) => 1,
        Expr::Comprehension(_) => 2,
        Expr::Ident(_) => 3,
        Expr::List(_) => 4,
        Expr::Literal(_) => 5,
        Expr::Map(_) => 6,
        Expr::Select(_) => 7,
        Expr::Struct(_) => 8,
    }
}

/// Returns the name of the Go type of a literal's value.
fn go_type(literal: &LiteralValue) -> &'static str {
    match literal {
        LiteralValue::Boolean(_) => "bool",
        LiteralValue::Bytes(_) => "[]uint8",
        LiteralValue::Double(_) => "float64",
        LiteralValue::Int(_) => "int64",
        LiteralValue::Null => "structpb.NullValue",
        LiteralValue::String(_) => "string",
        LiteralValue::UInt(_) => "uint64",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HALF: &str = "'0x0000000000000000', '0x8000000000000000'";
    const REST: &str = "'0x8000000000000000', '0x10000000000000000'";

    fn of_uid(start: &str, end: &str) -> String {
        format!("shardRange(object.metadata.uid, {start}, {end})")
    }

    #[test]
    fn selectors_are_read_in_every_form() {
        let half = format!("shardRange(object.metadata.uid, {HALF})");
        let rest = format!("shardRange(object.metadata.uid, {REST})");
        let both = format!("{half} || {rest}");
        let (zero, middle) = ("'0x0000000000000000'", "'0x8000000000000000'");
        for (text, want) in [
            (half.clone(), &half),
            (both.clone(), &both),
            (format!("  {}\n", half.replace(' ', "")), &half),
            (half.replace('\'', "\""), &half),
            (format!("(({half}) || ({rest}))"), &both),
            (of_uid(&format!("''{zero}''"), &format!("r{middle}")), &half),
            (of_uid(zero, "'\\x30x8000000000000000'"), &half),
            // Upstream ignores the target.
            (format!("any.{half}"), &half),
        ] {
            let read = parse(&text).map(|selector| selector.to_string());
            assert_eq!(read.as_ref(), Ok(want), "{text}");
        }
    }

    #[test]
    fn invalid_selectors_are_refused_with_upstreams_messages() {
        let empty = "empty shard selector is not allowed; omit the parameter for unfiltered lists";
        let unexpected = |kind: u8| {
            format!("unexpected expression kind {kind}; expected shardRange() call or || operator")
        };
        let unsupported = |function: &str| {
            format!("unsupported function \"{function}\"; only shardRange() and || are allowed")
        };
        let half = of_uid("'0x0000000000000000'", "'0x8000000000000000'");
        for (text, error) in [
            ("", empty.to_owned()),
            (" \t", empty.to_owned()),
            ("a", unexpected(3)),
            ("'a'", unexpected(5)),
            ("a.b", unexpected(7)),
            ("[1]", unexpected(4)),
            ("{}", unexpected(6)),
            ("has(a.b)", unsupported("has")),
            ("a.exists(b, true)", unsupported("exists")),
            ("!a", unsupported("!_")),
            ("a > '0x0'", unsupported("_>_")),
            (&format!("{half} && {half}"), unsupported("_&&_")),
            (&format!("{half} || a"), unexpected(3)),
            ("shardRange(a, b)", "shardRange() requires exactly 3 arguments, got 2".to_owned()),
            (
                &half.replace("uid", "name"),
                "unsupported field path \"object.metadata.name\"; \
                 supported: object.metadata.uid, object.metadata.namespace"
                    .to_owned(),
            ),
            (
                &half.replace("object.metadata.uid", "f()"),
                "shardRange() first argument: \
                 expected field path (e.g. object.metadata.uid), got expression kind 1"
                    .to_owned(),
            ),
            (
                &format!("{half} || {}", half.replace("uid", "namespace")),
                "all shard ranges must use the same field, \
                 got \"object.metadata.uid\" and \"object.metadata.namespace\""
                    .to_owned(),
            ),
            ("a.?b", "CEL parse error: unsupported syntax '.?'".to_owned()),
        ] {
            assert_eq!(parse(text), Err(error), "{text}");
        }
        for text in ["shardRange(", "||", "a b", "'a"] {
            let error = parse(text).expect_err(text);
            assert!(error.starts_with("CEL parse error: Syntax error: "), "{text}: {error}");
        }
    }

    #[test]
    fn invalid_bounds_are_refused_with_upstreams_messages() {
        for (bound, error) in [
            ("a", " must be a string literal (e.g. '0xff'), got expression kind 3"),
            ("1", " must be a string literal, got int64"),
            ("1u", " must be a string literal, got uint64"),
            ("1.5", " must be a string literal, got float64"),
            ("true", " must be a string literal, got bool"),
            ("b'0x0'", " must be a string literal, got []uint8"),
            ("null", " must be a string literal, got structpb.NullValue"),
            ("'00'", " must have '0x' prefix, got \"00\""),
            ("'0x'", ": hex value is required after '0x'"),
            (
                "'0x000000000000000000'",
                ": hex value too long (18 chars, max 17): \"000000000000000000\"",
            ),
            ("'0x0G'", ": invalid hex character \"G\" in \"0x0G\""),
            (
                "'0x20000000000000000'",
                ": 17-digit hex value must be '0x10000000000000000' (2^64), got \"0x20000000000000000\"",
            ),
            (
                "'0xf'",
                " must be a 0x-prefixed 16-digit hex value, got \"0xf\" (did you mean \"0x000000000000000f\"?)",
            ),
        ] {
            let middle = "'0x8000000000000000'";
            assert_eq!(parse(&of_uid(bound, middle)), Err(format!("hexStart{error}")), "{bound}");
            assert_eq!(parse(&of_uid(middle, bound)), Err(format!("hexEnd{error}")), "{bound}");
        }
        for (start, end) in [
            ("0x8000000000000000", "0x8000000000000000"),
            ("0xffffffffffffffff", "0x0000000000000000"),
            ("0x10000000000000000", "0x8000000000000000"),
        ] {
            let error = format!("shard range start {start} must be less than end {end}");
            let text = of_uid(&format!("'{start}'"), &format!("'{end}'"));
            assert_eq!(parse(&text), Err(error), "{text}");
        }
    }
}
