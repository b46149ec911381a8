//! Set of enabled admission plug-ins.

use std::fmt;

/// Admission plug-in of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Plugin {
    NamespaceLifecycle,
    LimitRanger,
    ServiceAccount,
    TaintNodesByCondition,
    PodSecurity,
    Priority,
    DefaultTolerationSeconds,
    DefaultStorageClass,
    StorageObjectInUseProtection,
    PersistentVolumeClaimResize,
    RuntimeClass,
    CertificateApproval,
    CertificateSigning,
    ClusterTrustBundleAttest,
    CertificateSubjectRestriction,
    DefaultIngressClass,
    PodTopologyLabels,
    PodResizeValidator,
    MutatingAdmissionPolicy,
    MutatingAdmissionWebhook,
    ValidatingAdmissionPolicy,
    ValidatingAdmissionWebhook,
    ResourceQuota,
    NodeRestriction,
    OwnerReferencesPermissionEnforcement,
}

impl Plugin {
    const ALL: [Self; 25] = [
        Self::NamespaceLifecycle,
        Self::LimitRanger,
        Self::ServiceAccount,
        Self::TaintNodesByCondition,
        Self::PodSecurity,
        Self::Priority,
        Self::DefaultTolerationSeconds,
        Self::DefaultStorageClass,
        Self::StorageObjectInUseProtection,
        Self::PersistentVolumeClaimResize,
        Self::RuntimeClass,
        Self::CertificateApproval,
        Self::CertificateSigning,
        Self::ClusterTrustBundleAttest,
        Self::CertificateSubjectRestriction,
        Self::DefaultIngressClass,
        Self::PodTopologyLabels,
        Self::PodResizeValidator,
        Self::MutatingAdmissionPolicy,
        Self::MutatingAdmissionWebhook,
        Self::ValidatingAdmissionPolicy,
        Self::ValidatingAdmissionWebhook,
        Self::ResourceQuota,
        Self::NodeRestriction,
        Self::OwnerReferencesPermissionEnforcement,
    ];

    /// Upstream's plug-ins that this server does not have. Disabling one has no effect, and enabling one is an error.
    const NOT_IMPLEMENTED: [&str; 14] = [
        "AlwaysAdmit",
        "AlwaysDeny",
        "AlwaysPullImages",
        "DenyServiceExternalIPs",
        "EventRateLimit",
        "ExtendedResourceToleration",
        "ImagePolicyWebhook",
        "LimitPodHardAntiAffinityTopology",
        "NamespaceAutoProvision",
        "NamespaceExists",
        "NodeDeclaredFeatureValidator",
        "PodGroupProtection",
        "PodNodeSelector",
        "PodTolerationRestriction",
    ];

    /// Returns the plug-in with this name. The variants are named as upstream's plug-ins.
    fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|plugin| plugin.to_string() == name)
    }

    /// Returns the plug-in's bit in [`Plugins`].
    const fn bit(self) -> u32 {
        1 << self as u32
    }
}

impl fmt::Display for Plugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// Returns upstream's names of the server's admission plug-ins.
pub fn admission_plugins() -> impl Iterator<Item = String> {
    Plugin::ALL.into_iter().map(|plugin| plugin.to_string())
}

/// Set of enabled plug-ins, with a bit for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Plugins(u32);

impl Default for Plugins {
    /// Returns the plug-ins that upstream enables by default, and NodeRestriction, which kubeadm and other installers
    /// enable.
    fn default() -> Self {
        let all = (1 << Plugin::ALL.len()) - 1;
        Self(all & !Plugin::OwnerReferencesPermissionEnforcement.bit())
    }
}

impl Plugins {
    /// Returns whether the plug-in is enabled.
    pub(crate) fn has(self, plugin: Plugin) -> bool {
        self.0 & plugin.bit() != 0
    }

    /// Returns the default set, changed by the names in `--enable-admission-plugins` and `--disable-admission-plugins`.
    ///
    /// Upstream: `AdmissionOptions.Validate`.
    pub(crate) fn of(enabled: &[String], disabled: &[String]) -> Result<Self, String> {
        let mut plugins = Self::default();
        for name in disabled {
            match Plugin::named(name) {
                Some(plugin) => plugins.0 &= !plugin.bit(),
                None if Plugin::NOT_IMPLEMENTED.contains(&&**name) => {}
                None => {
                    return Err(format!("disable-admission-plugins plugin {name:?} is unknown"));
                }
            }
        }
        for name in enabled {
            if disabled.contains(name) {
                return Err(format!(
                    "[{name}] in enable-admission-plugins and disable-admission-plugins overlapped"
                ));
            }
            let unknown = || match Plugin::NOT_IMPLEMENTED.contains(&&**name) {
                true => format!("enable-admission-plugins plugin {name:?} is not in this server"),
                false => format!("enable-admission-plugins plugin {name:?} is unknown"),
            };
            plugins.0 |= Plugin::named(name).ok_or_else(unknown)?.bit();
        }
        Ok(plugins)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(enabled: &[&str], disabled: &[&str]) -> Result<Plugins, String> {
        let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        Plugins::of(&owned(enabled), &owned(disabled))
    }

    #[test]
    fn plugins_are_switched_by_name() {
        let default = Plugins::default();
        for plugin in Plugin::ALL {
            let off = plugin == Plugin::OwnerReferencesPermissionEnforcement;
            assert_eq!(default.has(plugin), !off, "{plugin}");
            let name = plugin.to_string();
            assert!(of(&[&name], &[]).is_ok_and(|on| on.has(plugin)), "{plugin}");
            let disabled = of(&[], &[&name]).expect("a known plug-in");
            assert!(!disabled.has(plugin), "{plugin}");
            let others = Plugin::ALL.into_iter().filter(|&other| other != plugin);
            for other in others {
                assert_eq!(disabled.has(other), default.has(other), "{plugin} without {other}");
            }
        }
    }

    #[test]
    fn unknown_plugins_are_refused() {
        let refused: [(&[&str], &[&str], &str); 4] = [
            (&["Wrong"], &[], "enable-admission-plugins plugin \"Wrong\" is unknown"),
            (&[], &["Wrong"], "disable-admission-plugins plugin \"Wrong\" is unknown"),
            (&["EventRateLimit"], &[], "\"EventRateLimit\" is not in this server"),
            (&["Priority"], &["Priority"], "overlapped"),
        ];
        for (enabled, disabled, why) in refused {
            let error = of(enabled, disabled).expect_err("it is refused");
            assert!(error.contains(why), "{error}");
        }
        assert_eq!(of(&[], &["EventRateLimit"]), Ok(Plugins::default()));
    }
}
