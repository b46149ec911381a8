//! Namespaces: finalizers, phase and conditions.

use crate::Meta;
use crate::decode::{message, view};
use crate::text::Text;
use crate::time::Timestamp;

message! {
    /// Namespace with its finalizers and phase.
    pub struct Namespace("k8s.io.api.core.v1.Namespace") {
        /// Metadata; the label `kubernetes.io/metadata.name` repeats the name.
        meta: Meta = 1 "metadata",
        /// Desired state of the object.
        spec: NamespaceSpec = 2 "spec",
        /// Observed state of the object.
        status: NamespaceStatus = 3 "status",
    }
}

view!(Namespace, "", "v1", "Namespace", "namespaces", cluster_scoped);

message! {
    /// Desired state of a Namespace.
    pub struct NamespaceSpec("k8s.io.api.core.v1.NamespaceSpec") {
        /// Finalizers that delay the namespace's deletion.
        finalizers: Box<[Text]> = 1 "finalizers",
    }
}

message! {
    /// Phase of a namespace, and the conditions of its deletion.
    pub struct NamespaceStatus("k8s.io.api.core.v1.NamespaceStatus") {
        /// `Active` or `Terminating`.
        phase: Text = 1 "phase",
        /// Conditions of the deletion: remaining content, and failures to delete it.
        conditions: Box<[NamespaceCondition]> = 2 "conditions",
    }
}

message! {
    /// Condition of a namespace's deletion, such as `NamespaceContentRemaining`.
    pub struct NamespaceCondition("k8s.io.api.core.v1.NamespaceCondition") {
        /// Type of the condition.
        type_: Text = 1 "type",
        /// `True`, `False` or `Unknown`.
        status: Text = 2 "status",
        /// Time of the last change of the status.
        last_transition_time: Option<Timestamp> = 4 "lastTransitionTime",
        /// Reason for the last transition, in CamelCase.
        reason: Text = 5 "reason",
        /// Details of the last transition, for people.
        message: Text = 6 "message",
    }
}
