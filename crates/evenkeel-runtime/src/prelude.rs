//! Items that most operators use. `use evenkeel_runtime::prelude::*;`

#[cfg(feature = "serve")]
pub use crate::manager::Metrics;
pub use crate::{
    cache::{Cache, CacheOptions, Dynamic, Full, Index},
    client::{ApiError, DeleteOptions, ListOptions, Transport},
    clusters::{
        Cluster, ClusterProvider, Clusters, FixedClusters, ProfileClusters, SecretClusters,
    },
    controller::{Error, Outcome, Request},
    manager::{ControllerDefaults, Manager, Setup, shutdown_signal},
    operator::{
        ApiObject, Context, ControllerHandle, OwnerExt, Predicate, Result, WatchHandle,
        annotations_changed, conditions, generation_changed, labels_changed, on_change,
        on_dynamic_change, resource_version_changed,
    },
    plan::Key,
    sharding::{ShardBy, Sharding},
    worker::Worker,
};
pub use evenkeel_api::Kind;
pub use std::{sync::Arc, time::Duration};
