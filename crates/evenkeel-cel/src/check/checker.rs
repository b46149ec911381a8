//! Types of an expression's parts, and the errors in them.
//!
//! Upstream: cel-go's `checker/checker.go`. Its order of steps decides what type variables stand for.

use std::collections::HashMap;

use cel::common::ast::{
    ComprehensionExpr, EntryExpr, Expr, IdedEntryExpr, ListExpr, LiteralValue, MapEntryExpr,
    SelectExpr, StructExpr,
};
use cel::parser::Expression;

use super::types::{Fields, Object, Type};
use super::unify::{Substitution, most_general};
use super::{Checked, Resolved, Variable};
use crate::Program;
use crate::report::Found;

/// State of a check.
pub(super) struct Checker<'c, 'p> {
    pub(super) program: &'p Program,
    pub(super) variables: &'c [Variable],
    /// Variables of macros, the innermost last.
    pub(super) locals: Vec<(&'p str, Type)>,
    pub(super) types: HashMap<u64, Type>,
    pub(super) calls: HashMap<u64, Resolved>,
    pub(super) known: Substitution,
    pub(super) found: &'c mut Found,
}

/// Determines the types of all parts of an expression, and notes what is wrong.
pub(super) fn check<'p>(
    program: &'p Program,
    variables: &[Variable],
    found: &mut Found,
) -> Checked<'p> {
    let (types, calls) = (HashMap::new(), HashMap::new());
    let (locals, known) = (Vec::new(), Substitution::default());
    let mut checker = Checker { program, variables, locals, types, calls, known, found };
    checker.expression(program.expression());
    let Checker { types, calls, known, .. } = checker;
    let types = types.into_iter().map(|(id, kind)| (id, known.settle(&kind).bounded())).collect();
    Checked { program, types, calls }
}

impl<'p> Checker<'_, 'p> {
    pub(super) fn report(&mut self, id: u64, what: String) {
        self.found.add(|| self.program.offset(id), what);
    }

    pub(super) fn mismatch(&mut self, id: u64, expected: &Type, actual: &Type) {
        self.report(id, format!("expected type '{expected}' but found '{actual}'"));
    }

    /// Reports a name that nothing has.
    pub(super) fn undeclared(&mut self, id: u64, name: &str) {
        self.report(id, format!("undeclared reference to '{name}' (in container '')"));
    }

    pub(super) fn set(&mut self, id: u64, kind: Type) {
        self.types.insert(id, kind.bounded());
    }

    pub(super) fn get(&self, id: u64) -> Type {
        self.types.get(&id).cloned().unwrap_or(Type::Error)
    }

    pub(super) fn expression(&mut self, e: &'p Expression) {
        match &e.expr {
            Expr::Literal(value) => self.set(e.id, literal(value)),
            Expr::Ident(name) => self.ident(e.id, name),
            Expr::Select(select) => self.select(e.id, select),
            Expr::Call(call) => self.call(e.id, call),
            Expr::List(list) => self.list(e.id, list),
            Expr::Map(map) => self.map(e.id, &map.entries),
            Expr::Struct(made) => self.made(e.id, made),
            Expr::Comprehension(comprehension) => self.comprehension(e.id, comprehension),
            Expr::Unspecified => self.report(e.id, "unexpected unspecified type: ".to_owned()),
        }
    }

    fn ident(&mut self, id: u64, name: &str) {
        match self.simple(name) {
            Some(kind) => self.set(id, kind),
            None => {
                self.set(id, Type::Error);
                self.undeclared(id, name);
            }
        }
    }

    fn select(&mut self, id: u64, select: &'p SelectExpr) {
        if !select.test
            && let Some(kind) = self.qualified(select)
        {
            return self.set(id, kind);
        }
        let kind = self.field(id, &select.operand, &select.field, false);
        let kind = if select.test { Type::Bool } else { kind };
        let kind = self.known.resolve(&kind);
        self.set(id, kind);
    }

    /// Checks the selection of a field, and returns its type.
    ///
    /// Upstream: `checkSelectField`.
    pub(super) fn field(
        &mut self,
        id: u64,
        operand: &'p Expression,
        name: &str,
        is_optional: bool,
    ) -> Type {
        self.expression(operand);
        let of = self.known.resolve(&self.get(operand.id));
        let (target, is_optional) = match of {
            Type::Optional(of) => ((*of).clone(), true),
            of => (of, is_optional),
        };
        let kind = match &target {
            Type::Map(_, value) => (**value).clone(),
            Type::Object(object) => self.field_of(id, object, name),
            Type::Library(library) if super::idents::is_struct(library) => {
                self.report(id, format!("unexpected failed resolution of '{library}'"));
                Type::Error
            }
            Type::Variable(_) => {
                self.known.is_assignable(&Type::Dyn, &target);
                Type::Dyn
            }
            Type::Dyn | Type::Any | Type::Error => Type::Dyn,
            other => {
                self.report(id, format!("type '{other}' does not support field selection"));
                Type::Dyn
            }
        };
        if is_optional { Type::optional(kind) } else { kind }
    }

    /// Returns the type of an object's field.
    fn field_of(&mut self, id: u64, object: &Object, name: &str) -> Type {
        match &object.fields {
            Fields::Any => Type::Dyn,
            Fields::JsonPatch if ["op", "from", "path"].contains(&name) => Type::Str,
            Fields::JsonPatch => Type::Dyn,
            Fields::Declared(fields) => {
                let escaped = || fields.get(format!("__{name}__").as_str());
                let field = fields
                    .get(name)
                    .or_else(|| if crate::names::is_reserved(name) { escaped() } else { None });
                match field {
                    Some(field) => field.kind.named(&format!("{}.{name}", object.name)),
                    None => {
                        self.report(id, format!("undefined field '{name}'"));
                        Type::Error
                    }
                }
            }
        }
    }

    fn list(&mut self, id: u64, list: &'p ListExpr) {
        let mut kind: Option<Type> = None;
        for (i, element) in list.elements.iter().enumerate() {
            self.expression(element);
            let mut one = self.get(element.id);
            if list.optional_indices.contains(&i) {
                one = self.present(element.id, one);
            }
            kind = Some(self.joined(kind, one));
        }
        let kind = kind.unwrap_or_else(|| self.known.fresh());
        self.set(id, Type::list(kind));
    }

    /// Returns the type of the value of an optional element.
    fn present(&mut self, id: u64, kind: Type) -> Type {
        match kind {
            Type::Optional(of) => (*of).clone(),
            kind @ (Type::Dyn | Type::Any) => kind,
            other => {
                self.mismatch(id, &Type::optional(other.clone()), &other);
                other
            }
        }
    }

    /// Returns the type that elements of two types have in common.
    fn joined(&mut self, previous: Option<Type>, current: Type) -> Type {
        match previous {
            None => current,
            Some(previous) if self.known.is_assignable(&previous, &current) => {
                most_general(&previous, &current)
            }
            Some(_) => Type::Dyn,
        }
    }

    fn map(&mut self, id: u64, entries: &'p [IdedEntryExpr]) {
        let (mut key_kind, mut value_kind): (Option<Type>, Option<Type>) = (None, None);
        for entry in entries {
            let EntryExpr::MapEntry(MapEntryExpr { key, value, optional }) = &entry.expr else {
                continue;
            };
            self.expression(key);
            let kind = self.get(key.id);
            key_kind = Some(self.joined(key_kind, kind));
            self.expression(value);
            let mut kind = self.get(value.id);
            if *optional {
                kind = self.present(value.id, kind);
            }
            value_kind = Some(self.joined(value_kind, kind));
        }
        let kind = match (key_kind, value_kind) {
            (Some(key), Some(value)) => Type::map(key, value),
            _ => Type::map(self.known.fresh(), self.known.fresh()),
        };
        self.set(id, kind);
    }

    fn made(&mut self, id: u64, made: &'p StructExpr) {
        let Some(of) = self.struct_type(&made.type_name) else {
            self.undeclared(id, &made.type_name);
            return self.set(id, Type::Error);
        };
        let of = match of {
            of @ (Type::Object(_) | Type::Error) => of,
            other => {
                let name = other.runtime_name();
                self.report(id, format!("'{name}' is not a message type"));
                Type::Error
            }
        };
        self.set(id, of.clone());
        for entry in &made.entries {
            let EntryExpr::StructField(field) = &entry.expr else { continue };
            self.expression(&field.value);
            let wanted = match &of {
                Type::Object(object) => self.field_of(entry.id, object, &field.field),
                _ => Type::Error,
            };
            let mut kind = self.get(field.value.id);
            if field.optional {
                kind = self.present(field.value.id, kind);
            }
            if !self.known.is_assignable(&wanted, &kind) {
                let name = &field.field;
                let what = format!(
                    "expected type of field '{name}' is '{wanted}' but provided type is '{kind}'"
                );
                self.report(entry.id, what);
            }
        }
    }

    fn comprehension(&mut self, id: u64, c: &'p ComprehensionExpr) {
        self.expression(&c.iter_range);
        self.expression(&c.accu_init);
        let range = self.known.resolve(&self.get(c.iter_range.id));
        let accumulator = self.get(c.accu_init.id);
        let depth = self.locals.len();
        self.locals.push((&c.accu_var, accumulator.clone()));
        let (first, second) = match &range {
            Type::List(of) if c.iter_var2.is_some() => (Type::Int, (**of).clone()),
            Type::List(of) => ((**of).clone(), Type::Dyn),
            Type::Map(key, value) => ((**key).clone(), (**value).clone()),
            Type::Dyn | Type::Error | Type::Variable(_) => {
                self.known.is_assignable(&Type::Dyn, &range);
                (Type::Dyn, Type::Dyn)
            }
            other => {
                let what = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                self.report(c.iter_range.id, what);
                (Type::Error, Type::Error)
            }
        };
        self.locals.push((&c.iter_var, first));
        if let Some(name) = &c.iter_var2 {
            self.locals.push((name, second));
        }
        self.expression(&c.loop_cond);
        self.asserted(&c.loop_cond, &Type::Bool);
        self.expression(&c.loop_step);
        self.asserted(&c.loop_step, &accumulator);
        self.locals.truncate(depth + 1);
        self.expression(&c.result);
        self.locals.truncate(depth);
        let kind = self.known.resolve(&self.get(c.result.id));
        self.set(id, kind);
    }

    fn asserted(&mut self, e: &Expression, kind: &Type) {
        let found = self.get(e.id);
        if !self.known.is_assignable(kind, &found) {
            self.mismatch(e.id, kind, &found);
        }
    }
}

fn literal(literal: &LiteralValue) -> Type {
    match literal {
        LiteralValue::Boolean(_) => Type::Bool,
        LiteralValue::Bytes(_) => Type::Bytes,
        LiteralValue::Double(_) => Type::Double,
        LiteralValue::Int(_) => Type::Int,
        LiteralValue::Null => Type::Null,
        LiteralValue::String(_) => Type::Str,
        LiteralValue::UInt(_) => Type::Uint,
    }
}
