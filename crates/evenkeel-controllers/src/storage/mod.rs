//! Controllers of volumes and claims: binding, protection, provisioning, expansion and attachment.

pub mod attachdetach;
pub mod binder;
pub mod ephemeralvolume;
pub mod expander;
pub mod persistentvolumeclaimprotection;
pub mod persistentvolumeprotection;
pub mod volumeattributesclassprotection;

mod finalizers;
