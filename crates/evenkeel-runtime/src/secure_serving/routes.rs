//! Routes: paths with their handlers.

use super::{guard::path, plain};
use crate::{health::Health, introspect::Introspection};
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response, StatusCode};
use std::{collections::BTreeMap, sync::Arc};

type Handler = Arc<dyn Fn(Request<Bytes>) -> BoxFuture<'static, Response<Bytes>> + Send + Sync>;

/// Handlers by path, for all methods. The [`Guard`](super::Guard) authorizes each request first.
#[derive(Clone, Default)]
pub struct Routes {
    exact: BTreeMap<String, Handler>,
    prefixes: BTreeMap<String, Handler>,
    /// Paths that `/statusz` lists.
    listed: Vec<String>,
}

impl Routes {
    /// Returns routes without paths.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a path.
    #[must_use]
    pub fn get(
        mut self,
        path: &str,
        handler: impl Fn(&Request<Bytes>) -> Response<Bytes> + Send + Sync + 'static,
    ) -> Self {
        self.listed.push(path.to_owned());
        self.unlisted(path, handler)
    }

    /// Adds a path that `/statusz` does not list.
    #[must_use]
    pub fn unlisted(
        mut self,
        path: &str,
        handler: impl Fn(&Request<Bytes>) -> Response<Bytes> + Send + Sync + 'static,
    ) -> Self {
        self.exact.insert(path.to_owned(), immediate(handler));
        self
    }

    /// Adds a handler for all paths under a prefix, which ends in `/`.
    #[must_use]
    pub fn under(
        mut self,
        prefix: &str,
        handler: impl Fn(&Request<Bytes>) -> Response<Bytes> + Send + Sync + 'static,
    ) -> Self {
        self.prefixes.insert(prefix.to_owned(), immediate(handler));
        self
    }

    /// Adds a path with an async handler. `/statusz` does not list it.
    #[must_use]
    pub fn get_async<F>(
        mut self,
        path: &str,
        handler: impl Fn(Request<Bytes>) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Response<Bytes>> + Send + 'static,
    {
        self.exact.insert(path.to_owned(), Arc::new(move |request| Box::pin(handler(request))));
        self
    }

    /// Adds a path with the result of [`Health`], and a path below it for each check.
    #[must_use]
    pub fn health(self, name: &'static str, health: Health) -> Self {
        let prefix = format!("/{name}/");
        let (all_checks, prefix_length) = (health.clone(), prefix.len());
        let run_all = move |request: &Request<Bytes>| {
            let query = request.uri().query().unwrap_or_default();
            all_checks.answer(name, query).map(Bytes::from)
        };
        let run_one = move |request: &Request<Bytes>| {
            let path = path(request);
            let check = path.get(prefix_length..).unwrap_or_default();
            health.answer_one(check).map_or_else(not_found, |answer| answer.map(Bytes::from))
        };
        self.get(&format!("/{name}"), run_all).under(&prefix, run_one)
    }

    /// Adds `/metrics` with content negotiation.
    #[must_use]
    pub fn metrics(self, registry: prometheus::Registry) -> Self {
        self.get("/metrics", move |request| {
            crate::metrics::answer(request.headers(), &registry.gather())
        })
    }

    /// Adds `/debug/controllers` for all controllers, and `/debug/controllers/<name>` for one. `/statusz` does not list
    /// them.
    #[must_use]
    pub fn controllers(self, introspection: Introspection) -> Self {
        const PREFIX: &str = "/debug/controllers/";
        // Without a name, the report is about all controllers.
        const ALL_CONTROLLERS: &str = "";
        let query = |request: &Request<Bytes>| request.uri().query().unwrap_or_default().to_owned();
        let introspection_of_all = introspection.clone();
        let report_all = move |request: &Request<Bytes>| {
            introspection_of_all.answer(ALL_CONTROLLERS, &query(request))
        };
        let report_one = move |request: &Request<Bytes>| {
            let name = request.uri().path().strip_prefix(PREFIX).unwrap_or_default();
            introspection.answer(name, &query(request))
        };
        self.unlisted("/debug/controllers", report_all).under(PREFIX, report_one)
    }

    /// Returns the first segments of the paths that `/statusz` lists, sorted.
    pub fn listed(&self) -> Vec<String> {
        let first_segment = |path: &String| path.split('/').nth(1).map(|part| format!("/{part}"));
        let mut listed: Vec<String> = self.listed.iter().filter_map(first_segment).collect();
        listed.sort_unstable();
        listed.dedup();
        listed
    }

    pub(super) async fn answer(&self, request: Request<Bytes>) -> Response<Bytes> {
        match self.find(&path(&request)) {
            Some(handler) => handler(request).await,
            None => not_found(),
        }
    }

    /// Returns the handler of the exact path, or else of the longest prefix.
    fn find(&self, path: &str) -> Option<&Handler> {
        if let Some(handler) = self.exact.get(path) {
            return Some(handler);
        }
        // In reverse order, a longer prefix precedes its own prefixes.
        let mut longest_first = self.prefixes.iter().rev();
        let (_, handler) = longest_first.find(|(prefix, _)| path.starts_with(*prefix))?;
        Some(handler)
    }
}

fn immediate(
    handler: impl Fn(&Request<Bytes>) -> Response<Bytes> + Send + Sync + 'static,
) -> Handler {
    Arc::new(move |request| Box::pin(std::future::ready(handler(&request))))
}

fn not_found() -> Response<Bytes> {
    plain(StatusCode::NOT_FOUND, "404 page not found")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_exact_path_comes_before_the_longest_prefix() {
        let text = |text: &'static str| move |_: &Request<Bytes>| plain(StatusCode::OK, text);
        let routes = Routes::new()
            .get("/a", text("a"))
            .unlisted("/debug/x", text("exact"))
            .under("/debug/", text("under"))
            .under("/debug/deep/", text("deeper"))
            .health("readyz", Health::new());
        let table = [
            ("/a", "a\n"),
            ("/a?b", "a\n"),
            ("/%61", "a\n"),
            ("/a/", "404 page not found\n"),
            ("/debug", "404 page not found\n"),
            ("/debug/", "under\n"),
            ("/debug/x", "exact\n"),
            ("/debug/x/y", "under\n"),
            ("/debug/deep/y", "deeper\n"),
            ("/readyz", "ok"),
            ("/readyz/ping", "ok"),
            ("/readyz/nothing", "404 page not found\n"),
        ];
        for (path, expected) in table {
            let request = Request::get(path).body(Bytes::new()).unwrap();
            assert_eq!(routes.answer(request).await.body(), expected, "{path}");
        }
        assert_eq!(routes.listed(), ["/a", "/readyz"]);
    }
}
