//! Metrics of the client, with upstream's names.

use crate::metrics::{BODY_BYTES, REQUEST_SECONDS, counters, gauge, histograms, register};
use http::{Method, StatusCode};
use prometheus::{
    Gauge, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, Registry,
};
use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

/// The `rest_client_*` metrics, shared by every client of a program.
#[derive(Clone)]
pub struct RestMetrics(Arc<Families>);

struct Families {
    requests: IntCounterVec,
    retries: IntCounterVec,
    latency: HistogramVec,
    limiter: HistogramVec,
    request_size: HistogramVec,
    response_size: HistogramVec,
    transports: Gauge,
    transport_calls: IntCounterVec,
    hosts: Mutex<BTreeMap<Box<str>, Arc<HostMetrics>>>,
}

impl RestMetrics {
    /// Registers the metrics. Call it once for each registry.
    pub fn new(registry: &Registry) -> Self {
        const LABELS: &[&str] = &["verb", "host"];
        let times = |name, help| histograms(registry, name, help, REQUEST_SECONDS, LABELS);
        let sizes = |name, help| histograms(registry, name, help, BODY_BYTES, LABELS);
        Self(Arc::new(Families {
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
            latency: times(
                "rest_client_request_duration_seconds",
                "Seconds from request to answer, by verb and host.",
            ),
            limiter: times(
                "rest_client_rate_limiter_duration_seconds",
                "Seconds spent waiting for the client's own rate limit, by verb and host.",
            ),
            request_size: sizes(
                "rest_client_request_size_bytes",
                "Bytes of request bodies, by verb and host.",
            ),
            response_size: sizes(
                "rest_client_response_size_bytes",
                "Bytes of response bodies, by verb and host.",
            ),
            transports: gauge(
                registry,
                "rest_client_transport_cache_entries",
                "Transports, each of which several clients may share.",
            ),
            transport_calls: counters(
                registry,
                "rest_client_transport_create_calls_total",
                "Clients made, by whether they share a transport (hit) or got a new one (miss).",
                &["result"],
            ),
            hosts: Mutex::default(),
        }))
    }

    /// Registers the metrics of exec plug-ins' client certificates, for programs without such plug-ins: the
    /// time to expiry is infinite, and no certificate was rotated.
    pub fn without_exec_plugin(&self, registry: &Registry) {
        let help =
            "Seconds that the certificates of exec plug-ins are still valid; +Inf without any.";
        gauge(registry, "rest_client_exec_plugin_ttl_seconds", help).set(f64::INFINITY);
        let name = "rest_client_exec_plugin_certificate_rotation_age";
        let help = "Seconds that certificates of exec plug-ins were used before the next one.";
        // The buckets span ten minutes to four years.
        let bounds = [
            600.0,
            1800.0,
            3600.0,
            14_400.0,
            86_400.0,
            604_800.0,
            2_592_000.0,
            7_776_000.0,
            15_552_000.0,
            31_104_000.0,
            124_416_000.0,
        ];
        let opts = HistogramOpts::new(name, help).buckets(bounds.to_vec());
        let ages = Histogram::with_opts(opts).expect("name and rising bounds are literals");
        register(registry, ages);
    }

    /// Counts a new client. `shares_transport` is whether it uses the transport of another client.
    pub fn record_new_client(&self, shares_transport: bool) {
        let result = if shares_transport { "hit" } else { "miss" };
        self.0.transport_calls.with_label_values(&[result]).inc();
        self.0.transports.add(if shares_transport { 0.0 } else { 1.0 });
    }

    /// Returns the metrics of requests to one host.
    pub(super) fn for_host(&self, host: &str) -> Arc<HostMetrics> {
        let mut hosts = self.0.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || Arc::new(HostMetrics::new(&self.0, host));
        Arc::clone(hosts.entry(host.into()).or_insert_with(new))
    }
}

impl fmt::Debug for RestMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RestMetrics")
    }
}

/// HTTP methods of the Kubernetes API.
const METHODS: [Method; 5] =
    [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];

/// Frequent status codes. Their counters are cached.
const CODES: [u16; 8] = [200, 201, 202, 404, 409, 422, 429, 500];

/// Metrics of requests to one host, cached so that a request does not look up labels.
pub(super) struct HostMetrics {
    host: Box<str>,
    requests: IntCounterVec,
    retries: IntCounterVec,
    /// Request latency, rate limiter latency, request size and response size.
    histograms: [HistogramVec; 4],
    verbs: [OnceLock<VerbMetrics>; METHODS.len()],
}

/// Metrics of requests with one method to one host.
struct VerbMetrics {
    latency: Histogram,
    limiter: Histogram,
    request_size: Histogram,
    response_size: Histogram,
    requests: [OnceLock<IntCounter>; CODES.len()],
}

impl HostMetrics {
    fn new(families: &Families, host: &str) -> Self {
        let Families { requests, retries, latency, limiter, request_size, response_size, .. } =
            families;
        Self {
            host: host.into(),
            requests: requests.clone(),
            retries: retries.clone(),
            histograms: [latency, limiter, request_size, response_size].map(Clone::clone),
            verbs: Default::default(),
        }
    }

    /// Returns the metrics of a method, or `None` for a method that the Kubernetes API does not use.
    fn verb(&self, method: &Method) -> Option<&VerbMetrics> {
        let index = METHODS.iter().position(|known| known == method)?;
        Some(self.verbs[index].get_or_init(|| {
            let labels = &[method.as_str(), &self.host];
            let [latency, limiter, request_size, response_size] =
                self.histograms.each_ref().map(|histogram| histogram.with_label_values(labels));
            VerbMetrics {
                latency,
                limiter,
                request_size,
                response_size,
                requests: Default::default(),
            }
        }))
    }

    /// Counts one attempt by its status code. `code` is `None` without a response. `is_retry` also counts a retry.
    ///
    /// Upstream: `RequestResult`.
    pub(super) fn count_attempt(&self, code: Option<StatusCode>, method: &Method, is_retry: bool) {
        let code_index =
            code.and_then(|code| CODES.iter().position(|known| *known == code.as_u16()));
        let code_label = code.as_ref().map_or("<error>", StatusCode::as_str);
        let labels = [code_label, method.as_str(), &self.host];
        match self.verb(method).zip(code_index) {
            Some((verb, code_index)) => {
                verb.requests[code_index]
                    .get_or_init(|| self.requests.with_label_values(&labels))
                    .inc();
            }
            None => self.requests.with_label_values(&labels).inc(),
        }
        if is_retry {
            self.retries.with_label_values(&labels).inc();
        }
    }

    pub(super) fn observe_latency(&self, method: &Method, time: Duration) {
        if let Some(verb) = self.verb(method) {
            verb.latency.observe(time.as_secs_f64());
        }
    }

    pub(super) fn observe_rate_limiter_latency(&self, method: &Method, time: Duration) {
        if let Some(verb) = self.verb(method) {
            verb.limiter.observe(time.as_secs_f64());
        }
    }

    pub(super) fn observe_request_size(&self, method: &Method, bytes: usize) {
        if let Some(verb) = self.verb(method) {
            verb.request_size.observe(bytes as f64);
        }
    }

    pub(super) fn observe_response_size(&self, method: &Method, bytes: usize) {
        if let Some(verb) = self.verb(method) {
            verb.response_size.observe(bytes as f64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_counted_by_code_and_retries_separately() {
        let registry = Registry::new();
        let metrics = RestMetrics::new(&registry);
        let host = metrics.for_host("here:6443");
        for (code, is_retry) in
            [(Some(200), false), (Some(418), false), (None, true), (Some(200), false)]
        {
            let code = code.map(|code| StatusCode::from_u16(code).unwrap());
            host.count_attempt(code, &Method::GET, is_retry);
        }
        // Another client of the same host shares the counters.
        metrics.for_host("here:6443").count_attempt(
            Some(StatusCode::CREATED),
            &Method::POST,
            false,
        );
        let count =
            |code, method| metrics.0.requests.with_label_values(&[code, method, "here:6443"]).get();
        assert_eq!(
            [
                count("200", "GET"),
                count("418", "GET"),
                count("<error>", "GET"),
                count("201", "POST")
            ],
            [2, 1, 1, 1]
        );
        assert_eq!(metrics.0.retries.with_label_values(&["<error>", "GET", "here:6443"]).get(), 1);
    }

    #[test]
    fn clients_with_a_shared_transport_are_counted_as_hits() {
        let registry = Registry::new();
        let metrics = RestMetrics::new(&registry);
        [false, true, true].into_iter().for_each(|shared| metrics.record_new_client(shared));
        assert_eq!(metrics.0.transports.get(), 1.0);
        assert_eq!(metrics.0.transport_calls.with_label_values(&["hit"]).get(), 2);
    }
}
