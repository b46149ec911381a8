//! Hashes of templates, and the alphabet names may use.
