//! Finds mutants in a source file, and plants them.
//!
//! A mutant is a set of insertions and replacements. They never copy an operand, so the file grows with the number of its
//! mutants alone, and every comment and line stays where it is.

use proc_macro2::Span;
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};
use syn::{
    Arm, BinOp, Block, Expr, ImplItemFn, ItemConst, ItemFn, ItemMod, ItemStatic, Pat, ReturnType,
    Signature, Stmt, TraitItemFn, Type, UnOp, spanned::Spanned, visit::Visit,
};

/// Methods whose closure decides: its result is negated.
const PREDICATES: [&str; 13] = [
    "filter",
    "any",
    "all",
    "find",
    "retain",
    "position",
    "take_while",
    "skip_while",
    "is_some_and",
    "is_none_or",
    "partition",
    "extract_if",
    "is_ok_and",
];

/// A change of one place of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mutant {
    /// Its place in [`Found::mutants`], from 0.
    pub index: usize,
    /// The line in the file, from 1.
    pub line: usize,
    /// The function around it.
    pub function: String,
    /// What it changes, such as `< to <=`.
    pub change: String,
    /// The bytes that it wraps.
    pub range: Range<usize>,
}

/// Text to insert at a byte, or in place of bytes.
#[derive(Debug)]
struct Edit {
    range: Range<usize>,
    /// `{}` stands for the mutant's number.
    text: &'static str,
    /// Of several insertions at one byte, those with a lower rank come first.
    rank: (i8, i64),
    mutant: usize,
}

/// The mutants of a file.
#[derive(Debug, Default)]
pub struct Found {
    pub mutants: Vec<Mutant>,
    edits: Vec<Edit>,
}

/// A file with its mutants planted.
pub struct Planted {
    pub text: String,
    /// The bytes of the new text that each mutant wraps, with its index.
    pub ranges: Vec<(Range<usize>, usize)>,
}

impl Found {
    /// Returns the file with its mutants but for those in `without`. Mutant number `first + index` is the one with that index.
    pub fn plant(&self, source: &str, first: u32, without: &BTreeSet<usize>) -> Planted {
        let mut edits: Vec<&Edit> =
            self.edits.iter().filter(|edit| !without.contains(&edit.mutant)).collect();
        edits.sort_by_key(|edit| (edit.range.start, edit.rank, edit.range.end));
        let mut text = String::with_capacity(source.len() * 2);
        let mut at = 0;
        let mut ends: Vec<(usize, Range<usize>)> = Vec::new();
        for edit in edits {
            text.push_str(&source[at..edit.range.start]);
            let start = text.len();
            let number = first as usize + edit.mutant;
            text.push_str(&edit.text.replace("{}", &number.to_string()));
            ends.push((edit.mutant, start..text.len()));
            at = edit.range.end;
        }
        text.push_str(&source[at..]);
        let mut ranges: BTreeMap<usize, Range<usize>> = BTreeMap::new();
        for (mutant, range) in ends {
            let whole = ranges.entry(mutant).or_insert_with(|| range.clone());
            whole.start = whole.start.min(range.start);
            whole.end = whole.end.max(range.end);
        }
        Planted {
            text,
            ranges: ranges.into_iter().map(|(mutant, range)| (range, mutant)).collect(),
        }
    }
}

/// Finds the mutants of a file.
///
/// # Errors
/// If it is not Rust.
pub fn find(source: &str) -> syn::Result<Found> {
    let file = syn::parse_file(source)?;
    let mut finder = Finder::default();
    finder.visit_file(&file);
    Ok(finder.found)
}

#[derive(Default)]
struct Finder {
    found: Found,
    /// The functions around, from the outermost.
    function: Vec<String>,
}

impl Finder {
    fn mutant(&mut self, span: Span, change: &str) -> usize {
        let index = self.found.mutants.len();
        let line = span.start().line;
        let function = self.function.join("::");
        self.found.mutants.push(Mutant {
            index,
            line,
            function,
            change: change.to_owned(),
            range: span.byte_range(),
        });
        index
    }

    /// Inserts `open` before and `close` after a range. What encloses opens earlier and closes later.
    fn wrap(
        &mut self,
        mutant: usize,
        range: Range<usize>,
        open: &'static str,
        close: &'static str,
    ) {
        let length = i64::try_from(range.len()).unwrap_or(i64::MAX);
        let order = i64::try_from(mutant).unwrap_or(i64::MAX);
        // Of two with the same range, the later mutant is the outer one.
        self.insert(mutant, range.start, open, (1, -(length * 1_000_000 + order)));
        self.insert(mutant, range.end, close, (0, length * 1_000_000 + order));
    }

    fn insert(&mut self, mutant: usize, at: usize, text: &'static str, rank: (i8, i64)) {
        self.found.edits.push(Edit { range: at..at, text, rank, mutant });
    }

    fn replace(&mut self, mutant: usize, range: Range<usize>, text: &'static str) {
        self.found.edits.push(Edit { range, text, rank: (2, 0), mutant });
    }

    fn negate(&mut self, expression: &Expr) {
        let mutant = self.mutant(expression.span(), "condition negated");
        self.wrap(mutant, expression.span().byte_range(), "((", ") ^ crate::planted::is({}))");
    }

    /// Negates a condition that no other mutant negates.
    fn condition(&mut self, expression: &Expr) {
        match expression {
            Expr::Binary(binary) if matches!(binary.op, BinOp::And(_) | BinOp::Or(_)) => {
                self.condition(&binary.left);
                self.condition(&binary.right);
            }
            Expr::Paren(inner) => self.condition(&inner.expr),
            Expr::MethodCall(_)
            | Expr::Call(_)
            | Expr::Path(_)
            | Expr::Field(_)
            | Expr::Macro(_) => {
                self.negate(expression);
            }
            _ => {}
        }
    }

    fn binary(&mut self, binary: &syn::ExprBinary) {
        let whole = binary.span();
        let operator = binary.op.span().byte_range();
        let call = |finder: &mut Self, change: &str, open: &'static str| {
            let mutant = finder.mutant(whole, change);
            finder.wrap(mutant, whole.byte_range(), open, "))");
            finder.replace(mutant, operator.clone(), "), (");
        };
        let compare = |finder: &mut Self, change: &str, open: &'static str| {
            let mutant = finder.mutant(whole, change);
            finder.wrap(mutant, whole.byte_range(), open, "))");
            finder.replace(mutant, operator.clone(), "), &(");
        };
        let negate = |finder: &mut Self, change: &str| {
            let mutant = finder.mutant(whole, change);
            finder.wrap(mutant, whole.byte_range(), "((", ") ^ crate::planted::is({}))");
        };
        match binary.op {
            BinOp::Eq(_) => negate(self, "== to !="),
            BinOp::Ne(_) => negate(self, "!= to =="),
            BinOp::Lt(_) => {
                compare(self, "< to <=", "crate::planted::less({}, &(");
                negate(self, "< to >=");
            }
            BinOp::Le(_) => {
                compare(self, "<= to <", "crate::planted::less_or_equal({}, &(");
                negate(self, "<= to >");
            }
            BinOp::Gt(_) => {
                compare(self, "> to >=", "crate::planted::greater({}, &(");
                negate(self, "> to <=");
            }
            BinOp::Ge(_) => {
                compare(self, ">= to >", "crate::planted::greater_or_equal({}, &(");
                negate(self, ">= to <");
            }
            BinOp::Add(_) => call(self, "+ to -", "crate::planted::add({}, ("),
            BinOp::Sub(_) => call(self, "- to +", "crate::planted::subtract({}, ("),
            BinOp::Mul(_) => call(self, "* to /", "crate::planted::multiply({}, ("),
            BinOp::Div(_) => call(self, "/ to *", "crate::planted::divide({}, ("),
            BinOp::And(_) if !has_let(&binary.left) && !has_let(&binary.right) => {
                let mutant = self.mutant(whole, "&& to ||");
                self.wrap(
                    mutant,
                    whole.byte_range(),
                    "(if (",
                    " } else { crate::planted::is({}) })",
                );
                self.replace(mutant, operator, ") != crate::planted::is({}) {");
            }
            BinOp::Or(_) => {
                let mutant = self.mutant(whole, "|| to &&");
                self.wrap(
                    mutant,
                    whole.byte_range(),
                    "(if (",
                    " } else { !crate::planted::is({}) })",
                );
                self.replace(mutant, operator, ") == crate::planted::is({}) {");
            }
            _ => {}
        }
    }

    /// Calls of `min`, `max`, `any` and predicates.
    fn method(&mut self, call: &syn::ExprMethodCall) {
        let name = call.method.to_string();
        let dot = call.dot_token.span.byte_range();
        let open = call.paren_token.span.open().byte_range();
        let swap = match (name.as_str(), call.args.len()) {
            ("min", 1) => Some(("min to max", "crate::planted::min({}, (")),
            ("max", 1) => Some(("max to min", "crate::planted::max({}, (")),
            _ => None,
        };
        if let Some((change, before)) = swap {
            let mutant = self.mutant(call.span(), change);
            self.wrap(mutant, call.span().byte_range(), before, "");
            self.replace(mutant, dot.start..open.end, "), ");
        }
        if PREDICATES.contains(&name.as_str())
            && let Some(Expr::Closure(closure)) = call.args.last()
        {
            self.condition(&closure.body);
        }
    }

    /// Replaces the body of a function by a constant.
    fn body(&mut self, signature: &Signature, block: &Block) {
        if signature.constness.is_some() || block.stmts.is_empty() || signature.ident == "main" {
            return;
        }
        let constant = match &block.stmts[..] {
            [Stmt::Expr(Expr::Lit(_) | Expr::Path(_), None)] => return,
            [Stmt::Expr(Expr::Call(call), None)] => call.args.is_empty(),
            _ => false,
        };
        if constant {
            return;
        }
        let at = block.brace_token.span.open().byte_range().end;
        for (value, change) in constants(&signature.output) {
            let mutant = self.mutant(signature.ident.span(), change);
            self.insert(mutant, at, value, (3, i64::try_from(mutant).unwrap_or(i64::MAX)));
        }
    }

    fn within(&mut self, name: String, visit: impl FnOnce(&mut Self)) {
        self.function.push(name);
        visit(self);
        self.function.pop();
    }
}

/// Returns statements that return constants of this type, and what to call them.
fn constants(output: &ReturnType) -> Vec<(&'static str, &'static str)> {
    let ReturnType::Type(_, output) = output else {
        return vec![(" if crate::planted::is({}) { return; }", "does nothing")];
    };
    match &**output {
        Type::Tuple(tuple) if tuple.elems.is_empty() => {
            vec![(" if crate::planted::is({}) { return; }", "does nothing")]
        }
        Type::Reference(reference) => match &*reference.elem {
            Type::Path(path) if path.path.is_ident("str") => {
                vec![(" if crate::planted::is({}) { return \"\"; }", "returns an empty string")]
            }
            _ => Vec::new(),
        },
        Type::Path(path) => {
            let Some(last) = path.path.segments.last() else { return Vec::new() };
            let argument = || match &last.arguments {
                syn::PathArguments::AngleBracketed(arguments) => match arguments.args.first() {
                    Some(syn::GenericArgument::Type(ty)) => Some(ty.clone()),
                    _ => None,
                },
                _ => None,
            };
            match last.ident.to_string().as_str() {
                "bool" => vec![
                    (" if crate::planted::is({}) { return true; }", "returns true"),
                    (" if crate::planted::is({}) { return false; }", "returns false"),
                ],
                "Option" => vec![(" if crate::planted::is({}) { return None; }", "returns None")],
                "String" => {
                    vec![(
                        " if crate::planted::is({}) { return String::new(); }",
                        "returns an empty string",
                    )]
                }
                "Vec" => {
                    vec![(" if crate::planted::is({}) { return Vec::new(); }", "returns nothing")]
                }
                "BTreeMap" | "BTreeSet" | "HashMap" | "HashSet" => {
                    vec![(
                        " if crate::planted::is({}) { return Default::default(); }",
                        "returns nothing",
                    )]
                }
                "i32" | "i64" | "u32" | "u64" | "usize" => vec![
                    (" if crate::planted::is({}) { return 0; }", "returns 0"),
                    (" if crate::planted::is({}) { return 1; }", "returns 1"),
                ],
                "Result" => match argument() {
                    Some(Type::Tuple(tuple)) if tuple.elems.is_empty() => {
                        vec![(" if crate::planted::is({}) { return Ok(()); }", "returns Ok")]
                    }
                    Some(Type::Path(path)) if path.path.is_ident("bool") => vec![
                        (" if crate::planted::is({}) { return Ok(true); }", "returns Ok(true)"),
                        (" if crate::planted::is({}) { return Ok(false); }", "returns Ok(false)"),
                    ],
                    _ => Vec::new(),
                },
                _ => Vec::new(),
            }
        }
        _ => Vec::new(),
    }
}

fn has_let(expression: &Expr) -> bool {
    match expression {
        Expr::Let(_) => true,
        Expr::Binary(binary) if matches!(binary.op, BinOp::And(_)) => {
            has_let(&binary.left) || has_let(&binary.right)
        }
        _ => false,
    }
}

fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let path = attribute.path();
        if path.is_ident("cfg") {
            return attribute.parse_args::<syn::Ident>().is_ok_and(|ident| ident == "test");
        }
        path.segments.last().is_some_and(|segment| segment.ident == "test")
    })
}

impl<'ast> Visit<'ast> for Finder {
    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        if !is_test(&module.attrs) {
            syn::visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_fn(&mut self, function: &'ast ItemFn) {
        if is_test(&function.attrs) || function.sig.constness.is_some() {
            return;
        }
        self.within(function.sig.ident.to_string(), |finder| {
            finder.body(&function.sig, &function.block);
            syn::visit::visit_item_fn(finder, function);
        });
    }

    fn visit_impl_item_fn(&mut self, function: &'ast ImplItemFn) {
        if is_test(&function.attrs) || function.sig.constness.is_some() {
            return;
        }
        self.within(function.sig.ident.to_string(), |finder| {
            finder.body(&function.sig, &function.block);
            syn::visit::visit_impl_item_fn(finder, function);
        });
    }

    fn visit_trait_item_fn(&mut self, function: &'ast TraitItemFn) {
        self.within(function.sig.ident.to_string(), |finder| {
            if let Some(block) = &function.default {
                finder.body(&function.sig, block);
            }
            syn::visit::visit_trait_item_fn(finder, function);
        });
    }

    // The compiler evaluates these, and cannot read an environment.
    fn visit_item_const(&mut self, _: &'ast ItemConst) {}
    fn visit_item_static(&mut self, _: &'ast ItemStatic) {}
    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}
    fn visit_trait_item_const(&mut self, _: &'ast syn::TraitItemConst) {}
    fn visit_expr_const(&mut self, _: &'ast syn::ExprConst) {}
    fn visit_type_array(&mut self, _: &'ast syn::TypeArray) {}
    fn visit_variant(&mut self, _: &'ast syn::Variant) {}
    fn visit_generic_argument(&mut self, _: &'ast syn::GenericArgument) {}
    fn visit_expr_repeat(&mut self, repeat: &'ast syn::ExprRepeat) {
        self.visit_expr(&repeat.expr);
    }

    fn visit_expr_binary(&mut self, binary: &'ast syn::ExprBinary) {
        self.binary(binary);
        syn::visit::visit_expr_binary(self, binary);
    }

    fn visit_expr_unary(&mut self, unary: &'ast syn::ExprUnary) {
        if matches!(unary.op, UnOp::Not(_)) {
            let mutant = self.mutant(unary.span(), "! dropped");
            self.wrap(mutant, unary.span().byte_range(), "((", ") ^ crate::planted::is({}))");
        }
        syn::visit::visit_expr_unary(self, unary);
    }

    fn visit_expr_if(&mut self, expression: &'ast syn::ExprIf) {
        self.condition(&expression.cond);
        syn::visit::visit_expr_if(self, expression);
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        self.method(call);
        syn::visit::visit_expr_method_call(self, call);
    }

    fn visit_expr_match(&mut self, expression: &'ast syn::ExprMatch) {
        // With an arm for everything else, another arm may be left out.
        let rest = expression.arms.iter().any(|arm| matches!(arm.pat, Pat::Wild(_)));
        for arm in &expression.arms {
            self.arm(arm, rest);
        }
        syn::visit::visit_expr_match(self, expression);
    }

    fn visit_stmt(&mut self, statement: &'ast Stmt) {
        if let Stmt::Expr(expression, Some(semicolon)) = statement {
            let wraps = matches!(expression, Expr::Assign(_) | Expr::MethodCall(_) | Expr::Call(_))
                || matches!(expression, Expr::Binary(binary) if is_compound(&binary.op));
            if wraps {
                let range = expression.span().byte_range().start..semicolon.span.byte_range().end;
                let mutant = self.mutant(expression.span(), "statement left out");
                self.wrap(mutant, range, "if !crate::planted::is({}) { ", " }");
            }
        }
        syn::visit::visit_stmt(self, statement);
    }
}

impl Finder {
    /// Leaves out an arm, if the match has another for its values.
    fn arm(&mut self, arm: &Arm, rest: bool) {
        match &arm.pat {
            Pat::Guard(guarded) => {
                self.condition(&guarded.guard);
                if !has_let(&guarded.guard) {
                    let mutant = self.mutant(arm.pat.span(), "arm left out");
                    let range = guarded.guard.span().byte_range();
                    self.wrap(mutant, range, "!crate::planted::is({}) && (", ")");
                }
            }
            pattern if rest && !matches!(pattern, Pat::Wild(_)) => {
                let mutant = self.mutant(pattern.span(), "arm left out");
                self.wrap(mutant, pattern.span().byte_range(), "", " if !crate::planted::is({})");
            }
            _ => {}
        }
    }
}

fn is_compound(operator: &BinOp) -> bool {
    matches!(
        operator,
        BinOp::AddAssign(_) | BinOp::SubAssign(_) | BinOp::MulAssign(_) | BinOp::BitOrAssign(_)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planted(source: &str) -> String {
        let found = find(source).expect("Rust");
        let planted = found.plant(source, 1, &BTreeSet::new());
        syn::parse_file(&planted.text).expect("still Rust");
        planted.text
    }

    #[test]
    fn operands_are_never_copied() {
        let text = planted(
            "fn f() -> u8 { if one == 1 && two < 2 || !three() { f(four + five * six) } else { 3 } }",
        );
        for operand in ["one", "two", "three()", "four", "five", "six"] {
            assert_eq!(text.matches(operand).count(), 1, "{operand} in {text}");
        }
    }

    #[test]
    fn mutants_say_where_they_are_and_what_they_change() {
        let found =
            find("struct S;\nimpl S {\n    fn f(&self) -> bool {\n        a < b\n    }\n}\n")
                .expect("Rust");
        let said: Vec<_> = found
            .mutants
            .iter()
            .map(|m| (m.line, m.function.as_str(), m.change.as_str()))
            .collect();
        assert_eq!(
            said,
            [
                (3, "f", "returns true"),
                (3, "f", "returns false"),
                (4, "f", "< to <="),
                (4, "f", "< to >=")
            ]
        );
    }

    #[test]
    fn what_the_compiler_evaluates_and_tests_have_none() {
        let source = "const A: usize = 1 + 2; static B: bool = 1 < 2; const fn f() -> bool { true && g() }\n\
                      #[cfg(test)] mod tests { fn f() { a == b; } }\n#[test] fn t() { a == b; }\n\
                      fn k() -> [u8; 1 + 2] { [0; 1 + 2] }";
        assert_eq!(find(source).expect("Rust").mutants, []);
    }

    #[test]
    fn chains_with_let_stay_chains() {
        let text = planted("fn f() { if let Some(x) = y && x.is_empty() && a == b { g(); } }");
        assert!(
            text.contains("if let Some(x) = y && ((x.is_empty()) ^ crate::planted::is("),
            "{text}"
        );
    }

    #[test]
    fn a_mutant_may_be_left_out() {
        let source = "fn f() { a = b == c; }";
        let found = find(source).expect("Rust");
        let all: BTreeSet<usize> = (0..found.mutants.len()).collect();
        assert_eq!(found.plant(source, 1, &all).text, source);
        assert_eq!(found.mutants.len(), 3, "{:?}", found.mutants);
    }
}
