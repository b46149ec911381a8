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

    fn observed(meta: Meta, account: Option<Arc<ServiceAccount>>) -> Observed {
        Observed { namespace: Arc::new(Namespace { meta, ..Namespace::default() }), account }
    }

    fn namespace_meta() -> Meta {
        Meta { name: "ns".into(), ..Meta::default() }
    }

    #[test]
    fn missing_service_account_is_created() {
        let plan = plan(&observed(namespace_meta(), None));
        let [Action::Create(create)] = &*plan.actions else { panic!("{plan:?}") };
        assert_eq!((&*create.namespace, &*create.kind.plural), ("ns", "serviceaccounts"));
        let with_account = observed(namespace_meta(), Some(Arc::default()));
        assert!(super::plan(&with_account).is_nothing());
    }

    #[test]
    fn terminating_namespace_gets_no_service_account() {
        let terminating = Meta { deletion: Some(Timestamp::UNIX_EPOCH), ..namespace_meta() };
        assert!(plan(&observed(terminating, None)).is_nothing());
    }
}
