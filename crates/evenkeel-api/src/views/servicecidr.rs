//! ServiceCIDRs: ranges from which cluster IPs are allocated.

use super::poddisruptionbudget::MetaCondition;
use crate::Meta;
use crate::decode::{message, view};
use crate::text::Text;

message! {
    /// ServiceCIDR: a range of cluster IPs, or one per IP family.
    pub struct ServiceCidr("k8s.io.api.networking.v1.ServiceCIDR") {
        /// Metadata; the ServiceCIDR named `kubernetes` has the ranges of the API server's flags.
        meta: Meta = 1 "metadata",
        /// Desired state of the object.
        spec: ServiceCidrSpec = 2 "spec",
        /// Observed state of the object.
        status: ServiceCidrStatus = 3 "status",
    }
}

view!(ServiceCidr, "networking.k8s.io", "v1", "ServiceCIDR", "servicecidrs", cluster_scoped);

message! {
    /// Ranges of a ServiceCIDR.
    pub struct ServiceCidrSpec("k8s.io.api.networking.v1.ServiceCIDRSpec") {
        /// CIDRs of cluster IPs, at most one per IP family.
        cidrs: Box<[Text]> = 1 "cidrs",
    }
}

message! {
    /// Conditions of a ServiceCIDR.
    pub struct ServiceCidrStatus("k8s.io.api.networking.v1.ServiceCIDRStatus") {
        /// Condition `Ready`: whether addresses are allocated from the CIDRs.
        conditions: Box<[MetaCondition]> = 1 "conditions",
    }
}
