//! Controllers of volumes and claims: binding, protection, provisioning, expansion and attachment.

pub mod attachdetach;
pub mod binder;
pub mod ephemeralvolume;
pub mod expander;
pub mod persistentvolumeclaimprotection;
pub mod persistentvolumeprotection;
pub mod selinuxwarning;
pub mod volumeattributesclassprotection;

mod iscsi_fc;

/// Buckets of the durations of volume operations, in seconds.
const DURATION_BUCKETS: [f64; 13] =
    [0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 25.0, 50.0, 120.0, 300.0, 600.0];
