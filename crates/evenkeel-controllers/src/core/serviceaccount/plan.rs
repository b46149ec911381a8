//! Default service account of a namespace.

use evenkeel_api::{
    View,
    views::{Namespace, ServiceAccount},
};
use evenkeel_runtime::plan::{Create, Plan};
use serde_json::json;
use std::sync::Arc;

/// Name of the service account.
pub(super) const NAME: &str = "default";

/// A namespace and its default service account.
pub(super) struct Observed {
    pub(super) namespace: Arc<Namespace>,
    pub(super) account: Option<Arc<ServiceAccount>>,
}

/// Creates the missing account, except in a terminating namespace. Upstream: `syncNamespace`.
pub(super) fn plan(observed: &Observed) -> Plan {
    let mut plan = Plan::nothing();
    if observed.account.is_some()
        || observed.namespace.meta.deleting()
        || &*observed.namespace.status.phase == "Terminating"
    {
        return plan;
    }
    let namespace = &*observed.namespace.meta.name;
    let body = json!({
        "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": NAME, "namespace": namespace},
    });
    plan.push(Create::new(ServiceAccount::kind(), namespace, body.to_string()));
    plan
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_api::{Meta, time::Timestamp};
    use evenkeel_runtime::plan::Action;

    fn observed(deleting: bool, has_account: bool) -> Observed {
        let deletion = deleting.then_some(Timestamp::UNIX_EPOCH);
        let namespace = Namespace {
            meta: Meta { name: "ns".into(), deletion, ..Meta::default() },
            ..Namespace::default()
        };
        Observed { namespace: namespace.into(), account: has_account.then(Arc::default) }
    }

    #[test]
    fn missing_service_account_is_created() {
        let plan = plan(&observed(false, false));
        let [Action::Create(create)] = &*plan.actions else { panic!("{plan:?}") };
        assert_eq!((&*create.namespace, &*create.kind.plural), ("ns", "serviceaccounts"));
        assert!(super::plan(&observed(false, true)).is_nothing());
    }

    #[test]
    fn terminating_namespace_gets_no_service_account() {
        assert!(plan(&observed(true, false)).is_nothing());
    }
}
