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

/// Rate limit of reviews: requests per second, and burst. It suffices for the port's clients and does not overload
/// the API server.
const RATE: (f32, u32) = (200.0, 400);

/// Guard, and the parts that keep it current.
pub(super) struct Guarded {
    pub(super) guard: Guard,
    /// Follows the ConfigMap with the CAs.
    pub(super) lookup: Option<ClusterAuthentication>,
    /// Follow the files of the kubeconfigs for reviews.
    pub(super) reloads: Vec<ConfigReloader>,
}

/// Creates the guard from the options.
pub(super) async fn of(
    manager: &Manager,
    program: &str,
    options: &ServingOptions,
    trust: &Trust,
    clock: &Clock,
) -> Result<Guarded> {
    let open = AlwaysAllowPaths::new(&options.always_allow)
        .context("--authorization-always-allow-paths")?;
    let mut reloads = Vec::new();
    let mut connect = async |kubeconfig: Option<&str>| {
        let (client, reload) = connect(program, kubeconfig, clock).await?;
        reloads.extend(reload);
        Ok::<_, anyhow::Error>(client)
    };
    let authentication = connect(options.authentication_kubeconfig.as_deref())
        .await
        .context("--authentication-kubeconfig")?;
    let authorization = connect(options.authorization_kubeconfig.as_deref())
        .await
        .context("--authorization-kubeconfig")?;
    if authentication.is_none() {
        tracing::warn!("No --authentication-kubeconfig: bearer tokens are ignored");
    }
    if authorization.is_none() {
        tracing::warn!(
            "No --authorization-kubeconfig: only open paths and system:masters are authorized"
        );
    }
    let lookup = lookup(options, authentication.as_ref(), trust, clock).await?;
    let lookup = lookup.map(|lookup| lookup.counting(&manager.env().metrics.queues));
    let times = ReviewCacheTtls {
        token: options.token_ttl,
        granted: options.granted_ttl,
        denied: options.denied_ttl,
    };
    let reviews = |client: Option<Client>| {
        client.map(|client| ReviewClient::new(client, clock.clone(), times))
    };
    let (authentication, authorization) = (reviews(authentication), reviews(authorization));
    let guard = Guard::new(open, trust.clone(), authentication, authorization, clock.clone())
        .counting(&secure_serving::Metrics::register(manager.registry()));
    Ok(Guarded { guard, lookup, reloads })
}

async fn lookup(
    options: &ServingOptions,
    client: Option<&Client>,
    trust: &Trust,
    clock: &Clock,
) -> Result<Option<ClusterAuthentication>> {
    let clients = options.client_ca.is_none();
    let proxies = options.request_header.client_ca.is_none();
    if options.skip_lookup || !(clients || proxies) {
        return Ok(None);
    }
    let Some(client) = client else {
        tracing::warn!(
            "No --authentication-kubeconfig: only the CAs of --client-ca-file and --requestheader-client-ca-file are trusted"
        );
        return Ok(None);
    };
    let lookup = ClusterAuthentication::new(
        client.clone(),
        clock.clone(),
        ClientCaSources { clients, proxies },
    );
    match lookup.once(trust).await {
        Ok(()) => {}
        // As upstream, only a failure to read the front proxy's settings is fatal.
        Err(error) if options.tolerate_lookup_failure || !proxies => {
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
    Ok(Some(lookup))
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
        qps: RATE.0,
        burst: RATE.1,
        ..ConnectOptions::default()
    };
    if kubeconfig.is_none() {
        return Ok((client::connect_in_pod(&options, clock.clone())?, None));
    }
    let mut reload = ConfigReloader::new(options, clock.clone());
    let client = Client::builder(reload.transport(|_| {}).await?, clock.clone())
        .qps(RATE.0)
        .burst(RATE.1)
        .user_agent(program)
        .build();
    Ok((Some(client), Some(reload)))
}
