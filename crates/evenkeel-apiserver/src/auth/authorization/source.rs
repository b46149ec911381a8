//! Creates authorizers from a configuration file or from flags, and follows changes of the file.
//!
//! Upstream: `reloadableAuthorizerResolver`, `BuiltInAuthorizationOptions`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;

use super::super::config_reloads::ConfigReloads;
use super::authorizing::{Authorizing, Named};
use super::config::{AuthorizationConfiguration, WebhookConfiguration};
use super::metrics::Metrics;
use super::validation::{self, ValidAuthorizer};
use super::webhook::{Settings, Webhook};
use crate::clock::Clock;
use crate::https::Target;

/// Name of the webhook that flags configure.
const WEBHOOK_OF_FLAGS: &str = "default";
/// Timeout of a call of the webhook that flags configure.
const TIMEOUT_OF_FLAGS: Duration = Duration::from_secs(30);

/// Options of the mode `Webhook`, named after kube-apiserver's flags.
#[derive(Debug, Clone)]
pub struct AuthorizationWebhookOptions {
    /// Kubeconfig file of the webhook (`--authorization-webhook-config-file`).
    pub config_file: PathBuf,
    /// Version of the SubjectAccessReview, `v1` or `v1beta1` (`--authorization-webhook-version`).
    pub version: String,
    /// Lifetime of a cached decision that allows (`--authorization-webhook-cache-authorized-ttl`).
    pub cache_authorized_ttl: Duration,
    /// Lifetime of any other cached decision (`--authorization-webhook-cache-unauthorized-ttl`).
    pub cache_unauthorized_ttl: Duration,
}

/// Configuration file with the state of its last load.
pub(crate) struct Source {
    path: PathBuf,
    clock: Clock,
    metrics: Arc<Metrics>,
    reloads: ConfigReloads,
    /// Types other than webhooks that the file had at the start. Later versions must keep them.
    required: BTreeSet<String>,
    last: Mutex<Loaded>,
}

/// Content of a configuration file.
#[derive(Default)]
struct Loaded {
    text: Vec<u8>,
    config: AuthorizationConfiguration,
}

impl Source {
    /// Loads the file for the first time.
    ///
    /// # Errors
    /// Fails if the file cannot be read, or its content is invalid. The error has the reason.
    pub(crate) fn load(
        path: &Path,
        server: &str,
        clock: Clock,
        metrics: Arc<Metrics>,
    ) -> Result<(Self, Vec<Named>), String> {
        let text = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let last = Mutex::default();
        let reloads = ConfigReloads::new("authorization", server);
        let (path, required) = (path.to_owned(), BTreeSet::new());
        let mut source = Self { path, clock, metrics, reloads, required, last };
        let config = parse(&text)?;
        let authorizers = source.authorizers(&config)?;
        let types = config.authorizers.iter().map(|authorizer| &authorizer.authorizer_type);
        source.required = types.filter(|name| *name != "Webhook").cloned().collect();
        source.reloads.applies(&text);
        source.last = Mutex::new(Loaded { text, config });
        Ok((source, authorizers))
    }

    /// Loads the file again if it has changed. Returns the new authorizers, or `None` to keep the old ones.
    ///
    /// Upstream: `checkFile`.
    pub(crate) fn reload(&self, now: Timestamp) -> Option<Vec<Named>> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let failed = |error: String| {
            tracing::error!(error, "the authorization configuration cannot be loaded again");
            self.reloads.record(false, now);
        };
        let text = match std::fs::read(&self.path) {
            Ok(text) if text == last.text => return None,
            Ok(text) => text,
            Err(error) => {
                failed(format!("{}: {error}", self.path.display()));
                return None;
            }
        };
        last.text = text;
        let config = match parse(&last.text) {
            Ok(config) if config == last.config => return None,
            Ok(config) => config,
            Err(error) => {
                failed(error);
                return None;
            }
        };
        match self.authorizers(&config) {
            Ok(authorizers) => {
                tracing::info!(file = %self.path.display(), "the authorization configuration was loaded again");
                self.reloads.record(true, now);
                self.reloads.applies(&last.text);
                last.config = config;
                Some(authorizers)
            }
            Err(error) => {
                failed(error);
                None
            }
        }
    }

    /// Appends the metrics of reloads.
    pub(crate) fn render(&self, out: &mut String) {
        self.reloads.render(out);
    }

    fn authorizers(&self, config: &AuthorizationConfiguration) -> Result<Vec<Named>, String> {
        let authorizers = validation::validate(config, &self.required, &file_error)?;
        let named = |authorizer: ValidAuthorizer<'_>| {
            let name = authorizer.name;
            let authorizing = match authorizer.webhook {
                None => authorizer.authorizer_type.parse()?,
                Some((webhook, conditions)) => {
                    let settings = settings(name, webhook, conditions)?;
                    let (clock, metrics) = (self.clock.clone(), self.metrics.clone());
                    Authorizing::Webhook(Arc::new(Webhook::new(settings, clock, metrics)))
                }
            };
            Ok(Named { name: name.into(), authorizing })
        };
        authorizers.into_iter().map(named).collect()
    }
}

fn parse(text: &[u8]) -> Result<AuthorizationConfiguration, String> {
    AuthorizationConfiguration::parse(text)
        .map_err(|error| format!("failed to load AuthorizationConfiguration from file: {error}"))
}

/// Returns why a path does not lead to a regular file, in Go's words; `None` if it does.
fn file_error(path: &str) -> Option<String> {
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_file() => None,
        Ok(_) => Some("must be a regular file".to_owned()),
        Err(error) => {
            let why = if error.kind() == std::io::ErrorKind::NotFound {
                "no such file or directory".to_owned()
            } else {
                error.to_string()
            };
            Some(format!("error loading file: stat {path}: {why}"))
        }
    }
}

/// Reads the kubeconfig file of a webhook.
fn target(path: &Path) -> Result<Target, String> {
    let failed = |error: String| format!("{}: {error}", path.display());
    let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
    Target::parse(&text, path.parent()).map_err(failed)
}

fn settings(
    name: &str,
    webhook: &WebhookConfiguration,
    conditions: Vec<super::conditions::Condition>,
) -> Result<Settings, String> {
    let path = webhook.connection_info.kube_config_file.as_deref().unwrap_or_default();
    let ttl = |caches: Option<bool>, ttl: super::config::GoDuration| {
        if caches == Some(true) { ttl.to_std() } else { Duration::ZERO }
    };
    Ok(Settings {
        name: name.to_owned(),
        target: target(Path::new(path))?,
        version: webhook.subject_access_review_version.clone(),
        timeout: webhook.timeout.to_std(),
        authorized_ttl: ttl(webhook.cache_authorized_requests, webhook.authorized_ttl),
        unauthorized_ttl: ttl(webhook.cache_unauthorized_requests, webhook.unauthorized_ttl),
        denies_on_error: webhook.failure_policy == "Deny",
        conditions,
    })
}

/// Returns the authorizers of the modes in `--authorization-mode`. The error has the name of a flag and the reason.
///
/// Upstream: `BuiltInAuthorizationOptions.Validate`, `buildAuthorizationConfiguration`.
pub(crate) fn of_modes(
    modes: &[String],
    webhook: Option<&AuthorizationWebhookOptions>,
    clock: &Clock,
    metrics: &Arc<Metrics>,
) -> Result<Vec<Named>, (&'static str, String)> {
    const MODE: &str = "authorization-mode";
    const FILE: &str = "authorization-webhook-config-file";
    if webhook.is_some() && !modes.iter().any(|mode| mode == "Webhook") {
        return Err((FILE, "it cannot be set without the authorization mode Webhook".to_owned()));
    }
    let mut authorizers: Vec<Named> = Vec::new();
    for mode in modes {
        let is_webhook = mode == "Webhook";
        let name = if is_webhook { WEBHOOK_OF_FLAGS.to_owned() } else { mode.to_lowercase() };
        if authorizers.iter().any(|authorizer| *authorizer.name == *name) {
            let why = format!("authorization-mode {modes:?} has mode specified more than once");
            return Err((MODE, why));
        }
        let authorizing = match (is_webhook, webhook) {
            (false, _) => mode.parse().map_err(|why| (MODE, why))?,
            (true, None) => {
                let why = "authorization-mode Webhook's authorization config file not passed";
                return Err((MODE, why.to_owned()));
            }
            (true, Some(options)) => {
                if !matches!(&*options.version, "v1" | "v1beta1") {
                    let why = format!(
                        "unsupported webhook authorizer version {:?}, supported versions are \"v1\", \"v1beta1\"",
                        options.version
                    );
                    return Err(("authorization-webhook-version", why));
                }
                let settings = Settings {
                    name: name.clone(),
                    target: target(&options.config_file).map_err(|why| (FILE, why))?,
                    version: options.version.clone(),
                    timeout: TIMEOUT_OF_FLAGS,
                    authorized_ttl: options.cache_authorized_ttl,
                    unauthorized_ttl: options.cache_unauthorized_ttl,
                    denies_on_error: false,
                    conditions: Vec::new(),
                };
                let webhook = Webhook::new(settings, clock.clone(), metrics.clone());
                Authorizing::Webhook(Arc::new(webhook))
            }
        };
        authorizers.push(Named { name: name.into(), authorizing });
    }
    Ok(authorizers)
}
