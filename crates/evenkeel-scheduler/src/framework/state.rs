//! What plugins work out for one attempt and hand from point to point.

use std::any::{Any, TypeId};

/// One value for each type, for the length of an attempt.
#[derive(Default)]
pub struct CycleState {
    values: Vec<(TypeId, Box<dyn Any + Send + Sync>)>,
}

impl CycleState {
    /// Keeps `value`, in place of an earlier one of the type.
    pub fn put<T: Any + Send + Sync>(&mut self, value: T) {
        let id = TypeId::of::<T>();
        self.values.retain(|(own, _)| *own != id);
        self.values.push((id, Box::new(value)));
    }

    /// The value of this type.
    pub fn get<T: Any>(&self) -> Option<&T> {
        let id = TypeId::of::<T>();
        self.values.iter().find(|(own, _)| *own == id).and_then(|(_, value)| value.downcast_ref())
    }

    /// The value of this type, to be changed.
    pub fn get_mut<T: Any>(&mut self) -> Option<&mut T> {
        let id = TypeId::of::<T>();
        self.values
            .iter_mut()
            .find(|(own, _)| *own == id)
            .and_then(|(_, value)| value.downcast_mut())
    }

    pub(crate) fn clear(&mut self) {
        self.values.clear();
    }
}
