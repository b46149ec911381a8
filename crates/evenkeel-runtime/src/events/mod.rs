//! Tells users what controllers do, as Event objects.
//!
//! [`Recorder`] writes core/v1 Events as client-go's `tools/record` does: repeats are counted on one object, similar events
//! are combined, a source that says too much about one object is held back. [`SeriesRecorder`] writes events.k8s.io/v1
//! Events as client-go's `tools/events` does. Neither ever blocks who records; what does not fit into the queue is
//! dropped and counted.

mod correlate;
mod lru;
mod record;
mod series;
mod series_record;
mod sink;
mod wire;

pub use record::Recorder;
pub use series_record::SeriesRecorder;
