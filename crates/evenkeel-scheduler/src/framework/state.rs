//! CycleState: data of one scheduling attempt that plugins share between extension points.

use std::{
    any::{Any, TypeId},
    sync::Arc,
};

/// Values by type for one attempt. Clones share a value until one of them changes it.
#[derive(Default, Clone)]
pub struct CycleState {
    values: Vec<(TypeId, Arc<dyn Any + Send + Sync>)>,
}

impl CycleState {
    /// Stores `value` and replaces an earlier value of its type.
    pub fn put<T: Any + Send + Sync>(&mut self, value: T) {
        let id = TypeId::of::<T>();
        self.values.retain(|(stored, _)| *stored != id);
        self.values.push((id, Arc::new(value)));
    }

    /// Returns the value of type `T`.
    pub fn get<T: Any>(&self) -> Option<&T> {
        let id = TypeId::of::<T>();
        self.values
            .iter()
            .find(|(stored, _)| *stored == id)
            .and_then(|(_, value)| value.downcast_ref())
    }

    /// Returns the value of type `T` as a mutable reference. Copies it first if a clone of the state shares it.
    pub fn get_mut<T: Any + Send + Sync + Clone>(&mut self) -> Option<&mut T> {
        let id = TypeId::of::<T>();
        let (_, value) = self.values.iter_mut().find(|(stored, _)| *stored == id)?;
        if Arc::get_mut(value).is_none() {
            let copy = value.downcast_ref::<T>()?.clone();
            *value = Arc::new(copy);
        }
        Arc::get_mut(value).and_then(|value| value.downcast_mut())
    }

    /// Removes the value of type `T`.
    pub fn remove<T: Any>(&mut self) {
        let id = TypeId::of::<T>();
        self.values.retain(|(stored, _)| *stored != id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clone_changes_only_its_own_values() {
        let mut state = CycleState::default();
        state.put(vec![1]);
        let mut other = state.clone();
        other.get_mut::<Vec<i32>>().unwrap().push(2);
        assert_eq!(state.get::<Vec<i32>>(), Some(&vec![1]));
        assert_eq!(other.get::<Vec<i32>>(), Some(&vec![1, 2]));
    }
}
