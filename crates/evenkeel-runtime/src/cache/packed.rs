//! Whole objects as a cache holds them: encoded. A decoded object takes several times the memory of its text, and most
//! objects of a large cache are seldom read.

use super::{
    managed_fields::without_managed_fields,
    object::{Decode, Object},
};
use crate::client::Metadata;
use evenkeel_api::{Encoding, Meta, Text, View};
use std::{
    any::Any,
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

/// Maximum size in encoded bytes of the objects of one cache that stay decoded. A small cache stays decoded as a whole.
const MAX_DECODED_BYTES: usize = 256 << 10;

/// Object that is decoded when it is read.
pub(super) struct Packed<V> {
    meta: Meta,
    json: Box<[u8]>,
    /// The decoded object, as long as it is among the recent ones.
    decoded: Mutex<Option<Arc<V>>>,
    last_decoded: Weak<Recent<V>>,
}

impl<V: View> Packed<V> {
    /// Returns the object if it was decoded recently.
    fn recent(&self) -> Option<Arc<V>> {
        lock(&self.decoded).clone()
    }

    /// Decodes the object. It was decoded before it was stored, so this does not fail.
    fn decode(&self) -> Option<V> {
        V::decode(&self.json, Encoding::Json).ok()
    }
}

impl<V: View> Object for Packed<V> {
    fn meta(&self) -> &Meta {
        &self.meta
    }

    fn view(self: Arc<Self>) -> Option<Arc<dyn Any + Send + Sync>> {
        if let Some(object) = self.recent() {
            return Some(object);
        }
        let object = Arc::new(self.decode()?);
        *lock(&self.decoded) = Some(Arc::clone(&object));
        // Without it, the cache is gone.
        if let Some(recent) = self.last_decoded.upgrade() {
            recent.add(&self);
        }
        Some(object)
    }

    fn read_view(&self, read: &mut dyn FnMut(&dyn Any)) {
        match self.recent() {
            Some(object) => read(&*object),
            None => self.decode().iter().for_each(|object| read(object)),
        }
    }

    fn at_version(&self, _: &Text) -> Option<Arc<dyn Object>> {
        None
    }
}

/// Objects of a cache that are decoded, the one that was decoded first at the front.
struct Recent<V>(Mutex<RecentState<V>>);

struct RecentState<V> {
    objects: VecDeque<Arc<Packed<V>>>,
    /// Size of the objects in encoded bytes.
    bytes: usize,
}

impl<V> Recent<V> {
    fn new() -> Self {
        Self(Mutex::new(RecentState { objects: VecDeque::new(), bytes: 0 }))
    }

    /// Adds a decoded object, and lets the first ones go.
    fn add(&self, object: &Arc<Packed<V>>) {
        let mut state = lock(&self.0);
        state.objects.push_back(Arc::clone(object));
        state.bytes += object.json.len();
        let mut gone = Vec::new();
        while state.bytes > MAX_DECODED_BYTES
            && let Some(first) = state.objects.pop_front()
        {
            state.bytes -= first.json.len();
            gone.push(first);
        }
        drop(state);
        for object in gone {
            *lock(&object.decoded) = None;
        }
    }
}

/// Returns the function that decodes the objects of a cache, so that none is stored which cannot be read, and packs them.
pub(super) fn packing_decoder<V: View>() -> Decode {
    let recent = Arc::new(Recent::<V>::new());
    Arc::new(move |bytes, encoding| {
        let json = without_managed_fields(bytes);
        let object = Arc::new(V::decode(&json, encoding)?);
        let Metadata { meta } = Metadata::decode(&json, encoding)?;
        let packed = Arc::new(Packed {
            meta,
            json: json.into(),
            decoded: Mutex::new(Some(object)),
            last_decoded: Arc::downgrade(&recent),
        });
        recent.add(&packed);
        Ok(packed)
    })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::{super::object::downcast, *};
    use crate::cache::Full;
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;

    type Map = Full<ConfigMap>;

    fn encoded(name: &str, size: usize) -> Vec<u8> {
        let json = json!({
            "metadata": {"name": name, "labels": {"l": "1"}, "managedFields": [{"manager": "m"}]},
            "data": {"k": "v".repeat(size)},
        });
        serde_json::to_vec(&json).unwrap()
    }

    #[test]
    fn an_object_stays_decoded_until_others_are() {
        let decode = packing_decoder::<Map>();
        let packed = decode(&encoded("a", 10), Encoding::Json).unwrap();
        assert_eq!((&*packed.meta().name, packed.meta().labels.get("l")), ("a", Some("1")));
        let read = || downcast::<Map>(Arc::clone(&packed)).unwrap();
        let first = read();
        assert!(Arc::ptr_eq(&first, &read()));
        drop(decode(&encoded("large", MAX_DECODED_BYTES), Encoding::Json).unwrap());
        assert_eq!(Arc::strong_count(&first), 1, "another one was decoded since");
        let again = read();
        assert!(!Arc::ptr_eq(&first, &again));
        assert_eq!(again.data.as_ref().unwrap()["k"].len(), 10);
        assert_eq!(again.metadata.managed_fields, None);
    }

    #[test]
    fn what_is_no_object_of_the_type_is_not_packed() {
        let decode = packing_decoder::<Map>();
        assert!(decode(br#"{"metadata":{},"data":7}"#, Encoding::Json).is_err());
        assert!(decode(&encoded("a", 1), Encoding::Protobuf).is_err());
    }
}
