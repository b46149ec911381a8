//! Authorizers of a server, in the order of `--authorization-mode` or of `--authorization-config`.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::time::Duration;

use jiff::Timestamp;

use super::authorization::{
    Answers, AuthorizationWebhookOptions, Authorizing, Decision, Effect, Metrics, Named, Source,
    of_modes, spec,
};
use super::rbac::{ResolvedRules, aggregate};
use super::rbac_authorizer::RbacAuthorizer;
use super::rule::Attributes;
use super::{User, nodes};
use crate::clock::Clock;
use crate::store::Store;

/// Interval at which the configuration file is checked for changes.
const RELOAD_PERIOD: Duration = Duration::from_secs(5);

/// Options of authorization, from the flags `--authorization-…`.
#[derive(Default)]
pub(crate) struct AuthorizationOptions {
    /// Names of modes; none for the default, Node and RBAC.
    pub(crate) modes: Vec<String>,
    /// Options of the mode `Webhook`.
    pub(crate) webhook: Option<AuthorizationWebhookOptions>,
    /// File that replaces all other options.
    pub(crate) config_file: Option<PathBuf>,
}

/// Union of the configured authorizers: the first one that allows or denies a request decides. Members of
/// `system:masters` have all permissions, regardless of the authorizers.
///
/// Upstream: `AuthorizationModeChoices`, `unionAuthzHandler`.
pub(crate) struct Authorizer {
    authorizers: RwLock<Arc<[Named]>>,
    rbac: RbacAuthorizer,
    metrics: Arc<Metrics>,
    /// File that configures the authorizers.
    source: Option<Source>,
}

impl Authorizer {
    /// Creates the configured authorizers. `server` is the server's ID in metrics. The error has the name of a flag and
    /// the reason.
    pub(crate) fn open(
        options: &AuthorizationOptions,
        server: &str,
        clock: &Clock,
    ) -> Result<Self, (&'static str, String)> {
        let metrics = Arc::new(Metrics::default());
        let (source, authorizers) = match &options.config_file {
            Some(path) => {
                const FLAG: &str = "authorization-config";
                if !options.modes.is_empty() || options.webhook.is_some() {
                    let why = "--authorization-config can not be specified when --authorization-mode or --authorization-webhook-* flags are defined";
                    return Err((FLAG, why.to_owned()));
                }
                let (source, authorizers) =
                    Source::load(path, server, clock.clone(), metrics.clone())
                        .map_err(|why| (FLAG, why))?;
                (Some(source), authorizers)
            }
            None if options.modes.is_empty() && options.webhook.is_none() => {
                let default = ["Node", "RBAC"].map(str::to_owned);
                (None, of_modes(&default, None, clock, &metrics)?)
            }
            None => (None, of_modes(&options.modes, options.webhook.as_ref(), clock, &metrics)?),
        };
        let authorizers = RwLock::new(authorizers.into());
        Ok(Self { authorizers, rbac: RbacAuthorizer::default(), metrics, source })
    }

    fn authorizers(&self) -> Arc<[Named]> {
        self.authorizers.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Decides whether to allow a request. Without `with_reason`, the decision need not have RBAC's reason. A webhook
    /// whose answer is missing counts as a denial, and its review is recorded in `answers`.
    ///
    /// Upstream: `unionAuthzHandler.Authorize`.
    pub(crate) fn decide(
        &self,
        store: &Store,
        user: &User,
        attributes: &Attributes<'_>,
        answers: &Answers,
        with_reason: bool,
    ) -> Decision {
        if user.is_in("system:masters") {
            return Decision::allowed("");
        }
        let (mut reasons, mut errors) = (Vec::new(), Vec::new());
        for authorizer in &*self.authorizers() {
            let decision = match &authorizer.authorizing {
                Authorizing::Node => match self.rbac.authorize_node(store, user, attributes) {
                    Some(Ok(())) => Decision::allowed(""),
                    Some(Err(reason)) => Decision::no_opinion(reason),
                    None => Decision::no_opinion(""),
                },
                Authorizing::Rbac if with_reason => {
                    self.rbac.authorize_with_reason(store, user, attributes)
                }
                Authorizing::Rbac if self.rbac.authorize(store, user, attributes) => {
                    Decision::allowed("")
                }
                Authorizing::Rbac => Decision::no_opinion(""),
                Authorizing::AlwaysAllow => Decision::allowed(""),
                Authorizing::AlwaysDeny => Decision::no_opinion("Everything is forbidden."),
                Authorizing::Webhook(webhook) => {
                    match answers.get(webhook, spec(user, attributes)) {
                        Some(decision) => decision,
                        None => return Decision::open(),
                    }
                }
            };
            if decision.effect != Effect::NoOpinion {
                // A refusal is decided twice, the second time with its reason.
                if decision.is_allowed() || with_reason {
                    let shown = if decision.is_allowed() { "allowed" } else { "denied" };
                    let type_name = authorizer.authorizing.type_name();
                    self.metrics.record_decision(shown, &authorizer.name, type_name);
                }
                return decision;
            }
            errors.extend(decision.error);
            if !decision.reason.is_empty() {
                reasons.push(format!("{}: {}", authorizer.name, decision.reason));
            }
        }
        let error = aggregate(errors.into_iter());
        Decision { error, ..Decision::no_opinion(reasons.join("\n")) }
    }

    /// Returns whether any authorizer is a webhook.
    pub(crate) fn has_webhooks(&self) -> bool {
        let is_webhook = |named: &Named| matches!(named.authorizing, Authorizing::Webhook(_));
        self.authorizers().iter().any(is_webhook)
    }

    /// Returns whether every user has all permissions, because the mode `AlwaysAllow` is selected.
    pub(crate) fn allows_all(&self) -> bool {
        let allows = |named: &Named| matches!(named.authorizing, Authorizing::AlwaysAllow);
        self.authorizers().iter().any(allows)
    }

    /// Returns why a user's permissions cannot be listed as rules. The permissions of a kubelet depend on stored
    /// objects, and a webhook's decisions are not known in advance.
    ///
    /// Upstream: `RulesFor`.
    pub(crate) fn unlisted(&self, user: &User) -> Vec<&'static str> {
        let mut reasons = Vec::new();
        for named in &*self.authorizers() {
            match named.authorizing {
                Authorizing::Node if nodes::node_of(user).is_some() => {
                    reasons.push("node authorizer does not support user rule resolution");
                }
                Authorizing::Webhook(_) => {
                    reasons.push("webhook authorizer does not support user rule resolution");
                }
                _ => {}
            }
        }
        reasons
    }

    /// Returns all rules that bindings grant to a user in a namespace, including those of ClusterRoleBindings.
    pub(crate) fn rules_for(&self, store: &Store, user: &User, namespace: &str) -> ResolvedRules {
        self.rbac.rules_for(store, user, namespace)
    }

    /// Appends the metrics of authorization.
    pub(crate) fn render(&self, out: &mut String) {
        self.metrics.render(out);
        if let Some(source) = &self.source {
            source.render(out);
        }
    }

    /// Returns whether a file configures the authorizers, so that [`follow`] must reload it.
    pub(crate) fn has_source(&self) -> bool {
        self.source.is_some()
    }

    /// Loads the configuration file again if it has changed.
    fn reload(&self, now: Timestamp) {
        let authorizers = self.source.as_ref().and_then(|source| source.reload(now));
        if let Some(authorizers) = authorizers {
            *self.authorizers.write().unwrap_or_else(PoisonError::into_inner) = authorizers.into();
        }
    }
}

/// Follows changes of the configuration file until the server is dropped. `authorizer` borrows the server's authorizer.
pub(crate) async fn follow<T: Send + Sync>(
    server: Weak<T>,
    authorizer: impl Fn(&T) -> (&Authorizer, Timestamp) + Send,
) {
    loop {
        tokio::time::sleep(RELOAD_PERIOD).await;
        let Some(server) = server.upgrade() else { return };
        let (authorizer, now) = authorizer(&server);
        authorizer.reload(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn authorizer(names: &[&str]) -> Result<Authorizer, String> {
        let modes = names.iter().map(|&name| name.to_owned()).collect();
        let options = AuthorizationOptions { modes, ..AuthorizationOptions::default() };
        Authorizer::open(&options, "", &Clock::system()).map_err(|(_, why)| why)
    }

    #[test]
    fn one_mode_that_allows_is_enough() {
        let store = Store::in_memory(crate::registry::INDEXED_RESOURCES);
        let attributes = Attributes {
            verb: "get",
            resource: "pods",
            namespace: "default",
            name: "p",
            ..Attributes::default()
        };
        // The store has no roles, so RBAC allows nothing.
        let (admin, other) =
            (User::authenticated("a", ["system:masters"]), User::authenticated("b", []));
        let table: [(&[&str], bool, &str); 6] = [
            (&[], false, ""),
            (&["RBAC"], false, ""),
            (&["Node", "RBAC"], false, ""),
            (&["AlwaysDeny"], false, "alwaysdeny: Everything is forbidden."),
            (&["AlwaysAllow"], true, ""),
            (&["AlwaysDeny", "RBAC", "AlwaysAllow"], true, ""),
        ];
        let answers = Answers::default();
        for (modes, allowed, reason) in table {
            let authorizer = authorizer(modes).expect("known modes");
            let decide = |user, with_reason| {
                authorizer.decide(&store, user, &attributes, &answers, with_reason)
            };
            assert!(decide(&admin, false).is_allowed(), "{modes:?}");
            assert_eq!(decide(&other, false).is_allowed(), allowed, "{modes:?}");
            let decision = decide(&other, true);
            assert_eq!((decision.is_allowed(), &*decision.reason), (allowed, reason), "{modes:?}");
            assert_eq!(authorizer.allows_all(), allowed, "{modes:?}");
        }
    }

    #[test]
    fn unknown_and_repeated_modes_are_refused() {
        for (modes, why) in [
            (&["rbac"] as &[_], "authorization-mode \"rbac\" is not a valid mode"),
            (&["ABAC"], "authorization mode \"ABAC\" is not in this server"),
            (&["Webhook"], "authorization-mode Webhook's authorization config file not passed"),
            (&["RBAC", "Node", "RBAC"], "has mode specified more than once"),
        ] {
            let error = authorizer(modes).err().unwrap_or_default();
            assert!(error.contains(why), "{modes:?}: {error}");
        }
    }
}
