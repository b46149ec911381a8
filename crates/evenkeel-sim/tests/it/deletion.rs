//! Deletions.
