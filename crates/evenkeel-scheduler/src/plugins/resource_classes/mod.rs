//! DeviceClasses by the extended resource that they provide (KEP-5004). Several plugins share them.
//!
//! Upstream: `extendedresourcecache`.

mod index;

use evenkeel_api::views::DeviceClass;
use evenkeel_runtime::cache::CacheEvent;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::framework::Handle;
use index::ClassIndex;
pub(super) use index::{implicit_resource_name, may_be_provided_by_devices};

/// DeviceClasses by the extended resource that they provide. Updated by the events of the cluster.
#[derive(Debug, Default)]
pub(super) struct ResourceClasses(Mutex<ClassIndex>);

impl ResourceClasses {
    /// Subscribes to the cluster's DeviceClasses.
    pub(super) fn subscribe(self: &Arc<Self>, handle: &Handle) {
        let classes = Arc::clone(self);
        handle.watch::<DeviceClass>().subscribe(move |event| match event {
            CacheEvent::Deleted(class) => classes.index().remove(&class.meta.name),
            event => classes.set(Arc::clone(event.object())),
        });
    }

    /// Adds or replaces a class.
    pub(super) fn set(&self, class: Arc<DeviceClass>) {
        self.index().set(class);
    }

    /// Returns the class of an extended resource.
    pub(super) fn class_of(&self, resource: &str) -> Option<Arc<DeviceClass>> {
        self.index().class_of(resource)
    }

    /// Locks the index of classes.
    fn index(&self) -> MutexGuard<'_, ClassIndex> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
