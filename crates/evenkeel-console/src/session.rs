//! Sessions of logged-in users: the cluster's administrator by the URL's token, others by a bearer token of the API.
//!
//! A user's bearer token is stored only in this process's memory, in the client that sends it. Each browser has its own session
//! and a cookie with a random value. A session ends on log-out, or with the process. A user's session also ends an hour after
//! the last request.

use crate::{access::Token, permissions::Permission, source::PageError, source::Source};
use bytes::Bytes;
use evenkeel_api::time::Timestamp;
use evenkeel_runtime::{
    client::{ApiError, Client, full_text},
    clock::Clock,
};
use http::{HeaderValue, Request, StatusCode, header};
use ring::rand::SystemRandom;
use serde_json::{Value, json};
use std::{
    cmp::Reverse,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::Semaphore;
use tower::service_fn;

/// Maximum number of administrators' sessions, and of users' sessions. A further session ends one of the user who has most
/// of them, so that nobody can end the sessions of others by many log-ins.
const MAX_SESSIONS: usize = 32;
/// Time without a request after which a user's session ends.
const IDLE_TIMEOUT: Duration = Duration::from_secs(3600);
/// Maximum number of concurrent log-ins. Each queries the API server, and any client may try.
const MAX_LOGINS: usize = 8;

const SELF_REVIEW: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const ACCESS_REVIEW: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

/// A user whose requests the API server authorizes.
pub(crate) struct User {
    /// Name that the API server returns.
    pub(crate) name: String,
    /// Client with the user's token.
    reviews: Client,
}

impl User {
    /// Asks the API server whether the user has a permission.
    async fn has(&self, permission: &Permission) -> Result<bool, PageError> {
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": permission.spec(),
        });
        let answer = post(&self.reviews, ACCESS_REVIEW, &review).await;
        let answer = answer.map_err(|error| permission.error(Some(&self.name), &error))?;
        Ok(answer["status"]["allowed"] == true)
    }
}

/// A browser with access.
pub(crate) struct Session {
    /// Value of the cookie.
    cookie: Token,
    /// Token in each form that changes something.
    form: Token,
    /// The user. `None` is the cluster's administrator.
    user: Option<User>,
    /// Reads and writes in the user's name.
    pub(crate) source: Arc<Source>,
    /// Time of the last request.
    used: Mutex<Timestamp>,
}

impl Session {
    fn new(
        random: &SystemRandom,
        user: Option<User>,
        source: Arc<Source>,
        now: Timestamp,
    ) -> Result<Arc<Self>, PageError> {
        let draw = || Token::draw(random).map_err(|_| no_random_numbers());
        let (cookie, form) = (draw()?, draw()?);
        Ok(Arc::new(Self { cookie, form, user, source, used: Mutex::new(now) }))
    }

    /// Returns the name of the user. `None` is the cluster's administrator.
    pub(crate) fn user(&self) -> Option<&str> {
        self.user.as_ref().map(|user| &*user.name)
    }

    /// Returns the value of the cookie.
    pub(crate) fn cookie(&self) -> &str {
        self.cookie.text()
    }

    /// Returns the token of forms.
    pub(crate) fn form_token(&self) -> &str {
        self.form.text()
    }

    /// Returns whether a form has the token that a page of this session gave it.
    pub(crate) fn allows_form(&self, candidate: &str) -> bool {
        self.form.is(candidate)
    }

    /// Succeeds if the user has a permission. The administrator has all permissions.
    ///
    /// # Errors
    /// Fails if the user does not have the permission, or the API server does not respond.
    pub(crate) async fn require(&self, permission: &Permission) -> Result<(), PageError> {
        let Some(user) = &self.user else { return Ok(()) };
        match user.has(permission).await? {
            true => Ok(()),
            false => Err(permission.refusal(&user.name)),
        }
    }

    /// Returns whether the user has a permission. A refusal is added to `refused`.
    ///
    /// # Errors
    /// Fails if the API server does not respond.
    pub(crate) async fn check(
        &self,
        permission: &Permission,
        refused: &mut Vec<String>,
    ) -> Result<bool, PageError> {
        match self.require(permission).await {
            Ok(()) => Ok(true),
            Err(error) if error.status == StatusCode::FORBIDDEN => {
                if !refused.contains(&error.message) {
                    refused.push(error.message);
                }
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Timestamp> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the session has ended because its user sent no request. The administrator's session never ends for this
    /// reason, so that a page can stay open on a dashboard screen.
    fn is_idle(&self, now: Timestamp) -> bool {
        if self.user.is_none() {
            return false;
        }
        let idle = Duration::try_from(now.duration_since(*self.lock()));
        idle.is_ok_and(|idle| idle > IDLE_TIMEOUT)
    }
}

async fn post(client: &Client, target: &str, review: &Value) -> Result<Value, ApiError> {
    let mut request = Request::new(Bytes::from(review.to_string()));
    *request.method_mut() = http::Method::POST;
    *request.uri_mut() = target.parse().unwrap_or_default();
    for name in [header::CONTENT_TYPE, header::ACCEPT] {
        request.headers_mut().insert(name, HeaderValue::from_static("application/json"));
    }
    let answer = client.raw(request).await?;
    // A response that is not JSON grants nothing.
    Ok(serde_json::from_slice(answer.body()).unwrap_or_default())
}

/// All sessions of a console.
pub(crate) struct Sessions {
    random: SystemRandom,
    clock: Clock,
    /// Reads and writes in the administrator's name, for all sessions that began with the URL's token. `None` without such a
    /// token.
    administrator: Option<Arc<Source>>,
    /// Client without credentials.
    anonymous: kube::Client,
    /// Whether the switches of the simulation are served.
    allows_writes: bool,
    sessions: Mutex<Vec<Arc<Session>>>,
    logins: Semaphore,
}

fn no_random_numbers() -> PageError {
    let message = "The system has no random numbers for a session.".to_owned();
    PageError { status: StatusCode::INTERNAL_SERVER_ERROR, message }
}

impl Sessions {
    /// Creates an empty set of sessions. Requests of `administrator` have its credentials; requests of `anonymous` have none.
    /// Without an administrator, all users log in.
    pub(crate) fn new(
        administrator: Option<&kube::Client>,
        anonymous: kube::Client,
        clock: &Clock,
        allows_writes: bool,
    ) -> Self {
        let source = |kube| Arc::new(Source::new(kube, clock, None, allows_writes));
        Self {
            administrator: administrator.map(source),
            random: SystemRandom::new(),
            clock: clock.clone(),
            anonymous,
            allows_writes,
            sessions: Mutex::default(),
            logins: Semaphore::new(MAX_LOGINS),
        }
    }

    /// Returns the sessions that have not ended.
    fn live(&self) -> MutexGuard<'_, Vec<Arc<Session>>> {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.now();
        sessions.retain(|session| !session.is_idle(now));
        sessions
    }

    /// Adds a session. If the maximum number of its kind is reached, the user who has most sessions loses the one with the
    /// oldest last request.
    fn add(&self, session: &Arc<Session>) {
        let mut sessions = self.live();
        sessions.push(Arc::clone(session));
        let is_alike = |known: &&Arc<Session>| known.user.is_some() == session.user.is_some();
        while sessions.iter().filter(is_alike).count() > MAX_SESSIONS {
            let users = sessions.iter().filter(is_alike).map(|known| known.user());
            let count_of =
                |user: Option<&str>| users.clone().filter(|other| *other == user).count();
            let alike = sessions.iter().enumerate().filter(|(_, known)| is_alike(known));
            let ended =
                alike.min_by_key(|(_, known)| (Reverse(count_of(known.user())), *known.lock()));
            let Some((ended, _)) = ended else { break };
            sessions.remove(ended);
        }
    }

    /// Begins a session of the cluster's administrator, for a browser with the URL's token.
    ///
    /// # Errors
    /// Fails if the system provides no random numbers, or the console has no administrator.
    pub(crate) fn enter(&self) -> Result<Arc<Session>, PageError> {
        let Some(source) = self.administrator.clone() else {
            return Err(PageError::not_found(
                "No URL lets in here. Log in with a token of the API.",
            ));
        };
        let session = Session::new(&self.random, None, source, self.clock.now())?;
        self.add(&session);
        Ok(session)
    }

    /// Returns the session of a cookie's value, and records its use.
    pub(crate) fn find(&self, cookie: &str) -> Option<Arc<Session>> {
        let mut found = None;
        // All sessions are compared, so that the duration reveals nothing about their order.
        for session in self.live().iter() {
            if session.cookie.is(cookie) {
                found = Some(Arc::clone(session));
            }
        }
        if let Some(session) = &found {
            *session.lock() = self.clock.now();
        }
        found
    }

    /// Returns whether a session has not ended. An open page that polls for changes does not count as use of the session.
    pub(crate) fn is_live(&self, session: &Arc<Session>) -> bool {
        self.live().iter().any(|known| Arc::ptr_eq(known, session))
    }

    /// Ends a session.
    pub(crate) fn log_out(&self, session: &Arc<Session>) {
        self.live().retain(|known| !Arc::ptr_eq(known, session));
    }

    /// Begins the session of a bearer token's user.
    ///
    /// # Errors
    /// Fails if the API server does not accept the token, or the system provides no random numbers.
    pub(crate) async fn log_in(&self, token: &str) -> Result<Arc<Session>, PageError> {
        let refused = |status, message: String| PageError { status, message };
        let Ok(_permit) = self.logins.try_acquire() else {
            let message = "Too many users log in at once. Try again in a moment.";
            return Err(refused(StatusCode::TOO_MANY_REQUESTS, message.to_owned()));
        };
        let token = token.trim();
        let bearer = HeaderValue::from_str(&format!("Bearer {token}"));
        let bearer = bearer.ok().filter(|_| !token.is_empty() && !token.contains(' '));
        let Some(mut bearer) = bearer else {
            let message = "This is not a bearer token. `kubectl create token NAME` prints one of a service account.";
            return Err(refused(StatusCode::BAD_REQUEST, message.to_owned()));
        };
        bearer.set_sensitive(true);
        let namespace = self.anonymous.default_namespace().to_owned();
        let anonymous = self.anonymous.clone();
        let with_token = service_fn(move |mut request: Request<kube::client::Body>| {
            request.headers_mut().insert(header::AUTHORIZATION, bearer.clone());
            let anonymous = anonymous.clone();
            async move { anonymous.send(request).await }
        });
        let kube = kube::Client::new(with_token, namespace);
        let reviews = Client::builder(kube.clone(), self.clock.clone()).qps(-1.0);
        let reviews = reviews.user_agent("evenkeel-console").build();
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
        let review = post(&reviews, SELF_REVIEW, &review).await.map_err(|error| {
            let message = match error.code() {
                401 => {
                    "The API server does not accept this token: it is wrong, or no longer valid."
                        .to_owned()
                }
                _ => format!(
                    "The API server does not say whose token this is: {}",
                    full_text(&error)
                ),
            };
            let status =
                StatusCode::from_u16(error.code()).ok().filter(StatusCode::is_client_error);
            refused(status.unwrap_or(StatusCode::BAD_GATEWAY), message)
        })?;
        let name = review["status"]["userInfo"]["username"].as_str().unwrap_or_default();
        if matches!(name, "" | "system:anonymous") {
            let message = "The API server knows no user with this token.";
            return Err(refused(StatusCode::UNAUTHORIZED, message.to_owned()));
        }
        let source = Source::new(&kube, &self.clock, Some(name), self.allows_writes);
        let user = User { name: name.to_owned(), reviews };
        let source = Arc::new(source);
        let session = Session::new(&self.random, Some(user), source, self.clock.now())?;
        self.add(&session);
        Ok(session)
    }
}
