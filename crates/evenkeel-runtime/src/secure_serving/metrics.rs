//! Metrics of authentication and authorization on the secure port, under upstream's names.

use super::user::User;
use crate::metrics::{DEFAULT_SECONDS, counters, exponential, histograms, int_gauges, register};
use http::StatusCode;
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounterVec, IntGauge, IntGaugeVec, Registry,
};
use std::time::Duration;

/// Histogram bounds of a review's duration in seconds (apiserver's `delegated_auth…` metrics).
const REVIEW_SECONDS: &[f64] = &[0.25, 0.5, 0.7, 1.0, 1.5, 3.0, 5.0, 10.0];

/// Histogram bounds of a client certificate's remaining validity in seconds: half an hour to a year.
const CERTIFICATE_SECONDS: &[f64] = &[
    0.0,
    1800.0,
    3600.0,
    7200.0,
    21_600.0,
    43_200.0,
    86_400.0,
    172_800.0,
    345_600.0,
    604_800.0,
    2_592_000.0,
    7_776_000.0,
    15_552_000.0,
    31_104_000.0,
];

/// Metrics `authentication_*`, `authorization_*`, `authenticated_user_requests`, `apiserver_delegated_auth*`
/// and `apiserver_client_certificate_expiration_seconds`.
#[derive(Clone)]
pub struct Metrics {
    users: IntCounterVec,
    authentications: IntCounterVec,
    authentication_seconds: HistogramVec,
    authorizations: IntCounterVec,
    authorization_seconds: HistogramVec,
    certificate_seconds: Histogram,
    token: TokenMetrics,
    /// Number and durations of reviews, in the order of [`Review`].
    reviews: [(IntCounterVec, HistogramVec); 2],
}

#[derive(Clone)]
struct TokenMetrics {
    requests: IntCounterVec,
    seconds: HistogramVec,
    fetches: IntCounterVec,
    fetching: IntGaugeVec,
}

/// Kind of a review by the API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Review {
    Token,
    Access,
}

/// Result of an authentication or a review.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decision {
    Allowed,
    Denied,
    NoOpinion,
    Error,
}

impl Metrics {
    /// Registers the metrics. Call it once for each registry.
    pub fn register(registry: &Registry) -> Self {
        let by_result = &["result"];
        let buckets = exponential(0.001, 2.0, 15);
        let times = |name, help| histograms(registry, name, help, &buckets, by_result);
        let expiry = HistogramOpts::new(
            "apiserver_client_certificate_expiration_seconds",
            "Distribution of the remaining lifetime on the certificate used to authenticate a request.",
        )
        .buckets(CERTIFICATE_SECONDS.to_vec());
        let expiry = Histogram::with_opts(expiry).expect("name and rising bounds are literals");
        Self {
            users: counters(
                registry,
                "authenticated_user_requests",
                "Counter of authenticated requests broken out by username.",
                &["username"],
            ),
            authentications: counters(
                registry,
                "authentication_attempts",
                "Counter of authenticated attempts.",
                by_result,
            ),
            authentication_seconds: times(
                "authentication_duration_seconds",
                "Authentication duration in seconds broken out by result.",
            ),
            authorizations: counters(
                registry,
                "authorization_attempts_total",
                "Counter of authorization attempts broken down by result. It can be either 'allowed', 'denied', 'no-opinion' or 'error'.",
                by_result,
            ),
            authorization_seconds: times(
                "authorization_duration_seconds",
                "Authorization duration in seconds broken out by result.",
            ),
            certificate_seconds: register(registry, expiry),
            token: TokenMetrics::register(registry),
            reviews: [
                reviews(
                    registry,
                    "apiserver_delegated_authn_request_total",
                    "apiserver_delegated_authn_request_duration_seconds",
                ),
                reviews(
                    registry,
                    "apiserver_delegated_authz_request_total",
                    "apiserver_delegated_authz_request_duration_seconds",
                ),
            ],
        }
    }

    /// Counts an authentication with its duration. `user` is `None` if it failed.
    pub(super) fn record_authentication(&self, user: Option<&User>, duration: Duration) {
        let result = if user.is_some() { "success" } else { "error" };
        if let Some(user) = user {
            self.users.with_label_values(&[username_label(&user.name)]).inc();
        }
        self.authentications.with_label_values(&[result]).inc();
        self.authentication_seconds.with_label_values(&[result]).observe(duration.as_secs_f64());
    }

    /// Counts an authorization with its duration.
    pub(super) fn record_authorization(&self, decision: Decision, duration: Duration) {
        let result = match decision {
            Decision::Allowed => "allowed",
            Decision::Denied => "denied",
            Decision::NoOpinion => "no-opinion",
            Decision::Error => "error",
        };
        self.authorizations.with_label_values(&[result]).inc();
        self.authorization_seconds.with_label_values(&[result]).observe(duration.as_secs_f64());
    }

    /// Records the remaining validity of a client certificate.
    pub fn observe_certificate_validity(&self, remaining: Duration) {
        self.certificate_seconds.observe(remaining.as_secs_f64());
    }

    /// Counts the authentication of a token, by whether the cache had the result (`hit`).
    pub(super) fn record_token_authentication(&self, hit: bool, duration: Duration) {
        let status = if hit { "hit" } else { "miss" };
        self.token.requests.with_label_values(&[status]).inc();
        self.token.seconds.with_label_values(&[status]).observe(duration.as_secs_f64());
    }

    /// Counts a review by its status code. `code` is `None` without a response.
    pub(super) fn record_review(
        &self,
        review: Review,
        code: Option<StatusCode>,
        duration: Duration,
    ) {
        let text = code.as_ref().map_or("<error>", StatusCode::as_str);
        let (total, seconds) = &self.reviews[review as usize];
        total.with_label_values(&[text]).inc();
        seconds.with_label_values(&[text]).observe(duration.as_secs_f64());
        if review == Review::Token {
            let ok = code.is_some_and(|code| code.is_success());
            self.token.fetches.with_label_values(&[if ok { "ok" } else { "error" }]).inc();
        }
    }

    /// Counts a TokenReview as in flight until the guard is dropped.
    pub(super) fn token_review_in_flight(&self) -> InFlightGuard {
        let gauge = self.token.fetching.with_label_values(&["in_flight"]);
        gauge.inc();
        InFlightGuard(gauge)
    }
}

/// Guard of a review in flight.
pub(super) struct InFlightGuard(IntGauge);

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl TokenMetrics {
    fn register(registry: &Registry) -> Self {
        let labels = &["status"];
        let fetching = int_gauges(
            registry,
            "authentication_token_cache_active_fetch_count",
            "Number of TokenReviews in flight (in_flight), and of requests that wait for one (blocked).",
            labels,
        );
        // No request waits for another's review: each sends its own.
        for status in ["blocked", "in_flight"] {
            fetching.with_label_values(&[status]).set(0);
        }
        Self {
            requests: counters(
                registry,
                "authentication_token_cache_request_total",
                "Number of token authentications, by whether the cache had the result: hit or miss.",
                labels,
            ),
            seconds: histograms(
                registry,
                "authentication_token_cache_request_duration_seconds",
                "Duration of token authentications in seconds, by whether the cache had the result.",
                DEFAULT_SECONDS,
                labels,
            ),
            fetches: counters(
                registry,
                "authentication_token_cache_fetch_total",
                "Number of TokenReviews by their outcome: ok or error.",
                labels,
            ),
            fetching,
        }
    }
}

fn reviews(
    registry: &Registry,
    total: &'static str,
    seconds: &'static str,
) -> (IntCounterVec, HistogramVec) {
    let labels = &["code"];
    (
        counters(registry, total, "Number of HTTP requests partitioned by status code.", labels),
        histograms(
            registry,
            seconds,
            "Request latency in seconds. Broken down by status code.",
            REVIEW_SECONDS,
            labels,
        ),
    )
}

/// Returns the label of a user. Only well-known names are labels themselves, because there are many names, and they
/// may be personal data. apiserver's request filters use the same labels.
fn username_label(name: &str) -> &str {
    match name {
        "admin"
        | "client"
        | "kube_proxy"
        | "kubelet"
        | "system:serviceaccount:kube-system:default" => name,
        _ if name.contains('@') => "email_id",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_users_stay_out_of_labels() {
        for (name, want) in [
            ("kubelet", "kubelet"),
            ("jane@example.org", "email_id"),
            ("system:anonymous", "other"),
        ] {
            assert_eq!(username_label(name), want);
        }
    }

    #[test]
    fn reviews_are_counted_by_kind() {
        let metrics = Metrics::register(&Registry::new());
        let in_flight = metrics.token_review_in_flight();
        assert_eq!(metrics.token.fetching.with_label_values(&["in_flight"]).get(), 1);
        drop(in_flight);
        assert_eq!(metrics.token.fetching.with_label_values(&["in_flight"]).get(), 0);
        metrics.record_review(Review::Token, Some(StatusCode::CREATED), Duration::ZERO);
        metrics.record_review(Review::Access, None, Duration::ZERO);
        assert_eq!(metrics.reviews[0].0.with_label_values(&["201"]).get(), 1);
        assert_eq!(metrics.reviews[1].0.with_label_values(&["<error>"]).get(), 1);
        assert_eq!(metrics.token.fetches.with_label_values(&["ok"]).get(), 1);
    }
}
