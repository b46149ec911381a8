//! ResourceClaims and DeviceClasses, as far as it concerns how many devices are asked for.

use crate::Meta;
use crate::decode::{message, view};

message! {
    /// A claim to devices.
    pub struct ResourceClaim("k8s.io.api.resource.v1.ResourceClaim") {
        /// Metadata.
        meta: Meta = 1 "metadata",
        /// What is asked for.
        spec: ResourceClaimSpec = 2 "spec",
    }
}

view!(ResourceClaim, "resource.k8s.io", "v1", "ResourceClaim", "resourceclaims", true);

message! {
    /// What is asked for.
    pub struct ResourceClaimSpec("k8s.io.api.resource.v1.ResourceClaimSpec") {
        /// Devices.
        devices: DeviceClaim = 1 "devices",
    }
}

message! {
    /// Devices.
    pub struct DeviceClaim("k8s.io.api.resource.v1.DeviceClaim") {
        /// All of which are wanted.
        requests: Box<[DeviceRequest]> = 1 "requests",
    }
}

message! {
    /// Devices of one sort.
    pub struct DeviceRequest("k8s.io.api.resource.v1.DeviceRequest") {
        /// Just these.
        exactly: Option<Box<ExactDeviceRequest>> = 2 "exactly",
        /// The first of these that can be had.
        first_available: Box<[DeviceSubRequest]> = 3 "firstAvailable",
    }
}

message! {
    /// Devices of a class.
    pub struct ExactDeviceRequest("k8s.io.api.resource.v1.ExactDeviceRequest") {
        /// The class.
        device_class_name: Box<str> = 1 "deviceClassName",
        /// `ExactCount` or `All`.
        allocation_mode: Box<str> = 3 "allocationMode",
        /// How many.
        count: i64 = 4 "count",
    }
}

message! {
    /// Devices of a class, as one choice of several.
    pub struct DeviceSubRequest("k8s.io.api.resource.v1.DeviceSubRequest") {
        /// The class.
        device_class_name: Box<str> = 2 "deviceClassName",
        /// `ExactCount` or `All`.
        allocation_mode: Box<str> = 4 "allocationMode",
        /// How many.
        count: i64 = 5 "count",
    }
}

message! {
    /// A class of devices.
    pub struct DeviceClass("k8s.io.api.resource.v1.DeviceClass") {
        /// Metadata.
        meta: Meta = 1 "metadata",
        /// What it is.
        spec: DeviceClassSpec = 2 "spec",
    }
}

view!(DeviceClass, "resource.k8s.io", "v1", "DeviceClass", "deviceclasses", false);

message! {
    /// What a class is.
    pub struct DeviceClassSpec("k8s.io.api.resource.v1.DeviceClassSpec") {
        /// Extended resource by which containers may ask for its devices; empty for none.
        extended_resource_name: Box<str> = 4 "extendedResourceName",
    }
}
