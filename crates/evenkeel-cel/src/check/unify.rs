//! Inference of types: which types unify, and what their variables stand for.
//!
//! Upstream: cel-go's `checker/types.go` and `mapping.go`.

use super::types::{MAX_PARTS, Type};

/// What the variables of types stand for, as far as it is known.
#[derive(Debug)]
pub(super) struct Substitution {
    bound: Vec<Option<Type>>,
    /// Earlier bindings of variables that were bound since an attempt began.
    trail: Vec<(u32, Option<Type>)>,
    /// Number of steps that comparisons may still take.
    remaining_steps: usize,
}

/// Maximum depth of types within variables that a comparison follows.
const MAX_DEPTH: usize = 200;

/// Maximum number of steps of all comparisons of one expression. Types that share variables can take exponentially many.
const MAX_STEPS: usize = 1_000_000;

impl Default for Substitution {
    fn default() -> Self {
        Self { bound: Vec::new(), trail: Vec::new(), remaining_steps: MAX_STEPS }
    }
}

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

    /// Takes one step of a comparison. Returns false once no step remains.
    fn step(&mut self) -> bool {
        let rest = self.remaining_steps.checked_sub(1);
        self.remaining_steps = rest.unwrap_or(0);
        rest.is_some()
    }

    /// Types are not assignable once no step remains.
    ///
    /// Upstream: `internalIsAssignable`.
    fn unify(&mut self, a: &Type, b: &Type, depth: usize) -> bool {
        if depth > MAX_DEPTH || !self.step() {
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
    fn is_free_of(&mut self, variable: &Type, within: &Type, depth: usize) -> bool {
        if variable == within || depth > MAX_DEPTH || !self.step() {
            return false;
        }
        if matches!(within, Type::Variable(_)) {
            let bound = self.find(within).cloned();
            return bound.is_none_or(|bound| self.is_free_of(variable, &bound, depth + 1));
        }
        let mut parts = within.parts().into_iter().flatten();
        parts.all(|part| self.is_free_of(variable, part, depth + 1))
    }

    /// Replaces the variables of a type by what they stand for.
    pub(super) fn resolve(&self, t: &Type) -> Type {
        self.expand(t, Type::Variable, &mut { MAX_PARTS })
    }

    /// Does the same, with `dyn` for variables that stand for nothing.
    pub(super) fn settle(&self, t: &Type) -> Type {
        self.expand(t, |_| Type::Dyn, &mut { MAX_PARTS })
    }

    /// Replaces the variables of a type, those that stand for nothing by `unbound`. The parts after the first `left` are
    /// `dyn`, so that [`Type::bounded`] still finds that there are too many.
    fn expand(&self, t: &Type, unbound: fn(u32) -> Type, left: &mut usize) -> Type {
        let mut t = t;
        while let Some(bound) = self.find(t) {
            t = bound;
        }
        let Some(rest) = left.checked_sub(1) else { return Type::Dyn };
        *left = rest;
        match t {
            Type::Variable(number) => unbound(*number),
            t => t.with_parts(|part| self.expand(part, unbound, left)),
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

#[cfg(test)]
mod tests {
    use super::super::{Checked, check};
    use super::*;
    use crate::Program;

    /// Number of variables, each of which stands for a type with the next one twice.
    const LEVELS: usize = 40;

    /// Makes variables whose expansion has a part for each path through all levels; returns the first.
    fn doubled(known: &mut Substitution) -> Type {
        let first = known.fresh();
        let mut variable = first.clone();
        for _ in 0..LEVELS {
            let next = known.fresh();
            let twice = Type::map(Type::list(next.clone()), Type::list(next.clone()));
            assert!(known.is_assignable(&twice, &variable));
            variable = next;
        }
        first
    }

    #[test]
    fn expansions_are_bounded() {
        let mut known = Substitution::default();
        let wide = doubled(&mut known);
        for expanded in [known.settle(&wide), known.resolve(&wide)] {
            assert!(matches!(expanded, Type::Map(..)));
            assert_eq!(expanded.bounded(), Type::Dyn);
        }
        let narrow = Type::list(known.fresh());
        assert_eq!(known.settle(&narrow), Type::list(Type::Dyn));
        assert_eq!(known.resolve(&narrow), narrow);
    }

    #[test]
    fn comparisons_are_bounded() {
        let mut known = Substitution::default();
        let (a, b) = (doubled(&mut known), doubled(&mut known));
        assert!(!known.is_assignable(&a, &b));
        assert_eq!(known.remaining_steps, 0);
        assert!(!known.is_assignable(&Type::Int, &Type::Int));
        let mut known = Substitution::default();
        let (wide, other) = (doubled(&mut known), known.fresh());
        assert!(!known.is_assignable(&Type::list(wide), &other));
        assert_eq!(known.find(&other), None);
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
