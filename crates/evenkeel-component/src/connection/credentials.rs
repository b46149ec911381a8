//! Credentials of individual controllers (`--use-service-account-credentials`). The program requests and renews a
//! token for each controller's service account in `kube-system` (TokenRequest). RBAC then grants each controller
//! only its own permissions.

use anyhow::{Context as _, Result};
use bytes::Bytes;
use evenkeel_runtime::{
    client::{ApiError, Client},
    clock::Clock,
    tasks::{Tasks, watch},
};
use futures::future::BoxFuture;
use http::{HeaderValue, Request, Response, StatusCode, header};
use kube::client::Body;
use serde::Deserialize;
use serde_json::json;
use std::{
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tower::{BoxError, Service};

/// Namespace of the controllers' service accounts.
const NAMESPACE: &str = "kube-system";
/// Requested lifetime of a token. The server may grant another one.
const TOKEN_LIFETIME: Duration = Duration::from_secs(3600);
/// Fraction of its lifetime after which a token is renewed.
const RENEWAL_FRACTION: f64 = 0.8;
/// Initial backoff between requests for a token. It doubles with each failure.
const INITIAL_BACKOFF: Duration = Duration::from_secs(1);
/// Maximum backoff between requests for a token.
const MAX_BACKOFF: Duration = Duration::from_secs(30);

/// Creates clients with the credentials of service accounts.
#[derive(Clone)]
pub(crate) struct Credentials {
    /// Client that requests tokens.
    token_client: Client,
    /// Client without credentials.
    anonymous: kube::Client,
    clock: Clock,
    tasks: Tasks,
}

impl Credentials {
    /// Creates credentials. `token_client` requests the tokens, `anonymous` sends the requests with them, and `tasks`
    /// renew them.
    pub(crate) fn new(
        token_client: Client,
        anonymous: kube::Client,
        clock: Clock,
        tasks: Tasks,
    ) -> Self {
        Self { token_client, anonymous, clock, tasks }
    }

    /// Returns a client with the token of this service account. Its requests wait for the first token.
    pub(crate) fn connect(&self, account: &str) -> kube::Client {
        let (sender, token) = watch::channel(None);
        let rejected = Arc::new(Notify::new());
        let (this, name, renew_now) = (self.clone(), account.to_owned(), rejected.clone());
        // Cancelled when no client uses the token any longer.
        let (sender, unused) = (Arc::new(sender), CancellationToken::new());
        let task = format!("token of {account}");
        self.tasks.spawn_restarting_until(task, &unused.clone(), move || {
            let (this, name) = (this.clone(), name.clone());
            let (sender, renew_now, unused) = (sender.clone(), renew_now.clone(), unused.clone());
            async move {
                this.keep_renewed(&name, &sender, &renew_now).await;
                unused.cancel();
            }
        });
        kube::Client::new(WithToken { inner: self.anonymous.clone(), token, rejected }, "default")
    }

    /// Renews the account's token while a client uses it.
    async fn keep_renewed(
        &self,
        account: &str,
        sender: &watch::Sender<Option<HeaderValue>>,
        rejected: &Notify,
    ) {
        let mut backoff = INITIAL_BACKOFF;
        while !sender.is_closed() {
            match self.token(account).await {
                Ok((token, lifetime)) => {
                    sender.send_replace(Some(token));
                    backoff = INITIAL_BACKOFF;
                    tokio::select! {
                        biased;
                        () = rejected.notified() => self.clock.sleep(INITIAL_BACKOFF).await,
                        () = self.clock.sleep(lifetime.mul_f64(RENEWAL_FRACTION)) => {}
                    }
                }
                Err(error) => {
                    tracing::warn!(
                        account,
                        error = format!("{error:#}"),
                        "No token for a service account, will try again"
                    );
                    self.clock.sleep(backoff).await;
                    backoff = (backoff * 2).min(MAX_BACKOFF);
                }
            }
        }
    }

    /// Requests a token and returns it with its lifetime. Creates the service account if it does not exist.
    async fn token(&self, account: &str) -> Result<(HeaderValue, Duration)> {
        let answer = match self.request(account).await {
            Err(error) if error.is_not_found() => {
                self.create_account(account).await.context("the service account cannot be made")?;
                self.request(account).await
            }
            answer => answer,
        }
        .context("the server gives none")?;
        let token_request: TokenRequest =
            serde_json::from_slice(&answer).context("the server's answer cannot be read")?;
        let mut token = HeaderValue::try_from(format!("Bearer {}", token_request.status.token))
            .context("it is not a token")?;
        token.set_sensitive(true);
        let lifetime = token_request.status.expiration_timestamp.duration_since(self.clock.now());
        Ok((token, Duration::try_from(lifetime).unwrap_or(MAX_BACKOFF).max(INITIAL_BACKOFF)))
    }

    async fn request(&self, account: &str) -> Result<Bytes, ApiError> {
        let path = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{account}/token");
        let body = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"expirationSeconds": TOKEN_LIFETIME.as_secs()},
        });
        self.post(path, body.to_string()).await
    }

    async fn create_account(&self, account: &str) -> Result<(), ApiError> {
        let body = json!({
            "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account, "namespace": NAMESPACE},
        });
        match self
            .post(format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts"), body.to_string())
            .await
        {
            Err(error) if !error.is_already_exists() => Err(error),
            _ => Ok(()),
        }
    }

    async fn post(&self, path: String, body: String) -> Result<Bytes, ApiError> {
        let mut request = Request::new(Bytes::from(body));
        *request.method_mut() = http::Method::POST;
        *request.uri_mut() = path.parse().unwrap_or_default();
        let json = HeaderValue::from_static("application/json");
        request.headers_mut().insert(header::CONTENT_TYPE, json.clone());
        request.headers_mut().insert(header::ACCEPT, json);
        Ok(self.token_client.raw(request).await?.into_body())
    }
}

/// Response to a TokenRequest.
#[derive(Deserialize)]
struct TokenRequest {
    status: TokenStatus,
}

/// Status of a TokenRequest: the token, and the end of its validity.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TokenStatus {
    token: String,
    expiration_timestamp: evenkeel_api::time::Timestamp,
}

/// Service that sends requests with the current token.
#[derive(Clone)]
struct WithToken {
    inner: kube::Client,
    token: watch::Receiver<Option<HeaderValue>>,
    /// Notified when the server rejects the token, for example because its account was recreated.
    rejected: Arc<Notify>,
}

impl Service<Request<Body>> for WithToken {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<Body>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let Self { inner, mut token, rejected } = self.clone();
        Box::pin(async move {
            let current = token.wait_for(Option::is_some).await.map(|token| token.clone());
            // The renewal task has stopped, because the program ends.
            let Ok(Some(current)) = current else { return Err("no token any more".into()) };
            request.headers_mut().insert(header::AUTHORIZATION, current);
            let response = inner.send(request).await?;
            if response.status() == StatusCode::UNAUTHORIZED {
                rejected.notify_one();
            }
            Ok(response)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_api::views::{Pod, ServiceAccount};
    use evenkeel_apiserver::Server;
    use evenkeel_runtime::client::ListOptions;

    /// Returns two clients of one server: the administrator's, and one that is authenticated by its token.
    async fn clients_of_one_server() -> (Client, Credentials) {
        let server = Server::builder().build().await.expect("a server");
        let clock = Clock::system();
        let root = Client::new(kube::Client::new(server.service(), "default"), clock.clone());
        let anonymous_user = evenkeel_apiserver::User::anonymous();
        let anonymous = kube::Client::new(server.service_as(anonymous_user), "default");
        let credentials = Credentials::new(root.clone(), anonymous, clock, Tasks::new());
        (root, credentials)
    }

    #[tokio::test]
    async fn an_account_is_created_and_has_the_permissions_of_its_role() {
        let (root, credentials) = clients_of_one_server().await;
        let replicasets =
            Client::new(credentials.connect("replicaset-controller"), Clock::system());
        assert!(
            replicasets.list::<Pod>("", &ListOptions::default()).await.is_ok(),
            "its role lets it read pods"
        );
        let nodes =
            replicasets.list::<evenkeel_api::views::Node>("", &ListOptions::default()).await;
        assert!(nodes.is_err_and(|error| error.is_forbidden()), "and not nodes");
        assert!(root.get::<ServiceAccount>(NAMESPACE, "replicaset-controller").await.is_ok());
    }
}
