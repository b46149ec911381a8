//! Objects of any view. Stores, informers and reflectors do not depend on the view, so they are compiled only once.

use super::CacheEvent;
use crate::client::{Metadata, negotiation};
use evenkeel_api::{DecodeError, Encoding, Meta, Text, View};
use std::{
    any::{Any, TypeId},
    sync::Arc,
};

/// Object of any view, as a store holds it. Readers get it as its view by [`downcast`].
pub(crate) trait Object: Send + Sync {
    /// Returns the object as its view, decoded.
    fn view(self: Arc<Self>) -> Option<Arc<dyn Any + Send + Sync>>;
    /// Calls `read` with the object as its view, without keeping it decoded.
    fn read_view(&self, read: &mut dyn FnMut(&dyn Any));
    /// Returns the object's metadata.
    fn meta(&self) -> &Meta;
    /// Returns this object with another version, as [`View::at_version`] does.
    fn at_version(&self, version: &Text) -> Option<Arc<dyn Object>>;
}

impl<V: View> Object for V {
    fn view(self: Arc<Self>) -> Option<Arc<dyn Any + Send + Sync>> {
        Some(self)
    }

    fn read_view(&self, read: &mut dyn FnMut(&dyn Any)) {
        read(self);
    }

    fn meta(&self) -> &Meta {
        View::meta(self)
    }

    fn at_version(&self, version: &Text) -> Option<Arc<dyn Object>> {
        View::at_version(self, version).map(|object| Arc::new(object) as _)
    }
}

/// Returns the object as its view. A cache only holds objects of its own view, for which this is never `None`.
pub(super) fn downcast<V: View>(object: Arc<dyn Object>) -> Option<Arc<V>> {
    object.view()?.downcast().ok()
}

/// Calls `read` with the object as its view, as [`downcast`] returns it.
pub(super) fn read_as<V: View, R>(object: &dyn Object, read: impl FnOnce(&V) -> R) -> Option<R> {
    let (mut read, mut result) = (Some(read), None);
    object.read_view(&mut |view| {
        let view = view.downcast_ref::<V>();
        result = view.zip(read.take()).map(|(view, read)| read(view));
    });
    result
}

impl CacheEvent<dyn Object> {
    /// Calls `handle` with the event of the view.
    pub(crate) fn with<V: View>(&self, handle: impl FnOnce(&CacheEvent<V>)) {
        if let Some(event) = self.downcast() {
            handle(&event);
        }
    }

    /// Returns the event with its objects as their view, as [`downcast`] does.
    fn downcast<V: View>(&self) -> Option<CacheEvent<V>> {
        Some(match self.clone() {
            Self::Added { object, initial } => {
                CacheEvent::Added { object: downcast(object)?, initial }
            }
            Self::Updated { old, new } => {
                CacheEvent::Updated { old: downcast(old)?, new: downcast(new)? }
            }
            Self::Deleted(object) => CacheEvent::Deleted(downcast(object)?),
        })
    }
}

/// Function that decodes an object, and may drop parts of it.
pub(super) type Decode =
    Arc<dyn Fn(&[u8], Encoding) -> Result<Arc<dyn Object>, DecodeError> + Send + Sync>;

/// View of the objects in one cache: how a reflector requests and decodes them.
pub(super) struct ObjectType {
    /// Type of the view.
    pub(super) id: TypeId,
    /// `Accept` header for one object, or for a watch.
    pub(super) accept: &'static str,
    /// `Accept` header for a list.
    pub(super) accept_list: &'static str,
    decode: Decode,
    /// Whether `decode` drops or changes parts of objects.
    transforms: bool,
}

impl ObjectType {
    pub(super) fn of<V: View>() -> Self {
        Self {
            id: TypeId::of::<V>(),
            accept: negotiation::accept::<V>(),
            accept_list: negotiation::accept_list::<V>(),
            decode: Arc::new(|object, encoding| Ok(Arc::new(V::decode(object, encoding)?))),
            transforms: false,
        }
    }

    /// Decodes objects by this function instead.
    pub(super) fn decoding(self, decode: Option<Decode>) -> Self {
        Self { decode: decode.unwrap_or(self.decode), ..self }
    }

    /// Like [`Self::decoding`], by a function that drops or changes parts of objects.
    pub(super) fn transforming(self, decode: Option<Decode>) -> Self {
        Self { transforms: self.transforms || decode.is_some(), ..self.decoding(decode) }
    }

    /// Returns whether cached objects differ from those of the server.
    pub(super) fn transforms(&self) -> bool {
        self.transforms
    }

    /// Returns whether only the objects' metadata is read.
    pub(super) fn is_metadata(&self) -> bool {
        self.id == TypeId::of::<Metadata>()
    }

    /// Decodes an object. The error names the object.
    pub(super) fn decode(
        &self,
        object: &[u8],
        encoding: Encoding,
    ) -> Result<Arc<dyn Object>, DecodeError> {
        (self.decode)(object, encoding).map_err(|error| error.naming(object, encoding))
    }
}
