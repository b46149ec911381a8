//! What the names in an expression refer to.
//!
//! Upstream: cel-go's `checker/env.go`.

use cel::common::ast::SelectExpr;

use super::checker::Checker;
use super::functions::{CIDR, IP};
use super::types::{Fields, Object, Type};
use crate::names::{plain, spelled};

/// Name of a type, and the type that it names.
type NamedType = (&'static str, fn() -> Type);

/// Names of types, and the type that each names.
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
    TYPES.iter().find(|(known, _)| *known == name).map(|(_, kind)| kind())
}

/// Whether a type of a library has fields for cel-go, which finds none.
pub(super) fn is_struct(library: &str) -> bool {
    library != IP && library != CIDR
}

impl<'p> Checker<'_, 'p> {
    /// Returns the type of a variable of a macro.
    fn local(&self, name: &str) -> Option<&Type> {
        self.locals.iter().rev().find(|(known, _)| *known == name).map(|(_, kind)| kind)
    }

    /// Returns the type of what a name without dots refers to. A leading dot skips the variables of macros.
    pub(super) fn simple(&self, name: &str) -> Option<Type> {
        if let Some(kind) = self.local(name) {
            return Some(kind.clone());
        }
        self.global(plain(name))
    }

    fn global(&self, name: &str) -> Option<Type> {
        let variable = self.variables.iter().rev().find(|variable| variable.name == name);
        if let Some(variable) = variable {
            return Some(variable.kind.clone());
        }
        type_named(name).or_else(|| self.struct_type(name)).map(Type::of_type)
    }

    /// Returns the type of what a selection refers to if it spells a qualified name.
    pub(super) fn qualified(&self, select: &'p SelectExpr) -> Option<Type> {
        let name = spelled(select)?;
        let root = name.split('.').find(|part| !part.is_empty())?;
        if !name.starts_with('.') && self.local(root).is_some() {
            return None;
        }
        self.global(plain(&name))
    }

    /// Returns the type that a struct literal makes.
    pub(super) fn struct_type(&self, name: &str) -> Option<Type> {
        let name = plain(name);
        let object = |fields| Some(Type::Object(Object { name: name.into(), fields }));
        match name {
            "JSONPatch" if self.program.extensions().patches => object(Fields::JsonPatch),
            "Object" if self.program.extensions().patches => object(Fields::Any),
            _ if self.program.extensions().patches && name.starts_with("Object.") => {
                object(Fields::Any)
            }
            _ => type_named(name),
        }
    }
}
