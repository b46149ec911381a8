//! Inference of types: which types unify, and what their variables stand for.
//!
//! Upstream: cel-go's `checker/types.go` and `mapping.go`.

use super::types::Type;

/// What the variables of types stand for, as far as it is known.
#[derive(Debug, Default)]
pub(super) struct Substitution {
    bound: Vec<Option<Type>>,
    /// Earlier bindings of variables that were bound since an attempt began.
    trail: Vec<(u32, Option<Type>)>,
}

/// Maximum depth of types within variables that a comparison follows.
const MAX_DEPTH: usize = 200;

impl Substitution {
    /// Returns a variable that stands for nothing yet.
    pub(super) fn fresh(&mut self) -> Type {
        self.bound.push(None);
        Type::Variable(u32::try_from(self.bound.len() - 1).unwrap_or(u32::MAX))
    }

    /// Whether a value of the first type can be used where the second is expected. Binds their variables if so.
    pub(super) fn is_assignable(&mut self, a: &Type, b: &Type) -> bool {
        self.attempt(|this| this.unify(a, b, 0))
    }

    /// Does the same for all types of two lists.
    pub(super) fn are_assignable(&mut self, a: &[Type], b: &[Type]) -> bool {
        a.len() == b.len() && self.attempt(|this| a.iter().zip(b).all(|(a, b)| this.unify(a, b, 0)))
    }

    /// Undoes the bindings of an attempt that fails.
    fn attempt(&mut self, unify: impl FnOnce(&mut Self) -> bool) -> bool {
        self.trail.clear();
        if unify(self) {
            return true;
        }
        while let Some((variable, earlier)) = self.trail.pop() {
            if let Some(bound) = self.bound.get_mut(variable as usize) {
                *bound = earlier;
            }
        }
        false
    }

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

    /// Upstream: `internalIsAssignable`.
    fn unify(&mut self, a: &Type, b: &Type, depth: usize) -> bool {
        if depth > MAX_DEPTH {
            return false;
        }
        if matches!(b, Type::Variable(_)) {
            match self.fits_variable(a, b, depth) {
                (true, _) => return true,
                (false, true) => return false,
                (false, false) => {}
            }
        }
        if matches!(a, Type::Variable(_)) {
            return self.fits_variable(b, a, depth).0;
        }
        if a.is_wildcard() || b.is_wildcard() {
            return true;
        }
        match (a, b) {
            (Type::Null, other) | (other, Type::Null) => other.is_nullable(),
            (Type::OfTypes(_), other) => matches!(other, Type::OfTypes(_)),
            (a, b) => {
                a.is_alike(b)
                    && a.parts()
                        .into_iter()
                        .flatten()
                        .zip(b.parts().into_iter().flatten())
                        .all(|(a, b)| self.unify(a, b, depth + 1))
            }
        }
    }

    /// Whether a type is a valid substitution of a variable, and whether the variable had one.
    ///
    /// Upstream: `isValidTypeSubstitution`.
    fn fits_variable(&mut self, t: &Type, variable: &Type, depth: usize) -> (bool, bool) {
        if t == variable {
            return (true, true);
        }
        let Some(bound) = self.find(variable).cloned() else {
            let fits = self.is_free_of(variable, t, depth);
            if fits {
                self.bind(variable, t.clone());
            }
            return (fits, false);
        };
        if *t == bound {
            return (true, true);
        }
        if !self.unify(t, &bound, depth + 1) {
            return (false, true);
        }
        let general = most_general(t, &bound);
        if self.is_free_of(variable, &general, depth) {
            self.bind(variable, general);
        }
        (true, true)
    }

    /// Whether a type does not refer to a variable, directly or through what its own variables stand for.
    ///
    /// Upstream: `notReferencedIn`.
    fn is_free_of(&self, variable: &Type, within: &Type, depth: usize) -> bool {
        if variable == within || depth > MAX_DEPTH {
            return false;
        }
        if matches!(within, Type::Variable(_)) {
            let bound = self.find(within);
            return bound.is_none_or(|bound| self.is_free_of(variable, bound, depth + 1));
        }
        let mut parts = within.parts().into_iter().flatten();
        parts.all(|part| self.is_free_of(variable, part, depth + 1))
    }

    /// Replaces the variables of a type by what they stand for.
    pub(super) fn resolve(&self, t: &Type) -> Type {
        match self.find(t) {
            Some(bound) => self.resolve(bound),
            None => t.with_parts(|part| self.resolve(part)),
        }
    }

    /// Does the same, with `dyn` for variables that stand for nothing.
    pub(super) fn settle(&self, t: &Type) -> Type {
        match (self.find(t), t) {
            (Some(bound), _) => self.settle(bound),
            (None, Type::Variable(_)) => Type::Dyn,
            (None, t) => t.with_parts(|part| self.settle(part)),
        }
    }
}

/// Returns the more general of two types that unify.
pub(super) fn most_general(a: &Type, b: &Type) -> Type {
    if is_no_more_specific(a, b) { a.clone() } else { b.clone() }
}

/// Upstream: `isEqualOrLessSpecific`.
fn is_no_more_specific(a: &Type, b: &Type) -> bool {
    if matches!(a, Type::Dyn | Type::Any | Type::Variable(_)) {
        return true;
    }
    if matches!(b, Type::Dyn | Type::Any | Type::Variable(_)) || !a.is_alike(b) {
        return false;
    }
    if matches!(a, Type::OfTypes(_)) {
        return true;
    }
    let (a, b) = (a.parts().into_iter().flatten(), b.parts().into_iter().flatten());
    a.zip(b).all(|(a, b)| is_no_more_specific(a, b))
}
