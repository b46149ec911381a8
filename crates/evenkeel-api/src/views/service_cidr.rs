//! ServiceCIDRs: the ranges that cluster IPs are given out of.

use super::disruption::MetaCondition;
use crate::Meta;
use crate::decode::{message, view};
use crate::text::Text;

message! {
    /// A range of cluster IPs, or one for each family.
    pub struct ServiceCidr("k8s.io.api.networking.v1.ServiceCIDR") {
        /// Metadata.
        meta: Meta = 1 "metadata",
        /// What should be.
        spec: ServiceCidrSpec = 2 "spec",
        /// What is.
        status: ServiceCidrStatus = 3 "status",
    }
}

view!(ServiceCidr, "networking.k8s.io", "v1", "ServiceCIDR", "servicecidrs", false);

message! {
    /// What should be.
    pub struct ServiceCidrSpec("k8s.io.api.networking.v1.ServiceCIDRSpec") {
        /// The ranges.
        cidrs: Box<[Text]> = 1 "cidrs",
    }
}

message! {
    /// What is.
    pub struct ServiceCidrStatus("k8s.io.api.networking.v1.ServiceCIDRStatus") {
        /// Conditions.
        conditions: Box<[MetaCondition]> = 1 "conditions",
    }
}
