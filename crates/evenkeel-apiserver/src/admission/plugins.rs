//! Admission plug-ins that are off by default.

/// The plug-in that checks owner references.
pub(crate) const OWNER_REFERENCES: &str = "OwnerReferencesPermissionEnforcement";

/// Plug-ins that are always on. To enable them changes nothing.
const ALWAYS_ON: [&str; 23] = [
    "NamespaceLifecycle",
    "LimitRanger",
    "ServiceAccount",
    "NodeRestriction",
    "TaintNodesByCondition",
    "PodSecurity",
    "Priority",
    "DefaultTolerationSeconds",
    "DefaultStorageClass",
    "StorageObjectInUseProtection",
    "PersistentVolumeClaimResize",
    "RuntimeClass",
    "CertificateApproval",
    "CertificateSigning",
    "ClusterTrustBundleAttest",
    "CertificateSubjectRestriction",
    "DefaultIngressClass",
    "PodTopologyLabels",
    "MutatingAdmissionPolicy",
    "MutatingAdmissionWebhook",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionWebhook",
    "ResourceQuota",
];

/// Which of the plug-ins are on that are off by default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Plugins {
    /// Whether OwnerReferencesPermissionEnforcement is on.
    pub(crate) owner_references: bool,
}

impl Plugins {
    /// Switches plug-ins on by their names (`--enable-admission-plugins`).
    pub(crate) fn enable(names: &[String]) -> Result<Self, String> {
        let mut plugins = Self::default();
        for name in names {
            match &**name {
                OWNER_REFERENCES => plugins.owner_references = true,
                name if ALWAYS_ON.contains(&name) => {}
                name => {
                    return Err(format!(
                        "enable-admission-plugins plugin {name:?} is unknown; {OWNER_REFERENCES:?} can be enabled"
                    ));
                }
            }
        }
        Ok(plugins)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plugins_are_enabled_by_name() {
        let enable = |names: &[&str]| {
            Plugins::enable(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(enable(&["PodSecurity"]), Ok(Plugins { owner_references: false }));
        let all = ["PodSecurity", OWNER_REFERENCES];
        assert_eq!(enable(&all), Ok(Plugins { owner_references: true }));
        assert!(enable(&["EventRateLimit"]).is_err_and(|why| why.contains("EventRateLimit")));
    }
}
