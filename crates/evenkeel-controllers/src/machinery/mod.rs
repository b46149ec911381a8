//! Controllers of the API's own machinery.

pub mod storageversionmigrator;
