//! RBAC authorizer: caches the rules that the stored roles and bindings grant until one of them changes.

use std::sync::{Arc, Mutex, PoisonError, RwLock};

use super::User;
use super::authorization::decision::Decision;
use super::nodes;
use super::rbac::{RBAC_RESOURCES, ResolvedRules, RuleResolver, resolve};
use super::rule::Attributes;
use crate::store::Store;

/// Authorizer that reads the stored roles and bindings.
///
/// Upstream: `RBACAuthorizer`.
#[derive(Default)]
pub(super) struct RbacAuthorizer {
    resolver: RwLock<Option<Arc<RuleResolver>>>,
    /// Lock of the request that resolves the rules. Other requests wait for its result.
    resolving: Mutex<()>,
}

impl RbacAuthorizer {
    /// Returns whether a rule that one of the user's bindings grants allows the request.
    pub(super) fn authorize(
        &self,
        store: &Store,
        user: &User,
        attributes: &Attributes<'_>,
    ) -> bool {
        self.resolver(store).authorize(user, attributes)
    }

    /// Decides like [`authorize`](Self::authorize), with a reason.
    pub(super) fn authorize_with_reason(
        &self,
        store: &Store,
        user: &User,
        attributes: &Attributes<'_>,
    ) -> Decision {
        self.resolver(store).authorize_with_reason(user, attributes)
    }

    /// Decides with the Node authorizer. Returns `None` for a user that is not a kubelet.
    pub(super) fn authorize_node(
        &self,
        store: &Store,
        user: &User,
        attributes: &Attributes<'_>,
    ) -> Option<nodes::Decision> {
        self.resolver(store).authorize_node(store, user, attributes)
    }

    /// Returns all rules that bindings grant to a user in a namespace, including those of ClusterRoleBindings.
    pub(super) fn rules_for(&self, store: &Store, user: &User, namespace: &str) -> ResolvedRules {
        self.resolver(store).rules_for(user, namespace)
    }

    /// Returns the resolver of the stored roles and bindings. Creates a new resolver if any of them has changed.
    fn resolver(&self, store: &Store) -> Arc<RuleResolver> {
        if let Ok(resolver) = self.current(store) {
            return resolver;
        }
        let _resolving = self.resolving.lock().unwrap_or_else(PoisonError::into_inner);
        // Another request may have resolved the rules while this one waited for the lock.
        self.current(store).unwrap_or_else(|version| {
            let resolver = Arc::new(resolve(store, version));
            for error in &resolver.unreadable {
                tracing::error!(error, "a stored role or binding cannot be read");
            }
            *self.resolver.write().unwrap_or_else(PoisonError::into_inner) = Some(resolver.clone());
            resolver
        })
    }

    /// Returns the last resolver if no role or binding has changed since. The error has the revisions for a new
    /// resolver.
    fn current(&self, store: &Store) -> Result<Arc<RuleResolver>, [u64; 4]> {
        let version =
            RBAC_RESOURCES.map(|resource_prefix| store.last_write_revision(resource_prefix));
        let last = self.resolver.read().unwrap_or_else(PoisonError::into_inner);
        last.as_ref().filter(|last| last.version == version).cloned().ok_or(version)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use serde_json::json;

    use super::*;
    use crate::auth::rbac::CLUSTER_ROLES;
    use crate::registry;
    use crate::store::{Encoded, Expect, SelectionAttributes};

    #[tokio::test]
    async fn requests_after_a_write_resolve_the_rules_once() {
        let store = Store::in_memory(registry::INDEXED_RESOURCES);
        for n in 0..500 {
            let role = json!({"metadata": {"name": format!("r{n}")}, "rules": []});
            let encoded = Encoded::new(&role, SelectionAttributes::new(&role, |_| ()));
            let (prefix, key) = (CLUSTER_ROLES.into(), format!("r{n}"));
            store.put(&prefix, &key, Expect::Absent, encoded).await.expect("written");
        }
        let (rbac, barrier) = (RbacAuthorizer::default(), Barrier::new(8));
        let resolver = || {
            barrier.wait();
            rbac.resolver(&store)
        };
        // Eight concurrent requests.
        let resolvers = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(resolver)).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect::<Vec<_>>()
        });
        assert!(resolvers.iter().all(|one| Arc::ptr_eq(one, &resolvers[0])));
        assert!(Arc::ptr_eq(&rbac.resolver(&store), &resolvers[0]));
    }
}
