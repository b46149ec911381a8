//! Requests and responses. Every response forbids frames, inline scripts, scripts from other hosts, and requests to other
//! hosts.

use crate::{
    Console,
    access::{Access, Site, decide, session_of},
    pages::Content,
    route::{Route, parameter},
    session::Session,
    simulation,
    source::PageError,
    streams::StreamPlace,
    view::{
        layout::{ErrorPage, Layout, LoginPage, Viewer},
        switches::Change,
    },
};
use askama::Template;
use bytes::Bytes;
use evenkeel_listener::{
    Accepted, ConnectionLimits, HttpOptions, Listener, Protocol, serve as serve_http,
};
use evenkeel_runtime::{
    secure_serving::Tls,
    tasks::{Tasks, watch},
};
use futures::stream;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header, request::Parts};
use http_body_util::{BodyExt as _, Full, Limited, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    body::{Frame, Incoming},
    service::service_fn,
};
use std::{convert::Infallible, net::SocketAddr, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
};
use tokio_util::sync::CancellationToken;

/// Body of a response.
pub type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Maximum size of a form in bytes.
const MAX_FORM_SIZE: usize = 16 * 1024;
/// Maximum size in bytes of a form from a logged-in user: it may contain objects, whose characters are escaped.
const MAX_TEXT_SIZE: usize = 2 * 1024 * 1024;
/// Timeout for the arrival of a form.
const FORM_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum time for connections to end when the console stops.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);
/// Number of ticks without a change after which a stream sends a comment, to detect a closed connection.
const QUIET_TICKS: u32 = 8;

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
    form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

/// Files of every page.
const ASSETS: [(&str, &str, &str); 3] = [
    ("/assets/console.css", "text/css; charset=utf-8", include_str!("../assets/console.css")),
    ("/assets/console.js", "text/javascript; charset=utf-8", include_str!("../assets/console.js")),
    ("/assets/icon.svg", "image/svg+xml", include_str!("../assets/icon.svg")),
];

const HTML: &str = "text/html; charset=utf-8";

fn respond(
    status: StatusCode,
    content_type: &'static str,
    text: impl Into<Bytes>,
) -> Response<Body> {
    let mut response = Response::new(Full::new(text.into()).boxed_unsync());
    *response.status_mut() = status;
    let value = HeaderValue::from_static(content_type);
    response.headers_mut().insert(header::CONTENT_TYPE, value);
    response
}

/// Responds with a report, which is a whole page with inline style and script. Its content security policy is in a `meta`
/// element. A report without this element gets the policy of all pages.
fn report(html: Bytes) -> Response<Body> {
    let policy = policy_of(&String::from_utf8_lossy(&html))
        .map(|policy| format!("{policy}; frame-ancestors 'none'"))
        .and_then(|policy| HeaderValue::from_str(&policy).ok());
    let mut response = respond(StatusCode::OK, HTML, html);
    if let Some(policy) = policy {
        response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    response
}

/// Returns the policy in a page's `meta` element.
fn policy_of(html: &str) -> Option<&str> {
    let head = html.split_once("<body")?.0;
    let (_, rest) = head.split_once("<meta http-equiv=\"Content-Security-Policy\" content=\"")?;
    rest.split_once('"').map(|(policy, _)| policy).filter(|it| it.starts_with("default-src 'none'"))
}

fn redirect(to: &str) -> Response<Body> {
    let mut response = respond(StatusCode::SEE_OTHER, HTML, "");
    // Paths of pages are percent-encoded.
    let to = HeaderValue::from_str(to).unwrap_or(HeaderValue::from_static("/"));
    response.headers_mut().insert(header::LOCATION, to);
    response
}

/// Returns a redirect to `to` that sets a cookie.
fn with_cookie(to: &str, cookie: &str) -> Response<Body> {
    let mut response = redirect(to);
    if let Ok(mut cookie) = HeaderValue::from_str(cookie) {
        cookie.set_sensitive(true);
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response
}

fn viewer(session: Option<&Session>) -> Viewer<'_> {
    session.map_or(Viewer::Stranger, |session| Viewer::Known {
        user: session.user().unwrap_or_default(),
        form_token: session.form_token(),
    })
}

fn title_of(status: StatusCode) -> &'static str {
    status.canonical_reason().unwrap_or("Error")
}

/// Returns the content that explains why there is no page. A user who may not list objects of all namespaces can choose one.
fn error_page(error: &PageError, route: Option<&Route>) -> String {
    let resource = match route {
        Some(Route::List(query)) if error.status == StatusCode::FORBIDDEN => &*query.resource,
        _ => "",
    };
    let wants_login = error.status == StatusCode::UNAUTHORIZED;
    let (title, message) = (title_of(error.status), &*error.message);
    ErrorPage { wants_login, resource, title, message }.render().unwrap_or_default()
}

fn protect(response: &mut Response<Body>) {
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        // Forms must send their origin, which `no-referrer` would remove.
        (header::REFERRER_POLICY, "same-origin"),
        (header::CACHE_CONTROL, "no-store"),
        (header::HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (header::HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        // A report has its own policy.
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
}

impl Console {
    /// Serves pages until `stop`, and samples the metrics for their plots.
    pub async fn serve(self: Arc<Self>, listener: TcpListener, stop: CancellationToken) {
        self.serve_connections(listener, None, stop).await;
    }

    /// Like [`Console::serve`], over TLS. Changed certificates are reloaded.
    pub async fn serve_tls(
        self: Arc<Self>,
        listener: TcpListener,
        tls: Arc<Tls>,
        stop: CancellationToken,
    ) {
        self.serve_connections(listener, Some(tls), stop).await;
    }

    async fn serve_connections(
        self: Arc<Self>,
        listener: TcpListener,
        tls: Option<Arc<Tls>>,
        stop: CancellationToken,
    ) {
        let Ok(address) = listener.local_addr() else { return };
        let tasks = Tasks::under(stop.clone());
        let sampling = Arc::clone(&self);
        tasks.spawn_restarting_until_cancelled("console samples", move || {
            let console = Arc::clone(&sampling);
            async move { console.sample().await }
        });
        let clock = self.clock.clone();
        if let Some(tls) = tls.clone() {
            let clock = clock.clone();
            tasks.spawn_restarting_until_cancelled("console certificates", move || {
                let (tls, clock) = (Arc::clone(&tls), clock.clone());
                async move { tls.keep_reloaded(&clock).await }
            });
        }
        let limits = ConnectionLimits::default();
        let mut listener = Listener::new(listener, limits, move || clock.instant());
        while let Some(accepted) = stop.run_until_cancelled(listener.accept()).await {
            let (console, tls, stop) = (Arc::clone(&self), tls.clone(), stop.clone());
            tasks.spawn_finite("console connection", async move {
                let Accepted { stream, slot: _slot, peer } = accepted;
                match tls {
                    None => console.serve_connection(stream, address, stop).await,
                    Some(tls) => {
                        let Some(stream) = tls.accept(stream, peer, &stop).await else { return };
                        console.serve_connection(stream, address, stop).await;
                    }
                }
            });
        }
        drop(listener);
        if let Some(what_if) = &self.what_if {
            what_if.cancel();
        }
        tasks.shut_down(DRAIN_TIMEOUT).await;
    }

    async fn serve_connection(
        self: Arc<Self>,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        address: SocketAddr,
        stop: CancellationToken,
    ) {
        let service_stop = stop.clone();
        let service = service_fn(move |request: Request<Incoming>| {
            let (console, stop) = (Arc::clone(&self), service_stop.clone());
            Box::pin(async move {
                let (parts, body) = request.into_parts();
                let find = |cookie: &str| console.sessions.find(cookie);
                let limit = match session_of(console.site(address), &parts.headers, find) {
                    Some(_) => MAX_TEXT_SIZE,
                    None => MAX_FORM_SIZE,
                };
                let form = Limited::new(body, limit).collect();
                let response = match tokio::time::timeout(FORM_TIMEOUT, form).await {
                    Ok(Ok(form)) => {
                        let request = Request::from_parts(parts, form.to_bytes());
                        console.answer(address, request, &stop).await
                    }
                    _ => respond(StatusCode::PAYLOAD_TOO_LARGE, "text/plain", "no such form\n"),
                };
                Ok::<_, Infallible>(response)
            })
        });
        let stopped = stop.cancelled();
        let served = serve_http(stream, Protocol::Http1, HttpOptions::default(), service, stopped);
        if let Err(error) = served.await {
            tracing::debug!(%error, "A connection of the console ended with an error");
        }
    }

    /// Responds to a request that arrived at the console's `address`. A stream of changes ends with `stop`.
    pub async fn answer(
        self: &Arc<Self>,
        address: SocketAddr,
        request: Request<Bytes>,
        stop: &CancellationToken,
    ) -> Response<Body> {
        let (parts, form) = request.into_parts();
        let mut response = self.route(self.site(address), &parts, &form, stop).await;
        protect(&mut response);
        response
    }

    fn site(&self, address: SocketAddr) -> Site {
        match &self.program {
            Some(_) => Site::Secure(address.port()),
            None => Site::Loopback(address.port()),
        }
    }

    async fn route(
        self: &Arc<Self>,
        site: Site,
        parts: &Parts,
        form: &[u8],
        stop: &CancellationToken,
    ) -> Response<Body> {
        let (path, query) = (parts.uri.path(), parts.uri.query().unwrap_or_default());
        let token = parameter(query, "token").filter(|_| path == "/");
        let find = |cookie: &str| self.sessions.find(cookie);
        let (method, headers) = (&parts.method, &parts.headers);
        let keys = self.keys.as_ref();
        let access = decide(keys, site, method, headers, token.as_deref(), find);
        let asset = ASSETS.iter().find(|(name, ..)| *name == path);
        let session = match (access, asset) {
            // The files are the same for all clients, and the page of a refusal needs them.
            (Access::Granted(_) | Access::Stranger, Some((_, type_, text))) => {
                return respond(StatusCode::OK, type_, *text);
            }
            (Access::Granted(session), None) => Some(session),
            (Access::Stranger, None) => None,
            (Access::Refused(status, message), _) => {
                return self.refuse(None, &PageError { status, message: message.to_owned() }, "/");
            }
            (Access::Enter, _) => return self.enter(site, headers),
        };
        let is_form = parts.method == Method::POST;
        let form = String::from_utf8_lossy(form);
        match (&session, path, is_form) {
            (_, "/login", false) => return self.login_page(session.as_deref(), StatusCode::OK, ""),
            (_, "/login", true) => return self.log_in(site, session.as_ref(), &form).await,
            (None, ..) if self.keys.is_none() => {
                return self.login_page(None, StatusCode::UNAUTHORIZED, "");
            }
            (None, ..) => {
                let message = "Open the URL that `evenkeel up` printed, or that `evenkeel console` prints, or log in.";
                let (status, message) = (StatusCode::UNAUTHORIZED, message.to_owned());
                return self.refuse(None, &PageError { status, message }, "/");
            }
            _ => {}
        }
        let Some(session) = session else { return redirect("/login") };
        self.visit();
        if is_form {
            return match self.carry_out(&session, path, &form).await {
                Ok(FormResponse::At(href)) if path == "/logout" => {
                    with_cookie(&href, &site.remove_cookie())
                }
                Ok(FormResponse::At(href)) => redirect(&href),
                Ok(FormResponse::Page(content, section)) => {
                    let (title, html) = (&*content.title, &*content.html);
                    self.frame(StatusCode::OK, title, section, "", viewer(Some(&session)), html)
                }
                Err(error) => {
                    let section = if path.starts_with(simulation::PATH) {
                        simulation::PATH
                    } else {
                        "/objects"
                    };
                    self.refuse(Some(&session), &error, section)
                }
            };
        }
        if path == "/live" {
            return self.live(&session, query, stop);
        }
        let Some(route) = Route::parse(path, query) else {
            let error = PageError::not_found(format!("There is no page {path}."));
            return self.refuse(Some(&session), &error, "/");
        };
        if let Route::WhatIfReport(number) = route {
            return match self.what_if_report(&session, number).await {
                Ok(html) => report(html),
                Err(error) => self.refuse(Some(&session), &error, route.section()),
            };
        }
        let target = parts.uri.path_and_query().map_or("/", |target| target.as_str());
        let target = if route.is_live() { target } else { "" };
        match self.content(&session, &route).await {
            Ok(content) => {
                let (title, html) = (&*content.title, &*content.html);
                let viewer = viewer(Some(&session));
                self.frame(StatusCode::OK, title, route.section(), target, viewer, html)
            }
            Err(error) => {
                let content = error_page(&error, Some(&route));
                let title = title_of(error.status);
                let viewer = viewer(Some(&session));
                self.frame(error.status, title, route.section(), "", viewer, &content)
            }
        }
    }

    fn frame(
        &self,
        status: StatusCode,
        title: &str,
        section: &str,
        live: &str,
        viewer: Viewer<'_>,
        content: &str,
    ) -> Response<Body> {
        let layout = Layout {
            title,
            cluster: &self.cluster,
            is_program: self.program.is_some(),
            has_pending: self.has_pending(),
            has_what_if: self.what_if.is_some(),
            section,
            live,
            viewer,
            content,
        };
        match layout.render() {
            Ok(html) => respond(status, HTML, html),
            Err(error) => {
                respond(StatusCode::INTERNAL_SERVER_ERROR, "text/plain", error.to_string())
            }
        }
    }

    fn refuse(
        &self,
        session: Option<&Session>,
        error: &PageError,
        section: &str,
    ) -> Response<Body> {
        let content = error_page(error, None);
        let title = title_of(error.status);
        self.frame(error.status, title, section, "", viewer(session), &content)
    }

    fn login_page(
        &self,
        session: Option<&Session>,
        status: StatusCode,
        message: &str,
    ) -> Response<Body> {
        let content = LoginPage { message }.render().unwrap_or_default();
        self.frame(status, "Log in", "/login", "", viewer(session), &content)
    }

    /// Begins a session of the administrator, which replaces the browser's session.
    fn enter(&self, site: Site, headers: &HeaderMap) -> Response<Body> {
        let former = session_of(site, headers, |cookie| self.sessions.find(cookie));
        match self.sessions.enter() {
            Ok(begun) => {
                if let Some(former) = former {
                    self.sessions.log_out(&former);
                }
                with_cookie("/", &site.set_cookie(begun.cookie()))
            }
            Err(error) => self.refuse(former.as_deref(), &error, "/"),
        }
    }

    /// Begins the session of a token's user, which replaces the browser's session.
    async fn log_in(
        &self,
        site: Site,
        session: Option<&Arc<Session>>,
        form: &str,
    ) -> Response<Body> {
        let token = parameter(form, "bearer").unwrap_or_default();
        match self.sessions.log_in(&token).await {
            Ok(begun) => {
                if let Some(session) = session {
                    self.sessions.log_out(session);
                }
                with_cookie("/", &site.set_cookie(begun.cookie()))
            }
            Err(error) => self.login_page(session.map(|s| &**s), error.status, &error.message),
        }
    }

    /// Carries out a form. Returns the page to show next.
    async fn carry_out(
        self: &Arc<Self>,
        session: &Arc<Session>,
        path: &str,
        form: &str,
    ) -> Result<FormResponse, PageError> {
        let edited = match Route::parse(path, "") {
            Some(Route::Edit(object)) => Some(object),
            _ => None,
        };
        let switch = path.strip_prefix(simulation::PATH).and_then(|it| it.strip_prefix('/'));
        let is_known = matches!(path, "/logout" | "/what-if" | "/what-if/cancel")
            || (path == "/switch" && self.program.is_none())
            || switch.is_some()
            || edited.is_some();
        if !is_known {
            return Err(PageError::not_found(format!("There is no form {path}.")));
        }
        let field = |name: &str| parameter(form, name);
        if !session.allows_form(&field("token").unwrap_or_default()) {
            let message = "The form is of another session. Load its page again.";
            return Err(PageError { status: StatusCode::FORBIDDEN, message: message.to_owned() });
        }
        if path == "/logout" {
            self.sessions.log_out(session);
            return Ok(FormResponse::At("/login".to_owned()));
        }
        if let Some(object) = edited {
            let content = self.edit(session, &object, Some(field("yaml").unwrap_or_default()));
            return Ok(FormResponse::Page(content.await?, "/objects"));
        }
        match path {
            "/what-if" => {
                return Ok(match self.start_what_if(session, form).await? {
                    None => FormResponse::At(path.to_owned()),
                    Some(content) => FormResponse::Page(content, "/what-if"),
                });
            }
            "/what-if/cancel" => {
                self.cancel_what_if(session, &field("run").unwrap_or_default()).await?;
                return Ok(FormResponse::At("/what-if".to_owned()));
            }
            _ => {}
        }
        if let Some(what) = switch {
            self.switch_simulation(session, what, field).await?;
            return Ok(FormResponse::At(simulation::PATH.to_owned()));
        }
        let change = Change::of_form(field).ok_or_else(|| PageError {
            status: StatusCode::BAD_REQUEST,
            message: "The form names no annotation of the simulation, or no object.".to_owned(),
        })?;
        Ok(FormResponse::At(session.source.change(&change).await?.href()))
    }

    /// Responds with a stream that sends the content of a page whenever it changes (server-sent events).
    fn live(
        self: &Arc<Self>,
        session: &Arc<Session>,
        query: &str,
        stop: &CancellationToken,
    ) -> Response<Body> {
        let page = parameter(query, "page").unwrap_or_default();
        let (path, query) = page.split_once('?').unwrap_or((&page, ""));
        let Some(route) = Route::parse(path, query).filter(Route::is_live) else {
            return respond(StatusCode::NOT_FOUND, "text/plain", "no such page\n");
        };
        let Some(place) = self.streams.take(session.user()) else {
            let text = "too many pages are open\n";
            return respond(StatusCode::SERVICE_UNAVAILABLE, "text/plain", text);
        };
        let changes = Changes {
            console: Arc::clone(self),
            session: Arc::clone(session),
            route,
            ticks: self.ticks.subscribe(),
            sent: String::new(),
            quiet: 0,
            stop: stop.clone(),
            _place: place,
        };
        let frames = stream::unfold(changes, |mut changes| async move {
            let frame = changes.next().await?;
            Some((Ok(Frame::data(frame)), changes))
        });
        let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
        let value = HeaderValue::from_static("text/event-stream");
        response.headers_mut().insert(header::CONTENT_TYPE, value);
        response
    }
}

/// Response to a submitted form.
enum FormResponse {
    /// Another page, by its path.
    At(String),
    /// This content, in this section of the navigation.
    Page(Content, &'static str),
}

/// Stream of a page's changes.
struct Changes {
    console: Arc<Console>,
    session: Arc<Session>,
    route: Route,
    ticks: watch::Receiver<u64>,
    sent: String,
    /// Number of ticks since the last part was sent.
    quiet: u32,
    stop: CancellationToken,
    _place: StreamPlace,
}

impl Changes {
    /// Waits for the next part of the stream. `None` ends it.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            self.stop.run_until_cancelled(self.ticks.changed()).await?.ok()?;
            // The stream ends with the session.
            if !self.console.sessions.is_live(&self.session) {
                return None;
            }
            let content = match self.console.content(&self.session, &self.route).await {
                Ok(content) => content.html,
                Err(error) => error_page(&error, Some(&self.route)),
            };
            self.quiet += 1;
            if content != self.sent {
                self.quiet = 0;
                // JSON has no line feeds, which would end the event's line.
                let data = serde_json::Value::String(content.clone());
                self.sent = content;
                return Some(format!("event: content\ndata: {data}\n\n").into());
            }
            if self.quiet >= QUIET_TICKS {
                self.quiet = 0;
                return Some(Bytes::from_static(b": nothing changed\n\n"));
            }
        }
    }
}
