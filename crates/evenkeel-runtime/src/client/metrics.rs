//! What the client counts, under upstream's names.

use crate::metrics::{BODY_BYTES, REQUEST_SECONDS, counters, histograms};
use http::Method;
use prometheus::{HistogramVec, IntCounterVec, Registry};
use std::time::Duration;

/// Handles on the `rest_client_*` metrics, shared by every client of a program.
#[derive(Debug, Clone)]
pub struct RestMetrics {
    requests: IntCounterVec,
    retries: IntCounterVec,
    latency: HistogramVec,
    limiter: HistogramVec,
    request_size: HistogramVec,
    response_size: HistogramVec,
}

impl RestMetrics {
    /// Registers them.
    pub fn new(registry: &Registry) -> Self {
        const BY: &[&str] = &["verb", "host"];
        Self {
            requests: counters(
                registry,
                "rest_client_requests_total",
                "HTTP requests by status code, method and host.",
                &["code", "method", "host"],
            ),
            retries: counters(
                registry,
                "rest_client_request_retries_total",
                "Requests sent again, by status code, verb and host.",
                &["code", "verb", "host"],
            ),
            latency: histograms(
                registry,
                "rest_client_request_duration_seconds",
                "Seconds from request to answer, by verb and host.",
                REQUEST_SECONDS,
                BY,
            ),
            limiter: histograms(
                registry,
                "rest_client_rate_limiter_duration_seconds",
                "Seconds spent waiting for the client's own rate limit, by verb and host.",
                REQUEST_SECONDS,
                BY,
            ),
            request_size: histograms(
                registry,
                "rest_client_request_size_bytes",
                "Bytes of request bodies, by verb and host.",
                BODY_BYTES,
                BY,
            ),
            response_size: histograms(
                registry,
                "rest_client_response_size_bytes",
                "Bytes of response bodies, by verb and host.",
                BODY_BYTES,
                BY,
            ),
        }
    }

    /// One attempt ended; `code` is `<error>` when there was no answer.
    pub(crate) fn attempt(&self, code: &str, method: &Method, host: &str, again: bool) {
        self.requests.with_label_values(&[code, method.as_str(), host]).inc();
        if again {
            self.retries.with_label_values(&[code, method.as_str(), host]).inc();
        }
    }

    pub(crate) fn took(&self, method: &Method, host: &str, time: Duration) {
        self.latency.with_label_values(&[method.as_str(), host]).observe(time.as_secs_f64());
    }

    pub(crate) fn waited(&self, method: &Method, host: &str, time: Duration) {
        self.limiter.with_label_values(&[method.as_str(), host]).observe(time.as_secs_f64());
    }

    pub(crate) fn sent(&self, method: &Method, host: &str, bytes: usize) {
        self.request_size.with_label_values(&[method.as_str(), host]).observe(bytes as f64);
    }

    pub(crate) fn received(&self, method: &Method, host: &str, bytes: usize) {
        self.response_size.with_label_values(&[method.as_str(), host]).observe(bytes as f64);
    }
}
