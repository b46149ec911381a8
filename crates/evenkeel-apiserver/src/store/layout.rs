//! Tables of the engine's file, version 2.

use redb::TableDefinition;

/// Records by revision, in the format of the module `record`.
pub(super) const RECORDS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("records");
/// Numbers by name.
pub(super) const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
/// Name of the revision up to which history is compacted.
pub(super) const COMPACTED: &str = "compacted";
/// Name of the number of records.
pub(super) const N_RECORDS: &str = "records";
