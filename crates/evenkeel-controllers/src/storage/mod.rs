//! Controllers of volumes: what binds, protects, makes, grows and attaches them.

pub mod attachdetach;
pub mod binder;
pub mod ephemeralvolume;
pub mod expander;
pub mod persistentvolumeclaimprotection;
pub mod persistentvolumeprotection;
pub mod volumeattributesclassprotection;

mod finalizers;
