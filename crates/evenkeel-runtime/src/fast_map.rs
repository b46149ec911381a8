//! Maps by the keys of objects, of which each pass uses several.

/// Map whose hash takes a fraction of the time of the standard library's. Its seed is random.
pub(crate) type FastMap<K, V> = std::collections::HashMap<K, V, foldhash::fast::RandomState>;
