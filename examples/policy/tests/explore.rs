//! The operator of policies under faults, one at each of its writes.

use evenkeel_runtime::prelude::*;
use evenkeel_test::{Exploration, TestServerBuilder};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use policy_operator::{FieldPolicy, operator};
use serde_json::json;

#[test]
fn the_operator_survives_a_fault_at_any_write() {
    Exploration::new(operator)
        .server(TestServerBuilder::crd::<FieldPolicy>)
        .max_runs(24) // EVENKEEL_RUNS=1000 does more.
        .run(async |user| {
            let policies: Api<FieldPolicy> = Api::all(user.client());
            let policy = json!({
                "apiVersion": "policy.example.com/v1", "kind": "FieldPolicy",
                "metadata": {"name": "teams"},
                "spec": {
                    "target": {"kind": "ConfigMap"},
                    "rules": [{"field": "/metadata/labels/team"}],
                    "excludedNamespaces": ["kube-system"],
                },
            });
            policies.create(&PostParams::default(), &serde_json::from_value(policy)?).await?;
            user.settle().await;
            let maps = user.api::<ConfigMap>();
            let map = serde_json::from_value(json!({"metadata": {"name": "a"}}))?;
            maps.create(&PostParams::default(), &map).await?;
            user.settle().await;
            let status = policies.get("teams").await?.status.expect("a status");
            assert_eq!((status.total_violations, &*status.violations[0].name), (1, "a"));
            let label = Patch::Merge(json!({"metadata": {"labels": {"team": "shop"}}}));
            maps.patch("a", &PatchParams::default(), &label).await?;
            user.settle().await;
            let status = policies.get("teams").await?.status.expect("a status");
            assert!(conditions::is_true(&status.conditions, "Compliant"));
            // A kind that the server does not serve.
            let other = Patch::Merge(json!({"spec": {"target": {"kind": "Widget"}}}));
            policies.patch("teams", &PatchParams::default(), &other).await?;
            user.settle().await;
            let status = policies.get("teams").await?.status.expect("a status");
            assert!(!conditions::is_true(&status.conditions, "Watching"));
            Ok(())
        });
}
