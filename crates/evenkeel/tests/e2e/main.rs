//! The whole control plane, seen from outside: one body of cases, on the embedded API server in virtual time and on
//! upstream's kube-apiserver and etcd in real time.
//!
//! The second needs the programs that `tests/upstream/build FOLDER` builds, and `EVENKEEL_UPSTREAM_BIN=FOLDER`.

mod cluster;
mod deployment;
mod embedded;
mod objects;
mod pods;
mod replicas;
mod rollout;

use cluster::Cluster;
use futures::future::LocalBoxFuture;

/// A case by name.
struct Case {
    name: &'static str,
    run: for<'a> fn(&'a Cluster) -> LocalBoxFuture<'a, ()>,
}

/// Makes of each case a test on a cluster of its own, and a line in the list of all.
macro_rules! cases {
    ($($module:ident: [$($case:ident),* $(,)?];)*) => {
        mod on_embedded {
            $(mod $module {
                $(#[tokio::test(start_paused = true)]
                async fn $case() {
                    crate::embedded::run(|cluster| Box::pin(crate::$module::$case(cluster))).await;
                })*
            })*
        }

        const CASES: &[Case] = &[
            $($(Case {
                name: concat!(stringify!($module), "::", stringify!($case)),
                run: |cluster| Box::pin($module::$case(cluster)),
            },)*)*
        ];
    };
}

cases! {
    deployment: [
        becomes_ready,
        is_scaled_up_and_down,
    ];
    replicas: [
        sets_adopt_and_release,
    ];
    rollout: [
        keeps_within_surge_and_unavailable,
        recreate_never_mixes,
    ];
}
