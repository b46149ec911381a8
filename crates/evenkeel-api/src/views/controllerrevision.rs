//! ControllerRevisions: current and former templates of StatefulSets and DaemonSets.

use crate::Meta;
use crate::decode::{message, view};
use crate::template::RevisionTemplate;

message! {
    /// Revision of the template of a StatefulSet or DaemonSet.
    pub struct ControllerRevision("k8s.io.api.apps.v1.ControllerRevision") {
        /// Metadata; the name ends in a hash of the data, and the controlling owner is the workload.
        meta: Meta = 1 "metadata",
        /// Patch that restores the pod template of this revision.
        data: RevisionTemplate = 2 "data",
        /// Revision number in the owner's history; the newest has the greatest.
        revision: i64 = 3 "revision",
    }
}

view!(ControllerRevision, "apps", "v1", "ControllerRevision", "controllerrevisions", namespaced);
