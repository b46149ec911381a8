//! Type inference: unifies types, and binds their type variables.
//!
//! Upstream: cel-go's `checker/types.go` and `mapping.go`.

use super::types::{MAX_NODES, Type};

/// Types that the type variables are bound to.
#[derive(Debug)]
pub(super) struct Substitution {
    /// Type of each variable, by the variable's number; `None` if it is unbound.
    bound: Vec<Option<Type>>,
    /// Variables that the current attempt to unify has bound, with their types before.
    trail: Vec<(u32, Option<Type>)>,
    /// Number of steps that comparisons may still take.
    remaining_steps: usize,
}

/// Maximum depth of nested types, through bound variables, that a comparison follows.
const MAX_DEPTH: usize = 200;

/// Maximum number of steps of all comparisons of one expression. Types that share variables can take exponentially many.
const MAX_STEPS: usize = 1_000_000;

impl Default for Substitution {
    fn default() -> Self {
        Self { bound: Vec::new(), trail: Vec::new(), remaining_steps: MAX_STEPS }
    }
}

impl Substitution {
    /// Returns a new type variable, which is unbound.
    pub(super) fn new_variable(&mut self) -> Type {
        self.bound.push(None);
        Type::Variable(u32::try_from(self.bound.len() - 1).unwrap_or(u32::MAX))
    }

    /// Returns whether a value of type `a` can be used where `b` is expected. If so, binds the variables of both.
    ///
    /// Upstream: `isAssignable`.
    pub(super) fn unify(&mut self, a: &Type, b: &Type) -> bool {
        self.bind_if(|this| this.is_assignable(a, b, 0))
    }

    /// Unifies each type of one list with the type at the same index of another. If one pair fails, binds no variable.
    ///
    /// Upstream: `isAssignableList`.
    pub(super) fn unify_all(&mut self, a: &[Type], b: &[Type]) -> bool {
        a.len() == b.len()
            && self.bind_if(|this| a.iter().zip(b).all(|(a, b)| this.is_assignable(a, b, 0)))
    }

    /// Keeps the bindings that `attempt` adds if it returns true, else undoes them.
    fn bind_if(&mut self, attempt: impl FnOnce(&mut Self) -> bool) -> bool {
        self.trail.clear();
        if attempt(self) {
            return true;
        }
        while let Some((variable, earlier)) = self.trail.pop() {
            if let Some(bound) = self.bound.get_mut(variable as usize) {
                *bound = earlier;
            }
        }
        false
    }

    /// Returns the type that a variable is bound to; `None` if it is unbound, or if `t` is not a variable.
    fn find(&self, t: &Type) -> Option<&Type> {
        match t {
            Type::Variable(number) => self.bound.get(*number as usize)?.as_ref(),
            _ => None,
        }
    }

    fn bind(&mut self, variable: &Type, to: Type) {
        let Type::Variable(number) = variable else { return };
        if let Some(bound) = self.bound.get_mut(*number as usize) {
            self.trail.push((*number, bound.replace(to)));
        }
    }

    /// Takes one step of a comparison. Returns false once no step remains.
    fn step(&mut self) -> bool {
        let rest = self.remaining_steps.checked_sub(1);
        self.remaining_steps = rest.unwrap_or(0);
        rest.is_some()
    }

    /// Returns whether a value of type `a` can be used where `b` is expected. Binds variables even if the result is
    /// false. Once no step remains, the result is always false.
    ///
    /// Upstream: `internalIsAssignable`.
    fn is_assignable(&mut self, a: &Type, b: &Type, depth: usize) -> bool {
        if depth > MAX_DEPTH || !self.step() {
            return false;
        }
        if matches!(b, Type::Variable(_)) {
            match self.substitute(a, b, depth) {
                Substituted::Valid => return true,
                Substituted::ConflictsWithBinding => return false,
                // `a` may still be a variable that can be bound to `b`.
                Substituted::RefersToItself => {}
            }
        }
        if matches!(a, Type::Variable(_)) {
            return self.substitute(b, a, depth) == Substituted::Valid;
        }
        if a.is_wildcard() || b.is_wildcard() {
            return true;
        }
        match (a, b) {
            (Type::Null, other) | (other, Type::Null) => other.is_nullable(),
            (Type::OfTypes(_), other) => matches!(other, Type::OfTypes(_)),
            (a, b) if !a.has_kind_of(b) => false,
            (a, b) => {
                let mut parameters = pairs_of_parameters(a, b);
                parameters.all(|(a, b)| self.is_assignable(a, b, depth + 1))
            }
        }
    }

    /// Binds a variable to a type, or to the more general one of this type and the type that it is bound to.
    ///
    /// Upstream: `isValidTypeSubstitution`.
    fn substitute(&mut self, t: &Type, variable: &Type, depth: usize) -> Substituted {
        if t == variable {
            return Substituted::Valid;
        }
        let Some(bound) = self.find(variable).cloned() else {
            if !self.is_free_of(variable, t, depth) {
                return Substituted::RefersToItself;
            }
            self.bind(variable, t.clone());
            return Substituted::Valid;
        };
        if *t == bound {
            return Substituted::Valid;
        }
        if !self.is_assignable(t, &bound, depth + 1) {
            return Substituted::ConflictsWithBinding;
        }
        let general = most_general(t, &bound);
        if self.is_free_of(variable, &general, depth) {
            self.bind(variable, general);
        }
        Substituted::Valid
    }

    /// Returns whether a type does not refer to a variable, directly or through the bindings of its own variables.
    ///
    /// Upstream: `notReferencedIn`.
    fn is_free_of(&mut self, variable: &Type, within: &Type, depth: usize) -> bool {
        if variable == within || depth > MAX_DEPTH || !self.step() {
            return false;
        }
        if matches!(within, Type::Variable(_)) {
            let bound = self.find(within).cloned();
            return bound.is_none_or(|bound| self.is_free_of(variable, &bound, depth + 1));
        }
        let mut parameters = within.parameters().into_iter().flatten();
        parameters.all(|parameter| self.is_free_of(variable, parameter, depth + 1))
    }

    /// Replaces the bound variables of a type by the types they are bound to. Unbound variables remain.
    pub(super) fn resolve(&self, t: &Type) -> Type {
        self.expand(t, Type::Variable, &mut { MAX_NODES })
    }

    /// Replaces the bound variables of a type by the types they are bound to, and unbound variables by `dyn`.
    pub(super) fn resolve_with_dyn(&self, t: &Type) -> Type {
        self.expand(t, |_| Type::Dyn, &mut { MAX_NODES })
    }

    /// Replaces the variables of a type; `unbound` returns the replacement of an unbound one by its number. Once no
    /// nodes remain, the rest of the type becomes `dyn`. It still has too many nodes for [`Type::bounded`].
    fn expand(&self, t: &Type, unbound: fn(u32) -> Type, remaining_nodes: &mut usize) -> Type {
        let mut t = t;
        while let Some(bound) = self.find(t) {
            t = bound;
        }
        let Some(rest) = remaining_nodes.checked_sub(1) else { return Type::Dyn };
        *remaining_nodes = rest;
        match t {
            Type::Variable(number) => unbound(*number),
            t => t.map_parameters(|parameter| self.expand(parameter, unbound, remaining_nodes)),
        }
    }
}

/// Result of the substitution of a variable by a type.
#[derive(PartialEq, Eq)]
enum Substituted {
    /// The type fits the variable.
    Valid,
    /// The type does not unify with the type that the variable is bound to.
    ConflictsWithBinding,
    /// The variable is unbound, and the type refers to the variable itself, or is too deep to tell.
    RefersToItself,
}

/// Returns the parameters of two types in pairs.
fn pairs_of_parameters<'t>(a: &'t Type, b: &'t Type) -> impl Iterator<Item = (&'t Type, &'t Type)> {
    a.parameters().into_iter().flatten().zip(b.parameters().into_iter().flatten())
}

/// Returns the more general of two types that unify.
pub(super) fn most_general(a: &Type, b: &Type) -> Type {
    if is_equal_or_less_specific(a, b) { a.clone() } else { b.clone() }
}

/// Returns whether `a` is at least as general as `b`.
///
/// Upstream: `isEqualOrLessSpecific`.
fn is_equal_or_less_specific(a: &Type, b: &Type) -> bool {
    if matches!(a, Type::Dyn | Type::Any | Type::Variable(_)) {
        return true;
    }
    if matches!(b, Type::Dyn | Type::Any | Type::Variable(_)) || !a.has_kind_of(b) {
        return false;
    }
    if matches!(a, Type::OfTypes(_)) {
        return true;
    }
    pairs_of_parameters(a, b).all(|(a, b)| is_equal_or_less_specific(a, b))
}

#[cfg(test)]
mod tests {
    use super::super::{Checked, check};
    use super::*;
    use crate::Program;

    /// Number of variables. Each is bound to a type that contains the next variable twice.
    const LEVELS: usize = 40;

    /// Creates variables whose expansion has a part for each path through all levels. Returns the first variable.
    fn doubled(substitution: &mut Substitution) -> Type {
        let first = substitution.new_variable();
        let mut variable = first.clone();
        for _ in 0..LEVELS {
            let next = substitution.new_variable();
            let twice = Type::map(Type::list(next.clone()), Type::list(next.clone()));
            assert!(substitution.unify(&twice, &variable));
            variable = next;
        }
        first
    }

    #[test]
    fn expansions_are_bounded() {
        let mut substitution = Substitution::default();
        let wide = doubled(&mut substitution);
        for expanded in [substitution.resolve_with_dyn(&wide), substitution.resolve(&wide)] {
            assert!(matches!(expanded, Type::Map(..)));
            assert_eq!(expanded.bounded(), Type::Dyn);
        }
        let narrow = Type::list(substitution.new_variable());
        assert_eq!(substitution.resolve_with_dyn(&narrow), Type::list(Type::Dyn));
        assert_eq!(substitution.resolve(&narrow), narrow);
    }

    #[test]
    fn comparisons_are_bounded() {
        let mut substitution = Substitution::default();
        let (a, b) = (doubled(&mut substitution), doubled(&mut substitution));
        assert!(!substitution.unify(&a, &b));
        assert_eq!(substitution.remaining_steps, 0);
        assert!(!substitution.unify(&Type::Int, &Type::Int));
        let mut substitution = Substitution::default();
        let (wide, other) = (doubled(&mut substitution), substitution.new_variable());
        assert!(!substitution.unify(&Type::list(wide), &other));
        assert_eq!(substitution.find(&other), None);
    }

    #[test]
    fn nested_loops_over_empty_lists_are_checked() {
        let mut source = "true".to_owned();
        for level in (1..LEVELS).rev() {
            let (outer, own) = (level - 1, level);
            source = format!(
                "[[]].all(x{own}, x{outer} + [{{x{own}: x{own}}}] == x{outer} || {source})"
            );
        }
        let source = format!("[[]].all(x0, {source})");
        let program = Program::parse(&source).expect("it can be read");
        let checked = check(&program, &[]);
        assert_eq!(checked.as_ref().map(Checked::kind), Ok(&Type::Bool));
    }
}
