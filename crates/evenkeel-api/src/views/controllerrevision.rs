//! ControllerRevisions: templates that StatefulSets and DaemonSets had or have.

use crate::Meta;
use crate::decode::{message, view};
use crate::template::Restored;

message! {
    /// Revision of the template of a StatefulSet or DaemonSet.
    pub struct ControllerRevision("k8s.io.api.apps.v1.ControllerRevision") {
        /// Metadata.
        meta: Meta = 1 "metadata",
        /// The pod template that it restores.
        data: Restored = 2 "data",
        /// Its place in the history.
        revision: i64 = 3 "revision",
    }
}

view!(ControllerRevision, "apps", "v1", "ControllerRevision", "controllerrevisions", true);
