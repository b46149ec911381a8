//! Leader migration: controllers run under a second lease while they move from one program to another.
//!
//! Upstream: KEP-2436, `controller-manager/pkg/leadermigration`.

use crate::{flags::Reader, leading::ControllerName};
use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use std::collections::BTreeMap;

/// Lease of a controller, as upstream's leader migration decides it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilterResult {
    /// The controller does not migrate: it runs under the program's main lease.
    ControllerNonMigrated,
    /// The controller migrates, and this program runs it under the migration lease.
    ControllerMigrated,
    /// The controller migrates, and another program runs it.
    ControllerUnowned,
}

/// Configuration of leader migration: the migrated controllers and their lease.
#[doc(alias = "LeaderMigrationConfiguration")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Migration {
    /// Name of the migration lease.
    pub lease: String,
    /// Whether this program runs the controller, for each migrated controller.
    controllers: BTreeMap<String, bool>,
}

/// Content of the file of `--leader-migration-config`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct File {
    api_version: String,
    kind: String,
    #[serde(default)]
    leader_name: String,
    #[serde(default = "leases")]
    resource_lock: String,
    #[serde(default)]
    controller_leaders: Vec<Leader>,
}

/// Controller in that file, with the program that runs it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Leader {
    #[serde(default)]
    name: String,
    #[serde(default)]
    component: String,
}

fn leases() -> String {
    "leases".to_owned()
}

impl Migration {
    /// Reads `--enable-leader-migration` and `--leader-migration-config` for `program`.
    pub fn from_flags(read: &Reader, program: &str) -> Option<Self> {
        const CONFIG: &str = "leader-migration-config";
        let path = read.non_empty_text(CONFIG);
        if !read.bool("enable-leader-migration") {
            return None;
        }
        let Some(path) = path else { return Some(Self::standard()) };
        let migration = Self::read(&path, program);
        migration.map_err(|error| read.record_invalid(CONFIG, format!("{error:#}"))).ok()
    }

    /// Returns upstream's default: the controllers that migrated to the cloud-controller-manager.
    fn standard() -> Self {
        let names = ["route-controller", "service-controller", "cloud-node-lifecycle-controller"];
        Self {
            lease: "cloud-provider-extraction-migration".to_owned(),
            controllers: names.iter().map(|name| ((*name).to_owned(), true)).collect(),
        }
    }

    /// Reads the file of `--leader-migration-config` for `program`.
    ///
    /// # Errors
    /// Fails if the file cannot be read, or a field is invalid; the error names it.
    fn read(path: &str, program: &str) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("--leader-migration-config: cannot read {path}"))?;
        Self::parse(&text, program).with_context(|| format!("--leader-migration-config: {path}"))
    }

    fn parse(text: &str, program: &str) -> Result<Self> {
        let file: File = serde_saphyr::from_str(text)?;
        let version = file.api_version.strip_prefix("controllermanager.config.k8s.io/");
        if !matches!(version, Some("v1alpha1" | "v1beta1" | "v1"))
            || file.kind != "LeaderMigrationConfiguration"
        {
            bail!("{} {} is no LeaderMigrationConfiguration", file.api_version, file.kind);
        }
        if file.leader_name.is_empty() {
            bail!("leaderName: Required value");
        }
        if file.resource_lock != "leases" {
            bail!("resourceLock: Invalid value: {:?}: must be \"leases\"", file.resource_lock);
        }
        let mut controllers = BTreeMap::new();
        for (index, leader) in file.controller_leaders.into_iter().enumerate() {
            for (field, value) in [("component", &leader.component), ("name", &leader.name)] {
                if value.is_empty() {
                    bail!("controllerLeaders[{index}].{field}: Required value");
                }
            }
            let runs_here = leader.component == program || leader.component == "*";
            controllers.insert(leader.name, runs_here);
        }
        Ok(Self { lease: file.leader_name, controllers })
    }

    /// Returns the lease that a controller runs under. The configuration may contain an alias: upstream's
    /// default names `service-controller`, the old name of the service controller.
    pub fn filter(&self, controller: &ControllerName) -> FilterResult {
        let is_this_controller = |name: &str| {
            let without_suffix = name.strip_suffix("-controller");
            let is_alias = |alias: &&str| name == *alias || without_suffix == Some(alias);
            name == controller.name || controller.aliases.iter().any(is_alias)
        };
        match self.controllers.iter().find(|(name, _)| is_this_controller(name)) {
            None => FilterResult::ControllerNonMigrated,
            Some((_, true)) => FilterResult::ControllerMigrated,
            Some((_, false)) => FilterResult::ControllerUnowned,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROGRAM: &str = "kube-controller-manager";

    fn file(rest: &str) -> String {
        format!(
            "apiVersion: controllermanager.config.k8s.io/v1\nkind: LeaderMigrationConfiguration\n{rest}"
        )
    }

    #[test]
    fn lease_of_a_controller_follows_the_configuration() {
        let text = file(
            "leaderName: move\ncontrollerLeaders:\n- {name: ttl-controller, component: '*'}\n\
             - {name: job-controller, component: kube-controller-manager}\n\
             - {name: route-controller, component: cloud-controller-manager}\n",
        );
        let migration = Migration::parse(&text, PROGRAM).expect("it is valid");
        assert_eq!(migration.lease, "move");
        let places = ["ttl-controller", "job-controller", "route-controller", "other"];
        assert_eq!(
            places.map(|name| migration.filter(&ControllerName { name, aliases: &[] })),
            [
                FilterResult::ControllerMigrated,
                FilterResult::ControllerMigrated,
                FilterResult::ControllerUnowned,
                FilterResult::ControllerNonMigrated
            ]
        );
        let service = ControllerName { name: "service-lb-controller", aliases: &["service"] };
        assert_eq!(Migration::standard().filter(&service), FilterResult::ControllerMigrated);
    }

    #[test]
    fn error_names_the_invalid_field() {
        for (text, expected_text) in [
            (file("controllerLeaders: []"), "leaderName: Required value"),
            (file("leaderName: a\nresourceLock: endpoints"), "resourceLock"),
            (
                file("leaderName: a\ncontrollerLeaders: [{name: b}]"),
                "controllerLeaders[0].component: Required value",
            ),
            (file("leaderName: a\nnonsense: 1"), "nonsense"),
            ("apiVersion: v1\nkind: Pod\n".to_owned(), "no LeaderMigrationConfiguration"),
        ] {
            let error = Migration::parse(&text, PROGRAM).expect_err(expected_text);
            assert!(format!("{error:#}").contains(expected_text), "{error:#}");
        }
    }
}
