//! ServiceCIDRs: the ranges that cluster IPs are given out of.

use super::poddisruptionbudget::MetaCondition;
use crate::Meta;
use crate::decode::{message, view};
use crate::text::Text;

message! {
    /// A range of cluster IPs, or one for each family.
    pub struct ServiceCidr("k8s.io.api.networking.v1.ServiceCIDR") {
        /// Metadata.
        meta: Meta = 1 "metadata",
        /// Desired state of the object.
        spec: ServiceCidrSpec = 2 "spec",
        /// Observed state of the object.
        status: ServiceCidrStatus = 3 "status",
    }
}

view!(ServiceCidr, "networking.k8s.io", "v1", "ServiceCIDR", "servicecidrs", false);

message! {
    /// Desired state of a ServiceCidr.
    pub struct ServiceCidrSpec("k8s.io.api.networking.v1.ServiceCIDRSpec") {
        /// The ranges.
        cidrs: Box<[Text]> = 1 "cidrs",
    }
}

message! {
    /// Conditions of a ServiceCIDR.
    pub struct ServiceCidrStatus("k8s.io.api.networking.v1.ServiceCIDRStatus") {
        /// Conditions.
        conditions: Box<[MetaCondition]> = 1 "conditions",
    }
}
