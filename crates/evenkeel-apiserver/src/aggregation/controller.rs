//! Controller of APIServices: writes the APIServices of custom resources, and routes requests by all stored
//! APIServices.
//!
//! | upstream's controller | where |
//! |---|---|
//! | `APIServiceRegistrationController` | `load` |
//! | `autoRegisterController`, `crdRegistrationController` | `registration::plan`, `apply` |
//! | `AvailableConditionController` of local APIServices | `sync` |

use std::sync::{Arc, Weak};
use std::time::Duration;

use evenkeel_apimachinery::status::StatusError;
use evenkeel_apimachinery::time::seconds;
use evenkeel_apimachinery::user::User;
use evenkeel_apimachinery::value::{get, set, text};
use evenkeel_tasks::watch;
use serde_json::Value;

use super::condition::{self, Condition};
use super::registration::{self, Action};
use crate::api::Api;
use crate::loopback;
use crate::resource::ResourceType;
use crate::store::{Transaction, wait_for_any_change};
use crate::verbs::delete::{Deletion, delete};
use crate::verbs::delete_options::DeleteOptions;

pub(super) const API_VERSION: &str = "apiregistration.k8s.io/v1";
pub(super) const RESOURCE: &str = "apiservices";
/// Resource prefixes of the objects that the controller watches: APIServices and CustomResourceDefinitions.
pub(crate) const RESOURCE_PREFIXES: [&str; 2] =
    ["apiregistration.k8s.io/apiservices", "apiextensions.k8s.io/customresourcedefinitions"];
/// Delay before the retry of a write that failed.
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// Makes requests follow the stored APIServices.
pub(crate) fn load(api: &Api) {
    api.aggregation.set_services(&loopback::list(api, API_VERSION, RESOURCE, ""));
}

/// Runs the controller until the server shuts down. `changes` signal writes to the objects of [`RESOURCE_PREFIXES`].
pub(crate) async fn run(api: Weak<Api>, mut changes: [watch::Receiver<u64>; 2]) {
    loop {
        changes.iter_mut().for_each(watch::Receiver::mark_unchanged);
        let retry_after = match api.upgrade() {
            Some(api) => sync(&api).await,
            None => return,
        };
        if !wait_for_any_change(&mut changes, retry_after).await {
            return;
        }
    }
}

/// Syncs all APIServices. Returns the delay until the next sync if a write failed.
async fn sync(api: &Arc<Api>) -> Option<Duration> {
    let services = loopback::list(api, API_VERSION, RESOURCE, "");
    api.aggregation.set_services(&services);
    let definitions =
        loopback::list(api, "apiextensions.k8s.io/v1", "customresourcedefinitions", "");
    let resource = api.table.get(API_VERSION, RESOURCE)?;
    let mut retry_after = None;
    for action in registration::plan(&services, &definitions) {
        if let Err(error) = apply(api, &resource, action).await {
            tracing::error!(%error, "the APIService of a definition cannot be written");
            retry_after = Some(RETRY_DELAY);
        }
    }
    for service in services.iter().filter(|service| get(service, "spec.service").is_none()) {
        if write_condition(api, service, &Condition::local()).await.is_err() {
            retry_after = Some(RETRY_DELAY);
        }
    }
    retry_after
}

/// Carries out an action. Ignores NotFound and Conflict: another client wrote the APIService meanwhile, and that write
/// triggers the next sync.
async fn apply(
    api: &Arc<Api>,
    resource: &Arc<ResourceType>,
    action: Action,
) -> Result<(), StatusError> {
    let now = api.clock.now();
    let written = match action {
        Action::Create(mut object) => {
            condition::put(&mut object, &Condition::local(), &seconds(now));
            let mut transaction = Transaction::default();
            loopback::create_if_absent(api, resource, object, &seconds(now), &mut transaction);
            api.store.commit(transaction).await.map(drop).map_err(StatusError::from)
        }
        Action::Restore(name, spec) => restore_spec(api, resource, &name, &spec).await,
        Action::Delete(name) => {
            let user = User::authenticated("system:apiserver", ["system:masters"]);
            let options = DeleteOptions::default();
            let deletion =
                Deletion { api, stored: resource, user: &user, options: &options, admission: None };
            delete(&deletion, &name).await.map(drop)
        }
    };
    match written {
        Err(error) if matches!(error.code().as_u16(), 404 | 409) => Ok(()),
        written => written,
    }
}

/// Restores the spec of the APIService with this name. `resource` is the resource type of APIServices.
pub(crate) async fn restore_spec(
    api: &Arc<Api>,
    resource: &ResourceType,
    name: &str,
    spec: &Value,
) -> Result<(), StatusError> {
    let edit = |object: &mut Value| {
        set(object, "spec", spec.clone());
        Ok(())
    };
    loopback::change_managed(api, resource, "", name, "", false, edit).await.map(drop)
}

/// Writes the condition of an APIService unless it already has it. If the stored spec differs from that of `service`,
/// the condition is dropped, because the write of the new spec triggers another check. Ignores NotFound and Conflict.
///
/// Upstream: `updateAPIServiceStatus`.
pub(super) async fn write_condition(
    api: &Arc<Api>,
    service: &Value,
    condition: &Condition,
) -> Result<(), StatusError> {
    if condition::has(service, condition) {
        return Ok(());
    }
    let Some(resource) = api.table.get(API_VERSION, RESOURCE) else { return Ok(()) };
    let name = text(service, "metadata.name");
    let edit = |object: &mut Value| {
        let was_replaced = get(object, "spec") != get(service, "spec")
            || text(object, "metadata.uid") != text(service, "metadata.uid");
        if was_replaced || condition::has(object, condition) {
            return Err(StatusError::modified(&resource.name, name));
        }
        condition::put(object, condition, &seconds(api.clock.now()));
        Ok(())
    };
    match loopback::change_managed(api, &resource, "", name, "status", false, edit).await {
        Ok(_) => {
            let Condition { reason, message, .. } = condition;
            tracing::info!(name, reason, message, "changing APIService availability");
            Ok(())
        }
        Err(error) if matches!(error.code().as_u16(), 404 | 409) => Ok(()),
        Err(error) => {
            tracing::error!(name, %error, "the condition of an APIService cannot be written");
            Err(error)
        }
    }
}
