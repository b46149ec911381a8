//! Interning of values that many objects share.
//!
//! Pods of one ReplicaSet have equal labels, owners and specs. The decoder looks up each such value among the values
//! that its thread decoded recently. If it finds an equal value, both objects share one allocation.

use std::{
    hash::{BuildHasher as _, Hash},
    ops::Deref,
    sync::Arc,
};

use foldhash::fast::FixedState;

/// Number of values per type that a thread remembers. A small number suffices, because consecutive objects in a list
/// mostly have equal values.
const MAX_REMEMBERED: usize = 256;

/// An immutable list that equal lists share.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Shared<T>(Option<Arc<[T]>>);

impl<T> Shared<T> {
    /// Returns whether both lists share one allocation.
    pub fn is_same(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        }
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Default for Shared<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T> Deref for Shared<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        self.0.as_deref().unwrap_or_default()
    }
}

impl<T> From<Vec<T>> for Shared<T> {
    fn from(items: Vec<T>) -> Self {
        Self((!items.is_empty()).then(|| items.into()))
    }
}

impl<T> From<Box<[T]>> for Shared<T> {
    fn from(items: Box<[T]>) -> Self {
        items.into_vec().into()
    }
}

impl<T, const N: usize> From<[T; N]> for Shared<T> {
    fn from(items: [T; N]) -> Self {
        Vec::from(items).into()
    }
}

impl<T> FromIterator<T> for Shared<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        Vec::from_iter(items).into()
    }
}

impl<'a, T> IntoIterator for &'a Shared<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// Returns the items as a list, which is shared with an equal list that this thread decoded recently.
pub(crate) fn intern<T: Interned>(items: Vec<T>) -> Shared<T> {
    if items.is_empty() {
        return Shared(None);
    }
    let fingerprint = fingerprint_of(&items);
    let is_equal = |known: &Arc<[T]>, new: &Vec<T>| **known == **new;
    Shared(Some(T::recent(|recent| recent.intern(fingerprint, items, is_equal, Into::into))))
}

/// Returns the list, or an equal one that this thread decoded recently.
pub(crate) fn intern_list<T: Interned>(list: Shared<T>) -> Shared<T> {
    let is_equal = |known: &Arc<[T]>, new: &Arc<[T]>| **known == **new;
    let intern = |items: Arc<[T]>| {
        let fingerprint = fingerprint_of(&items);
        T::recent(|recent| recent.intern(fingerprint, items, is_equal, |items| items))
    };
    Shared(list.0.map(intern))
}

/// Item type of interned lists.
pub(crate) trait Interned: Hash + Eq + Sized + 'static {
    /// Calls `with` with the lists that this thread decoded recently.
    fn recent<R>(with: impl FnOnce(&mut Recent<Arc<[Self]>>) -> R) -> R;
}

/// Implements [`Interned`] for a type.
macro_rules! interned {
    ($type:ty) => {
        impl $crate::shared::Interned for $type {
            fn recent<R>(
                with: impl FnOnce(&mut $crate::shared::Recent<std::sync::Arc<[Self]>>) -> R,
            ) -> R {
                use $crate::shared::Recent;
                thread_local! {
                    static RECENT: std::cell::RefCell<Recent<std::sync::Arc<[$type]>>> =
                        std::cell::RefCell::default();
                }
                RECENT.with_borrow_mut(with)
            }
        }
    };
}

pub(crate) use interned;

/// Returns a hash for interning: equal values have equal fingerprints.
pub(crate) fn fingerprint_of(value: &impl Hash) -> u64 {
    FixedState::default().hash_one(value)
}

/// Cache of recently decoded values with `N` slots. The fingerprint of a value determines its slot, and each slot
/// keeps the last value.
pub(crate) struct Recent<T, const N: usize = MAX_REMEMBERED>(Box<[Option<T>]>);

impl<T, const N: usize> Default for Recent<T, N> {
    fn default() -> Self {
        Self(std::iter::repeat_with(|| None).take(N).collect())
    }
}

impl<T: Clone, const N: usize> Recent<T, N> {
    /// Returns the value in the fingerprint's slot if `is_match` accepts it.
    pub(crate) fn find(&self, fingerprint: u64, is_match: impl FnOnce(&T) -> bool) -> Option<T> {
        self.0[fingerprint as usize % N].as_ref().filter(|known| is_match(known)).cloned()
    }

    /// Returns the value in the fingerprint's slot if it is equal to `new`. Otherwise converts `new` with `make`, and
    /// remembers the result.
    pub(crate) fn intern<U>(
        &mut self,
        fingerprint: u64,
        new: U,
        is_equal: impl FnOnce(&T, &U) -> bool,
        make: impl FnOnce(U) -> T,
    ) -> T {
        if let Some(known) = self.find(fingerprint, |known| is_equal(known, &new)) {
            return known;
        }
        let made = make(new);
        self.keep(fingerprint, made.clone());
        made
    }

    /// Remembers `value` in its fingerprint's slot, in place of the previous value.
    pub(crate) fn keep(&mut self, fingerprint: u64, value: T) {
        self.0[fingerprint as usize % N] = Some(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    interned!(u8);

    #[test]
    fn equal_lists_share_memory() {
        let [a, b] = [(); 2].map(|()| intern(vec![1_u8, 2, 3]));
        assert_eq!(a.as_ptr(), b.as_ptr());
        assert!(
            a.is_same(&b) && !a.is_same(&Shared::from([1, 2, 3])) && !a.is_same(&Shared::default())
        );
        assert!(Shared::<u8>::default().is_same(&Shared::default()));
        assert!(intern_list(Shared::from([1, 2, 3])).is_same(&a));
        assert_eq!(intern_list(Shared::<u8>::default()), Shared(None));
        assert_eq!(intern(vec![1_u8, 2]).len(), 2);
        assert_ne!(a, intern(vec![3, 2, 1]));
    }

    #[test]
    fn empty_list_allocates_nothing() {
        assert_eq!(intern::<u8>(Vec::new()), Shared(None));
        assert_eq!(Shared::<u8>::from([]), Shared::default());
        assert_eq!(size_of::<Shared<u8>>(), size_of::<Box<[u8]>>());
    }
}
