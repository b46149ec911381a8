//! Names that are generated.
