//! Controllers of the API's own machinery.

pub mod storageversiongarbagecollector;
pub mod storageversionmigrator;
pub mod validatingadmissionpolicystatus;
