//! ServiceCIDRs: the ranges from which cluster IPs are allocated.

use super::poddisruptionbudget::MetaCondition;
use crate::Meta;
use crate::decode::{message, view};
use crate::text::Text;

message! {
    /// A range of cluster IPs, or one for each family.
    pub struct ServiceCidr("k8s.io.api.networking.v1.ServiceCIDR") {
        /// Metadata; the CIDR named `kubernetes` is the API server's own.
        meta: Meta = 1 "metadata",
        /// Desired state of the object.
        spec: ServiceCidrSpec = 2 "spec",
        /// Observed state of the object.
        status: ServiceCidrStatus = 3 "status",
    }
}

view!(ServiceCidr, "networking.k8s.io", "v1", "ServiceCIDR", "servicecidrs", false);

message! {
    /// Ranges of a ServiceCIDR.
    pub struct ServiceCidrSpec("k8s.io.api.networking.v1.ServiceCIDRSpec") {
        /// CIDRs of cluster IPs, at most one for each IP family.
        cidrs: Box<[Text]> = 1 "cidrs",
    }
}

message! {
    /// Conditions of a ServiceCIDR.
    pub struct ServiceCidrStatus("k8s.io.api.networking.v1.ServiceCIDRStatus") {
        /// Condition `Ready`: addresses are allocated from the CIDRs.
        conditions: Box<[MetaCondition]> = 1 "conditions",
    }
}
