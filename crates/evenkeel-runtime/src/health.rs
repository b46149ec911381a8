//! Health checks, and the responses of `/healthz`, `/livez` and `/readyz`.
//!
//! Upstream: `healthz.InstallPathHandler`.

use http::{Response, StatusCode, header};
use std::{
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

/// Time between the expiry of an unrenewed lease and the failure of the health check `leaderElection`.
pub const LEADER_TOLERANCE: Duration = Duration::from_secs(20);

type Check = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// Observer of each check in a response: receives its name, the path (`healthz`), and whether it passed.
type Observer = Arc<dyn Fn(&str, &str, bool) + Send + Sync>;

/// Named health checks. Clones share them. Without any, responses contain `ping`, which always passes.
///
/// ```
/// use evenkeel_runtime::health::Health;
///
/// let health = Health::new();
/// health.add("disk", || Err("full".to_owned()));
/// let answer = health.answer("healthz", "");
/// assert_eq!(answer.status(), 500);
/// assert!(answer.body().contains("[-]disk failed: reason withheld"));
/// assert_eq!(health.answer("healthz", "exclude=disk").body(), "ok");
/// ```
#[derive(Clone)]
pub struct Health {
    checks: Arc<Mutex<Vec<(String, Check)>>>,
    observer: Arc<OnceLock<Observer>>,
}

impl Default for Health {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Health {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.lock().iter().map(|(name, _)| name)).finish()
    }
}

impl Health {
    /// Creates a set without checks.
    pub fn new() -> Self {
        Self { checks: Arc::default(), observer: Arc::default() }
    }

    /// Adds a check, or replaces the check of that name. It runs for each request, so it must be quick.
    pub fn add(&self, name: &str, check: impl Fn() -> Result<(), String> + Send + Sync + 'static) {
        let check: Check = Arc::new(check);
        let mut checks = self.lock();
        match checks.iter_mut().find(|(known, _)| known == name) {
            Some((_, known)) => *known = check,
            None => checks.push((name.to_owned(), check)),
        }
    }

    /// Sets the observer of checks, for metrics. It receives the name, the path (`healthz`), and whether the
    /// check passed. Only the first call has an effect.
    pub fn observe(&self, observer: impl Fn(&str, &str, bool) + Send + Sync + 'static) {
        let _ = self.observer.set(Arc::new(observer));
    }

    /// Returns the checks, or `ping` if there are none.
    fn checks(&self) -> Vec<(String, Check)> {
        let checks = self.lock().clone();
        if !checks.is_empty() {
            return checks;
        }
        let ping: Check = Arc::new(|| Ok(()));
        vec![("ping".to_owned(), ping)]
    }

    /// Returns the names of the failing checks, each with its reason.
    pub fn failures(&self) -> Vec<(String, String)> {
        let checks = self.lock().clone();
        checks
            .into_iter()
            .filter_map(|(name, check)| check().err().map(|reason| (name, reason)))
            .collect()
    }

    /// Returns the response for a path such as `healthz`, as apiserver's `healthz` package does. It is `ok`, or a line
    /// for each check if one fails or `query` contains `verbose`. `exclude=<name>` skips a check. Reasons are only
    /// logged.
    pub fn answer(&self, path: &str, query: &str) -> Response<String> {
        let mut excluded: Vec<String> = query_values(query, "exclude").collect();
        excluded.sort_unstable();
        excluded.dedup();
        let checks = self.checks();
        let unknown: Vec<String> = excluded
            .iter()
            .filter(|name| !checks.iter().any(|(known, _)| known == *name))
            .cloned()
            .collect();
        let (mut lines, mut failed) = (String::new(), false);
        for (name, check) in &checks {
            let line = if excluded.contains(name) {
                format!("[+]{name} excluded: ok")
            } else if let Err(reason) = self.run(name, path, check) {
                failed = true;
                tracing::info!(check = %name, reason, path, "health check failed");
                format!("[-]{name} failed: reason withheld")
            } else {
                format!("[+]{name} ok")
            };
            lines.push_str(&line);
            lines.push('\n');
        }
        if !unknown.is_empty() {
            let names: Vec<String> = unknown.iter().map(|name| format!("{name:?}")).collect();
            let names = names.join(",");
            lines.push_str("warn: some health checks cannot be excluded: no matches for ");
            lines.push_str(&names);
            lines.push('\n');
        }
        if failed {
            return text_response(
                StatusCode::INTERNAL_SERVER_ERROR,
                format!("{lines}{path} check failed\n"),
            );
        }
        if query_values(query, "verbose").next().is_none() {
            return text_response(StatusCode::OK, "ok".to_owned());
        }
        text_response(StatusCode::OK, format!("{lines}{path} check passed\n"))
    }

    /// Returns the response for a single check (`/healthz/<name>`), or `None` if no check has that name.
    pub fn answer_one(&self, name: &str) -> Option<Response<String>> {
        let (_, check) = self.checks().into_iter().find(|(known, _)| known == name)?;
        Some(match check() {
            Ok(()) => text_response(StatusCode::OK, "ok".to_owned()),
            Err(reason) => text_response(
                StatusCode::INTERNAL_SERVER_ERROR,
                format!("internal server error: {reason}\n"),
            ),
        })
    }

    fn run(&self, name: &str, path: &str, check: &Check) -> Result<(), String> {
        let result = check();
        if let Some(observer) = self.observer.get() {
            observer(name, path, result.is_ok());
        }
        result
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(String, Check)>> {
        self.checks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn text_response(status: StatusCode, body: String) -> Response<String> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        header::HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, header::HeaderValue::from_static("nosniff"));
    response
}

/// Returns the values of a query parameter. A parameter without `=` has an empty value. Does not unescape values,
/// because names of checks need no escaping.
fn query_values<'a>(query: &'a str, name: &'a str) -> impl Iterator<Item = String> + 'a {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    pairs.filter(move |(key, _)| *key == name).map(|(_, value)| value.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the failing check `leaderElection` and the passing check `replicaset`.
    fn unwell() -> Health {
        let health = Health::new();
        health.add("leaderElection", || Err("failed election to renew leadership".into()));
        health.add("replicaset", || Ok(()));
        health
    }

    #[test]
    fn responses_have_upstreams_text() {
        let table = [
            (
                "",
                500,
                "[-]leaderElection failed: reason withheld\n[+]replicaset ok\nhealthz check failed\n",
            ),
            ("exclude=leaderElection", 200, "ok"),
            (
                "verbose&exclude=leaderElection",
                200,
                "[+]leaderElection excluded: ok\n[+]replicaset ok\nhealthz check passed\n",
            ),
            (
                "verbose=1&exclude=leaderElection&exclude=x&exclude=y",
                200,
                "[+]leaderElection excluded: ok\n[+]replicaset ok\nwarn: some health checks cannot be \
                 excluded: no matches for \"x\",\"y\"\nhealthz check passed\n",
            ),
        ];
        for (query, status, body) in table {
            let answer = unwell().answer("healthz", query);
            assert_eq!(
                (answer.status().as_u16(), answer.body().as_str()),
                (status, body),
                "?{query}"
            );
        }
    }

    #[test]
    fn the_observer_receives_each_check() {
        let (health, reported) = (unwell(), Arc::new(Mutex::new(Vec::new())));
        let reporter = Arc::clone(&reported);
        health.observe(move |name, path, ok| {
            reporter.lock().unwrap().push((name.to_owned(), path.to_owned(), ok));
        });
        health.answer("livez", "");
        let want = [("leaderElection", false), ("replicaset", true)]
            .map(|(name, ok)| (name.to_owned(), "livez".to_owned(), ok));
        assert_eq!(*reported.lock().unwrap(), want);
    }

    #[test]
    fn a_single_check_returns_its_reason() {
        let answer = unwell().answer_one("leaderElection").unwrap();
        assert_eq!(answer.body(), "internal server error: failed election to renew leadership\n");
        assert_eq!(unwell().answer_one("replicaset").unwrap().status(), 200);
        assert!(unwell().answer_one("unknown").is_none());
    }

    #[test]
    fn a_check_of_the_same_name_replaces_the_first() {
        let health = unwell();
        health.add("leaderElection", || Ok(()));
        assert_eq!(health.failures(), []);
    }
}
