//! Controllers of the API's own machinery.

#[cfg(k8s_v1_37)]
pub mod storageversiongarbagecollector;
pub mod storageversionmigrator;
pub mod validatingadmissionpolicystatus;
