//! Vector with stable indexes.

/// Values by index. Indexes of removed values are reused.
#[derive(Debug)]
pub(super) struct Slab<T> {
    values: Vec<Option<T>>,
    /// Indexes without a value.
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { values: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    /// Adds a value, and returns its index.
    pub(super) fn insert(&mut self, value: T) -> u32 {
        match self.free.pop() {
            Some(index) => {
                self.values[index as usize] = Some(value);
                index
            }
            None => {
                self.values.push(Some(value));
                (self.values.len() - 1) as u32
            }
        }
    }

    /// Removes the value at this index.
    pub(super) fn remove(&mut self, index: u32) -> Option<T> {
        let value = self.values.get_mut(index as usize)?.take()?;
        self.free.push(index);
        Some(value)
    }

    /// Returns the value with this index.
    pub(super) fn get(&self, index: u32) -> Option<&T> {
        self.values.get(index as usize)?.as_ref()
    }

    /// Returns the value with this index, to change it.
    pub(super) fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        self.values.get_mut(index as usize)?.as_mut()
    }

    /// Iterates over the values with their indexes.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        (0..).zip(&self.values).filter_map(|(index, value)| Some((index, value.as_ref()?)))
    }

    /// Returns the range of all indexes ever used.
    pub(super) fn indexes(&self) -> std::ops::Range<u32> {
        0..self.values.len() as u32
    }

    /// Returns the number of values.
    pub(super) fn len(&self) -> usize {
        self.values.len() - self.free.len()
    }
}
