//! Controllers of the API's own machinery.

pub mod storage_version_migrator;
