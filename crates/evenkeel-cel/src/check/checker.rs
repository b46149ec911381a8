//! Type checker: infers the type of each node of an expression, and collects the type errors.
//!
//! Upstream: cel-go's `checker/checker.go`. The order of its steps determines which types the type variables are
//! bound to.

use std::collections::HashMap;

use cel::common::ast::{
    ComprehensionExpr, EntryExpr, Expr, IdedEntryExpr, ListExpr, LiteralValue, MapEntryExpr,
    SelectExpr, StructExpr,
};
use cel::parser::Expression;

use super::types::{Fields, Object, Type};
use super::unify::{Substitution, most_general};
use super::{Checked, ResolvedCall, Variable};
use crate::Program;
use crate::report::Errors;

/// State of a check.
pub(super) struct Checker<'c, 'p> {
    pub(super) program: &'p Program,
    pub(super) variables: &'c [Variable],
    /// Variables of macros, the innermost last.
    pub(super) locals: Vec<(&'p str, Type)>,
    /// Type of each checked node, by its id.
    pub(super) types: HashMap<u64, Type>,
    /// Matching overloads of each checked call, by its id.
    pub(super) calls: HashMap<u64, ResolvedCall>,
    /// Types that the type variables are bound to.
    pub(super) substitution: Substitution,
    pub(super) errors: &'c mut Errors,
}

/// Determines the types of all nodes of an expression. Adds type errors to `errors`.
pub(super) fn check<'p>(
    program: &'p Program,
    variables: &[Variable],
    errors: &mut Errors,
) -> Checked<'p> {
    let mut checker = Checker {
        program,
        variables,
        locals: Vec::new(),
        types: HashMap::new(),
        calls: HashMap::new(),
        substitution: Substitution::default(),
        errors,
    };
    checker.check_expression(program.expression());
    let Checker { types, calls, substitution, .. } = checker;
    let without_variables = |kind: Type| substitution.resolve_with_dyn(&kind).bounded();
    let types = types.into_iter().map(|(id, kind)| (id, without_variables(kind))).collect();
    Checked { program, types, calls }
}

impl<'p> Checker<'_, 'p> {
    /// Reports an error about the node with this id.
    pub(super) fn report(&mut self, id: u64, message: String) {
        self.errors.add(|| self.program.location(id), message);
    }

    pub(super) fn report_mismatch(&mut self, id: u64, expected: &Type, actual: &Type) {
        self.report(id, format!("expected type '{expected}' but found '{actual}'"));
    }

    /// Reports a name that refers to no variable, function or type.
    pub(super) fn report_undeclared(&mut self, id: u64, name: &str) {
        self.report(id, format!("undeclared reference to '{name}' (in container '')"));
    }

    pub(super) fn set_type(&mut self, id: u64, kind: Type) {
        self.types.insert(id, kind.bounded());
    }

    /// Returns the type of a node that was checked before.
    pub(super) fn type_of(&self, id: u64) -> Type {
        self.types.get(&id).cloned().unwrap_or(Type::Error)
    }

    /// Determines the types of an expression and its subexpressions.
    pub(super) fn check_expression(&mut self, expression: &'p Expression) {
        match &expression.expr {
            Expr::Literal(value) => self.set_type(expression.id, literal_type(value)),
            Expr::Ident(name) => self.check_ident(expression.id, name),
            Expr::Select(select) => self.check_select(expression.id, select),
            Expr::Call(call) => self.check_call(expression.id, call),
            Expr::List(list) => self.check_list(expression.id, list),
            Expr::Map(map) => self.check_map(expression.id, &map.entries),
            Expr::Struct(literal) => self.check_struct(expression.id, literal),
            Expr::Comprehension(comprehension) => {
                self.check_comprehension(expression.id, comprehension);
            }
            Expr::Unspecified => {
                self.report(expression.id, "unexpected unspecified type: ".to_owned());
            }
        }
    }

    fn check_ident(&mut self, id: u64, name: &str) {
        match self.simple_name_type(name) {
            Some(kind) => self.set_type(id, kind),
            None => {
                self.set_type(id, Type::Error);
                self.report_undeclared(id, name);
            }
        }
    }

    /// Checks a selection `a.b`, or the test `has(a.b)`.
    fn check_select(&mut self, id: u64, select: &'p SelectExpr) {
        if !select.test
            && let Some(kind) = self.qualified_name_type(select)
        {
            return self.set_type(id, kind);
        }
        let is_optional = false;
        let kind = self.check_select_field(id, &select.operand, &select.field, is_optional);
        let kind = if select.test { Type::Bool } else { kind };
        let kind = self.substitution.resolve(&kind);
        self.set_type(id, kind);
    }

    /// Checks the selection of a field, and returns its type. `is_optional` is true for `a.?b`.
    ///
    /// Upstream: `checkSelectField`.
    pub(super) fn check_select_field(
        &mut self,
        id: u64,
        operand: &'p Expression,
        name: &str,
        is_optional: bool,
    ) -> Type {
        self.check_expression(operand);
        let operand_kind = self.substitution.resolve(&self.type_of(operand.id));
        // A field of an optional value is optional, too.
        let (target, is_optional) = match operand_kind {
            Type::Optional(value) => ((*value).clone(), true),
            other => (other, is_optional),
        };
        let kind = match &target {
            Type::Map(_, value) => (**value).clone(),
            Type::Object(object) => self.field_type(id, object, name),
            Type::Library(library) if super::idents::is_struct(library) => {
                self.report(id, format!("unexpected failed resolution of '{library}'"));
                Type::Error
            }
            Type::Variable(_) => {
                // Binds the variable to `dyn`.
                self.substitution.unify(&Type::Dyn, &target);
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

    /// Returns the type of an object's field. Reports an unknown field.
    fn field_type(&mut self, id: u64, object: &Object, name: &str) -> Type {
        match &object.fields {
            Fields::Any => Type::Dyn,
            Fields::JsonPatch if ["op", "from", "path"].contains(&name) => Type::Str,
            Fields::JsonPatch => Type::Dyn,
            Fields::DeclType(fields) => {
                let mut field = fields.get(name);
                // A field whose name is a reserved word is declared with its escaped name. An expression can use both.
                if field.is_none() && crate::names::is_reserved(name) {
                    field = fields.get(format!("__{name}__").as_str());
                }
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

    fn check_list(&mut self, id: u64, list: &'p ListExpr) {
        let mut joined: Option<Type> = None;
        for (index, element) in list.elements.iter().enumerate() {
            self.check_expression(element);
            let mut kind = self.type_of(element.id);
            if list.optional_indices.contains(&index) {
                kind = self.unwrap_optional(element.id, kind);
            }
            joined = Some(self.join_types(joined, kind));
        }
        let joined = joined.unwrap_or_else(|| self.substitution.new_variable());
        self.set_type(id, Type::list(joined));
    }

    /// Returns the type of the value in an optional element such as `?x`. Reports an element that is not optional.
    fn unwrap_optional(&mut self, id: u64, kind: Type) -> Type {
        match kind {
            Type::Optional(value) => (*value).clone(),
            kind @ (Type::Dyn | Type::Any) => kind,
            other => {
                self.report_mismatch(id, &Type::optional(other.clone()), &other);
                other
            }
        }
    }

    /// Returns the type of a list with elements of two types: the more general one, or `dyn` if they do not unify.
    ///
    /// Upstream: `joinTypes`.
    fn join_types(&mut self, previous: Option<Type>, current: Type) -> Type {
        match previous {
            None => current,
            Some(previous) if self.substitution.unify(&previous, &current) => {
                most_general(&previous, &current)
            }
            Some(_) => Type::Dyn,
        }
    }

    fn check_map(&mut self, id: u64, entries: &'p [IdedEntryExpr]) {
        let (mut key_kind, mut value_kind): (Option<Type>, Option<Type>) = (None, None);
        for entry in entries {
            let EntryExpr::MapEntry(MapEntryExpr { key, value, optional }) = &entry.expr else {
                continue;
            };
            self.check_expression(key);
            let kind = self.type_of(key.id);
            key_kind = Some(self.join_types(key_kind, kind));
            self.check_expression(value);
            let mut kind = self.type_of(value.id);
            if *optional {
                kind = self.unwrap_optional(value.id, kind);
            }
            value_kind = Some(self.join_types(value_kind, kind));
        }
        let kind = match (key_kind, value_kind) {
            (Some(key), Some(value)) => Type::map(key, value),
            _ => Type::map(self.substitution.new_variable(), self.substitution.new_variable()),
        };
        self.set_type(id, kind);
    }

    /// Checks a struct literal such as `Object{spec: Object.spec{replicas: 1}}`.
    fn check_struct(&mut self, id: u64, literal: &'p StructExpr) {
        let Some(named) = self.struct_type(&literal.type_name) else {
            self.report_undeclared(id, &literal.type_name);
            return self.set_type(id, Type::Error);
        };
        let struct_kind = match named {
            kind @ (Type::Object(_) | Type::Error) => kind,
            other => {
                let name = other.runtime_name();
                self.report(id, format!("'{name}' is not a message type"));
                Type::Error
            }
        };
        self.set_type(id, struct_kind.clone());
        for entry in &literal.entries {
            let EntryExpr::StructField(field) = &entry.expr else { continue };
            self.check_expression(&field.value);
            let field_kind = match &struct_kind {
                Type::Object(object) => self.field_type(entry.id, object, &field.field),
                _ => Type::Error,
            };
            let mut value_kind = self.type_of(field.value.id);
            if field.optional {
                value_kind = self.unwrap_optional(field.value.id, value_kind);
            }
            if !self.substitution.unify(&field_kind, &value_kind) {
                let name = &field.field;
                let message = format!(
                    "expected type of field '{name}' is '{field_kind}' but provided type is '{value_kind}'"
                );
                self.report(entry.id, message);
            }
        }
    }

    fn check_comprehension(&mut self, id: u64, comprehension: &'p ComprehensionExpr) {
        self.check_expression(&comprehension.iter_range);
        self.check_expression(&comprehension.accu_init);
        let range = self.substitution.resolve(&self.type_of(comprehension.iter_range.id));
        let accumulator = self.type_of(comprehension.accu_init.id);
        let outer_locals = self.locals.len();
        self.locals.push((&comprehension.accu_var, accumulator.clone()));
        let (first, second) = match &range {
            Type::List(element) if comprehension.iter_var2.is_some() => {
                (Type::Int, (**element).clone())
            }
            Type::List(element) => ((**element).clone(), Type::Dyn),
            Type::Map(key, value) => ((**key).clone(), (**value).clone()),
            Type::Dyn | Type::Error | Type::Variable(_) => {
                // Binds a variable to `dyn`.
                self.substitution.unify(&Type::Dyn, &range);
                (Type::Dyn, Type::Dyn)
            }
            other => {
                let message = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                self.report(comprehension.iter_range.id, message);
                (Type::Error, Type::Error)
            }
        };
        self.locals.push((&comprehension.iter_var, first));
        if let Some(name) = &comprehension.iter_var2 {
            self.locals.push((name, second));
        }
        self.check_expression(&comprehension.loop_cond);
        self.assert_type(&comprehension.loop_cond, &Type::Bool);
        self.check_expression(&comprehension.loop_step);
        self.assert_type(&comprehension.loop_step, &accumulator);
        // The accumulator is in scope of the result, but the iteration variables are not.
        self.locals.truncate(outer_locals + 1);
        self.check_expression(&comprehension.result);
        self.locals.truncate(outer_locals);
        let kind = self.substitution.resolve(&self.type_of(comprehension.result.id));
        self.set_type(id, kind);
    }

    /// Reports an expression whose type does not unify with the expected one.
    ///
    /// Upstream: `assertType`.
    fn assert_type(&mut self, expression: &Expression, expected: &Type) {
        let actual = self.type_of(expression.id);
        if !self.substitution.unify(expected, &actual) {
            self.report_mismatch(expression.id, expected, &actual);
        }
    }
}

fn literal_type(literal: &LiteralValue) -> Type {
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
