//! Name resolution: the variables and types that the names in an expression refer to.
//!
//! Upstream: cel-go's `checker/env.go`.

use cel::common::ast::SelectExpr;

use super::checker::Checker;
use super::functions::{CIDR, IP};
use super::types::{Fields, Object, Type};
use crate::names::{qualified_name, without_dot};

/// Name of a type, and a constructor of the type.
type NamedType = (&'static str, fn() -> Type);

/// Types that an expression can refer to by name.
pub(crate) const TYPES: [NamedType; 13] = [
    ("bool", || Type::Bool),
    ("int", || Type::Int),
    ("uint", || Type::Uint),
    ("double", || Type::Double),
    ("string", || Type::Str),
    ("bytes", || Type::Bytes),
    ("list", || Type::list(Type::Dyn)),
    ("map", || Type::map(Type::Dyn, Type::Dyn)),
    ("null_type", || Type::Null),
    ("google.protobuf.Timestamp", || Type::Time),
    ("google.protobuf.Duration", || Type::Duration),
    ("optional_type", || Type::optional(Type::Dyn)),
    ("type", || Type::OfTypes(None)),
];

fn type_named(name: &str) -> Option<Type> {
    TYPES.iter().find(|(type_name, _)| *type_name == name).map(|(_, kind)| kind())
}

/// Returns whether cel-go treats a type of a library as a struct without fields. Selecting a field of such a type is a
/// different error than for other types.
pub(super) fn is_struct(library: &str) -> bool {
    library != IP && library != CIDR
}

impl<'p> Checker<'_, 'p> {
    /// Returns the type of the innermost macro variable of this name.
    fn local_type(&self, name: &str) -> Option<&Type> {
        self.locals.iter().rev().find(|(local, _)| *local == name).map(|(_, kind)| kind)
    }

    /// Returns the type of the variable or type that an unqualified name refers to. A name with a leading dot does not
    /// refer to a macro variable.
    pub(super) fn simple_name_type(&self, name: &str) -> Option<Type> {
        if let Some(kind) = self.local_type(name) {
            return Some(kind.clone());
        }
        self.global_type(without_dot(name))
    }

    /// Returns the type of a name that is not bound by a macro: the type of a variable, or the type of a type.
    fn global_type(&self, name: &str) -> Option<Type> {
        let variable = self.variables.iter().rev().find(|variable| variable.name == name);
        if let Some(variable) = variable {
            return Some(variable.kind.clone());
        }
        type_named(name).or_else(|| self.struct_type(name)).map(Type::of_type)
    }

    /// Returns the type of the variable or type that a selection such as `a.b` refers to by its qualified name;
    /// `None` if it selects a field.
    pub(super) fn qualified_name_type(&self, select: &'p SelectExpr) -> Option<Type> {
        let name = qualified_name(select)?;
        let root = name.split('.').find(|part| !part.is_empty())?;
        // A macro variable hides the qualified names that begin with its name.
        if !name.starts_with('.') && self.local_type(root).is_some() {
            return None;
        }
        self.global_type(without_dot(&name))
    }

    /// Returns the type that a struct literal with this type name creates.
    pub(super) fn struct_type(&self, name: &str) -> Option<Type> {
        let name = without_dot(name);
        let object = |fields| Some(Type::Object(Object { name: name.into(), fields }));
        if !self.program.extensions().patches {
            return type_named(name);
        }
        match name {
            "JSONPatch" => object(Fields::JsonPatch),
            "Object" => object(Fields::Any),
            _ if name.starts_with("Object.") => object(Fields::Any),
            _ => type_named(name),
        }
    }
}
