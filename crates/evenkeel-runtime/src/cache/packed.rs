//! Whole objects in encoded form, except for their metadata. A decoded object takes several times the memory of its JSON, and
//! most objects of a large cache are rarely read.

use super::{
    object::{Decode, Object},
    whole::{Parts, WholeObject, head, is_restorable, to_meta, to_object_meta},
};
use evenkeel_api::{DecodeError, Encoding, Meta, Text};
use std::{
    any::Any,
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

/// Maximum size in encoded bytes of the objects of one cache that stay decoded. A small cache stays decoded as a whole.
const MAX_DECODED_BYTES: usize = 32 << 10;

/// Object that is decoded when it is read.
pub(super) struct Packed<V> {
    meta: Meta,
    /// JSON of the object. Begins after its head if `meta` has all metadata.
    json: Box<[u8]>,
    has_head: bool,
    /// The decoded object, while it is among the recently decoded ones.
    decoded: Mutex<Option<Arc<V>>>,
    last_decoded: Weak<Recent<V>>,
}

impl<V: WholeObject> Packed<V> {
    /// Returns the object if it was decoded recently.
    fn recent(&self) -> Option<Arc<V>> {
        lock(&self.decoded).clone()
    }

    /// Decodes the object. It was decoded before it was stored, so this does not fail.
    fn decode(&self) -> Option<V> {
        if self.has_head {
            return V::decode(&self.json, Encoding::Json).ok();
        }
        let body = [&*head(V::type_meta().as_ref()), &self.json].concat();
        V::from_body(&body, to_object_meta(&self.meta), self.meta.clone()).ok()
    }
}

impl<V: WholeObject> Object for Packed<V> {
    fn meta(&self) -> &Meta {
        &self.meta
    }

    fn view(self: Arc<Self>) -> Option<Arc<dyn Any + Send + Sync>> {
        if let Some(object) = self.recent() {
            return Some(object);
        }
        let object = Arc::new(self.decode()?);
        *lock(&self.decoded) = Some(Arc::clone(&object));
        // Without the shared state, the cache no longer exists.
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

/// Decoded objects of a cache, in the order in which they were decoded.
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

    /// Adds a decoded object, and drops the oldest ones above the limit.
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

/// Returns the function that decodes the objects of a cache and packs them. It decodes each object first, so that no
/// undecodable object is stored.
pub(super) fn packing_decoder<V: WholeObject>() -> Decode {
    let recent = Arc::new(Recent::<V>::new());
    let (kind, type_meta) = (V::kind().kind, V::type_meta());
    Arc::new(move |bytes, encoding| {
        let parts = Parts::of(&kind, type_meta.as_ref(), bytes, encoding)?;
        let packed = Arc::new(pack::<V>(parts, Arc::downgrade(&recent))?);
        recent.add(&packed);
        Ok(packed)
    })
}

fn pack<V: WholeObject>(
    parts: Parts,
    last_decoded: Weak<Recent<V>>,
) -> Result<Packed<V>, DecodeError> {
    let meta = to_meta(&parts.metadata);
    let tail = Some(parts.tail).filter(|tail| *tail != 0 && is_restorable(&parts.metadata));
    let json = match tail {
        Some(tail) => parts.body[tail..].into(),
        None => parts.whole(&V::kind().kind)?.into(),
    };
    let object = V::from_body(&parts.body, parts.metadata, meta.clone())?;
    Ok(Packed {
        meta,
        json,
        has_head: tail.is_none(),
        decoded: Mutex::new(Some(Arc::new(object))),
        last_decoded,
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
        assert_eq!(again.metadata, first.metadata);
        assert_eq!(again.metadata.managed_fields, None);
    }

    #[test]
    fn metadata_are_in_the_json_only_if_the_metadata_type_lacks_some() {
        let decode = |json: &[u8]| {
            let type_meta = Map::type_meta();
            let parts = Parts::of("ConfigMap", type_meta.as_ref(), json, Encoding::Json);
            pack::<Map>(parts.unwrap(), Weak::new()).unwrap()
        };
        let plain = decode(&encoded("a", 1));
        assert_eq!(std::str::from_utf8(&plain.json), Ok(r#","data":{"k":"v"}}"#));
        let linked = decode(br#"{"metadata":{"name":"a","selfLink":"/a"}}"#);
        for (packed, link) in [(plain, None), (linked, Some("/a"))] {
            let read = packed.decode().unwrap();
            assert_eq!(read.metadata.name.as_deref(), Some("a"));
            assert_eq!(read.metadata.self_link.as_deref(), link);
            assert_eq!(*read, **lock(&packed.decoded).as_ref().unwrap().object());
        }
    }

    #[test]
    fn what_is_no_object_of_the_type_is_not_packed() {
        let decode = packing_decoder::<Map>();
        assert!(decode(br#"{"metadata":{},"data":7}"#, Encoding::Json).is_err());
        assert!(decode(&encoded("a", 1), Encoding::Protobuf).is_err());
    }
}
