//! The embedded API server: a tower service, a store, the resource table.
