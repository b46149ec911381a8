//! Leader migration: controllers that run under a second lease while they move from one program to another.
//!
//! Upstream: KEP-2436, `controller-manager/pkg/leadermigration`.

use crate::{flags::Reader, leading::Named};
use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use std::collections::BTreeMap;

/// Where a controller belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// It does not move: under the program's own lease.
    Main,
    /// It moves, and this program runs it under the second lease.
    Migrated,
    /// It moves, and another program runs it.
    Elsewhere,
}

/// Which controllers move, and under which lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Migration {
    /// Name of the second lease.
    pub lease: String,
    /// Whether this program runs it, by the controller's name.
    controllers: BTreeMap<String, bool>,
}

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
    /// What `--enable-leader-migration` and `--leader-migration-config` say to `program`.
    pub fn check(read: &Reader, program: &str) -> Option<Self> {
        const CONFIG: &str = "leader-migration-config";
        let path = read.path(CONFIG);
        if !read.bool("enable-leader-migration") {
            return None;
        }
        let Some(path) = path else { return Some(Self::standard()) };
        let found = Self::read(&path, program);
        found.map_err(|error| read.refuse(CONFIG, format!("{error:#}"))).ok()
    }

    /// Upstream's: the controllers that have moved to clouds' controller managers.
    fn standard() -> Self {
        let names = ["route-controller", "service-controller", "cloud-node-lifecycle-controller"];
        Self {
            lease: "cloud-provider-extraction-migration".to_owned(),
            controllers: names.iter().map(|name| ((*name).to_owned(), true)).collect(),
        }
    }

    /// What `--leader-migration-config` names, read for `program`.
    ///
    /// # Errors
    /// Names the field that is wrong.
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
        for (at, leader) in file.controller_leaders.into_iter().enumerate() {
            for (field, value) in [("component", &leader.component), ("name", &leader.name)] {
                if value.is_empty() {
                    bail!("controllerLeaders[{at}].{field}: Required value");
                }
            }
            let ours = leader.component == program || leader.component == "*";
            controllers.insert(leader.name, ours);
        }
        Ok(Self { lease: file.leader_name, controllers })
    }

    /// Where a controller belongs. It may be called by an older name, as upstream's own list does: `service-controller` is
    /// the one that was `service`.
    pub fn place(&self, controller: &Named) -> Place {
        let called = |name: &str| {
            let old =
                |alias: &&str| name == *alias || name.strip_suffix("-controller") == Some(alias);
            name == controller.name || controller.aliases.iter().any(old)
        };
        match self.controllers.iter().find(|(name, _)| called(name)) {
            None => Place::Main,
            Some((_, true)) => Place::Migrated,
            Some((_, false)) => Place::Elsewhere,
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
    fn a_controller_has_one_place() {
        let text = file(
            "leaderName: move\ncontrollerLeaders:\n- {name: ttl-controller, component: '*'}\n\
             - {name: job-controller, component: kube-controller-manager}\n\
             - {name: route-controller, component: cloud-controller-manager}\n",
        );
        let migration = Migration::parse(&text, PROGRAM).expect("it is valid");
        assert_eq!(migration.lease, "move");
        let places = ["ttl-controller", "job-controller", "route-controller", "other"];
        assert_eq!(
            places.map(|name| migration.place(&Named { name, aliases: &[] })),
            [Place::Migrated, Place::Migrated, Place::Elsewhere, Place::Main]
        );
        let service = Named { name: "service-lb-controller", aliases: &["service"] };
        assert_eq!(Migration::standard().place(&service), Place::Migrated);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, says) in [
            (file("controllerLeaders: []"), "leaderName: Required value"),
            (file("leaderName: a\nresourceLock: endpoints"), "resourceLock"),
            (
                file("leaderName: a\ncontrollerLeaders: [{name: b}]"),
                "controllerLeaders[0].component: Required value",
            ),
            (file("leaderName: a\nnonsense: 1"), "nonsense"),
            ("apiVersion: v1\nkind: Pod\n".to_owned(), "no LeaderMigrationConfiguration"),
        ] {
            let error = Migration::parse(&text, PROGRAM).expect_err(says);
            assert!(format!("{error:#}").contains(says), "{error:#}");
        }
    }
}
