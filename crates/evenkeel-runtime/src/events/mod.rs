//! Event recorders: report to users what controllers do, as Event objects.
//!
//! [`EventRecorder`] writes core/v1 Events as client-go's `tools/record` does: repeats are counted on one object, similar events
//! are aggregated, and a spam filter limits a source's events about one object. [`SeriesEventRecorder`] writes events.k8s.io/v1
//! Events as client-go's `tools/events` does. Recording never blocks; events that do not fit into the queue are
//! dropped and counted.

mod correlate;
mod lru;
mod record;
mod series;
mod series_record;
mod sink;
mod wire;

pub use record::EventRecorder;
pub use series_record::SeriesEventRecorder;
