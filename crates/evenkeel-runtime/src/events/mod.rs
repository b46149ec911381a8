//! Event recorders, which report the controllers' actions to users as Event objects.
//!
//! [`EventRecorder`] writes core/v1 Events as client-go's `tools/record` does. It counts repeats on one object,
//! aggregates similar events, and limits a source's events about one object with a spam filter.
//! [`SeriesEventRecorder`] writes events.k8s.io/v1 Events as client-go's `tools/events` does. Recording never
//! blocks: when the queue is full, an event is dropped and counted.

mod correlate;
mod lru;
mod record;
mod series;
mod series_record;
mod sink;
mod unique_times;
mod wire;

pub use record::EventRecorder;
pub use series_record::SeriesEventRecorder;
