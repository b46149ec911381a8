//! Authentication and authorization of the secure port, as its flags configure them.

use crate::options::ServingOptions;
use crate::secure_serving::{
    self, AlwaysAllowPaths, ClientCaSources, ClusterAuthentication, Guard, ReviewCacheTtls,
    ReviewClient, Trust,
};
use anyhow::{Context, Result};
use evenkeel_runtime::{
    client::{self, Client, ConfigReloader, ConnectOptions, full_text},
    clock::Clock,
    manager::Manager,
};

/// Rate limit of reviews in requests per second. It suffices for the port's clients and does not overload the API
/// server.
const REVIEW_QPS: f32 = 200.0;
/// Reviews that may be sent in a burst.
const REVIEW_BURST: u32 = 400;

/// Authentication and authorization of the secure port, and the controllers that reload their CAs and credentials.
pub(super) struct AuthStack {
    pub(super) guard: Guard,
    /// Reads the CAs from the ConfigMap `extension-apiserver-authentication`, and follows its changes.
    pub(super) ca_controller: Option<ClusterAuthentication>,
    /// Reload `--authentication-kubeconfig` and `--authorization-kubeconfig` after changes.
    pub(super) kubeconfig_reloaders: Vec<ConfigReloader>,
}

/// Builds the guard from the options.
pub(super) async fn build(
    manager: &Manager,
    program: &str,
    options: &ServingOptions,
    trust: &Trust,
    clock: &Clock,
) -> Result<AuthStack> {
    let always_allowed = AlwaysAllowPaths::new(&options.always_allow)
        .context("--authorization-always-allow-paths")?;
    let mut kubeconfig_reloaders = Vec::new();
    let mut review_api_client = async |kubeconfig: Option<&str>| {
        let (client, reloader) = connect(program, kubeconfig, clock).await?;
        kubeconfig_reloaders.extend(reloader);
        Ok::<_, anyhow::Error>(client)
    };
    let authentication_client = review_api_client(options.authentication_kubeconfig.as_deref())
        .await
        .context("--authentication-kubeconfig")?;
    let authorization_client = review_api_client(options.authorization_kubeconfig.as_deref())
        .await
        .context("--authorization-kubeconfig")?;
    if authentication_client.is_none() {
        tracing::warn!("No --authentication-kubeconfig: bearer tokens are ignored");
    }
    if authorization_client.is_none() {
        tracing::warn!(
            "No --authorization-kubeconfig: only open paths and system:masters are authorized"
        );
    }
    let ca_controller = ca_controller(options, authentication_client.as_ref(), trust, clock)
        .await?
        .map(|controller| controller.with_metrics(&manager.env().metrics.queues));
    let ttls = ReviewCacheTtls {
        token: options.token_ttl,
        granted: options.granted_ttl,
        denied: options.denied_ttl,
    };
    let review_client = |client: Client| ReviewClient::new(client, clock.clone(), ttls);
    let token_reviews = authentication_client.map(review_client);
    let access_reviews = authorization_client.map(review_client);
    let guard =
        Guard::new(always_allowed, trust.clone(), token_reviews, access_reviews, clock.clone())
            .with_metrics(&secure_serving::Metrics::register(manager.registry()));
    Ok(AuthStack { guard, ca_controller, kubeconfig_reloaders })
}

/// Returns the controller of the CAs, after a first read. Returns `None` if flags set all CAs, the lookup is
/// disabled, or there is no client.
async fn ca_controller(
    options: &ServingOptions,
    client: Option<&Client>,
    trust: &Trust,
    clock: &Clock,
) -> Result<Option<ClusterAuthentication>> {
    // Flags take precedence: only a CA that no flag sets is read from the ConfigMap.
    let sources = ClientCaSources {
        clients: options.client_ca.is_none(),
        proxies: options.request_header.client_ca.is_none(),
    };
    if options.skip_lookup || !(sources.clients || sources.proxies) {
        return Ok(None);
    }
    let Some(client) = client else {
        tracing::warn!(
            "No --authentication-kubeconfig: only the CAs of --client-ca-file and --requestheader-client-ca-file are trusted"
        );
        return Ok(None);
    };
    let controller = ClusterAuthentication::new(client.clone(), clock.clone(), sources);
    match controller.read_once(trust).await {
        Ok(()) => {}
        // As upstream, only a failure to read the front proxy's settings is fatal.
        Err(error) if options.tolerate_lookup_failure || !sources.proxies => {
            let error = full_text(&error);
            tracing::warn!(
                error,
                "The trusted CAs cannot be read from the cluster; this may treat all requests as anonymous"
            );
        }
        Err(error) => {
            let hint = "unable to load configmap based request-header-client-ca-file (--authentication-tolerate-lookup-failure goes on without)";
            return Err(anyhow::Error::from(error).context(hint));
        }
    }
    Ok(Some(controller))
}

/// Returns a client for a kubeconfig, and the reloader of its files. Without a kubeconfig, returns the client
/// of the pod's service account.
async fn connect(
    program: &str,
    kubeconfig: Option<&str>,
    clock: &Clock,
) -> Result<(Option<Client>, Option<ConfigReloader>)> {
    let options = ConnectOptions {
        kubeconfig: kubeconfig.map(Into::into),
        user_agent: program.to_owned(),
        qps: REVIEW_QPS,
        burst: REVIEW_BURST,
        ..ConnectOptions::default()
    };
    if kubeconfig.is_none() {
        return Ok((client::connect_in_pod(&options, clock.clone())?, None));
    }
    let mut reloader = ConfigReloader::new(options, clock.clone());
    let client = Client::builder(reloader.transport(|_| {}).await?, clock.clone())
        .qps(REVIEW_QPS)
        .burst(REVIEW_BURST)
        .user_agent(program)
        .build();
    Ok((Some(client), Some(reloader)))
}
