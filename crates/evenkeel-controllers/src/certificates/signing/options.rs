//! Options of the certificate signing controller.

use super::plan::Signer;
use crate::options::Flags;
use std::{fmt, time::Duration};

/// Options of the controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Maximum validity of issued certificates. Flag `--cluster-signing-duration`. Default: 1 year.
    pub duration: Duration,
    /// Authority of all signers, instead of one for each. Flags `--cluster-signing-{cert,key}-file`.
    pub common: Option<Pair>,
    /// Authority of kubelet serving certificates. Flags `--cluster-signing-kubelet-serving-{cert,key}-file`.
    pub kubelet_serving: Option<Pair>,
    /// Authority of kubelet client certificates. Flags `--cluster-signing-kubelet-client-{cert,key}-file`.
    pub kubelet_client: Option<Pair>,
    /// Authority of API client certificates. Flags `--cluster-signing-kube-apiserver-client-{cert,key}-file`.
    pub client: Option<Pair>,
    /// Authority of `kubernetes.io/legacy-unknown`. Flags `--cluster-signing-legacy-unknown-{cert,key}-file`.
    pub legacy_unknown: Option<Pair>,
}

/// An authority's certificate and key.
#[derive(Clone, PartialEq, Eq)]
pub enum Pair {
    /// Paths of PEM files, which are read again for each certificate.
    Files {
        /// Path of the certificate.
        certificate: String,
        /// Path of the key.
        key: String,
    },
    /// Certificate and key as PEM.
    Texts {
        /// The CA's certificate.
        certificate: String,
        /// The key. Never logged.
        key: String,
    },
}

impl fmt::Debug for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Files { certificate, key } => write!(f, "{certificate} with {key}"),
            Self::Texts { .. } => f.write_str("given as texts"),
        }
    }
}

impl Options {
    /// Reads the options from the command-line flags.
    pub fn read(flags: &dyn Flags) -> Self {
        let pair = |infix: &str| {
            let path = |suffix: &str| flags.text(&format!("cluster-signing-{infix}{suffix}-file"));
            let certificate = path("cert");
            let key = path("key");
            (!certificate.is_empty() || !key.is_empty()).then_some(Pair::Files { certificate, key })
        };
        Self {
            duration: flags.duration("cluster-signing-duration"),
            common: pair(""),
            kubelet_serving: pair("kubelet-serving-"),
            kubelet_client: pair("kubelet-client-"),
            client: pair("kube-apiserver-client-"),
            legacy_unknown: pair("legacy-unknown-"),
        }
    }

    /// Returns the certificate and key of each signer. A common pair is ignored if its certificate or its key is not
    /// set.
    ///
    /// # Errors
    /// Fails if a signer has its own pair although a common pair is set.
    pub(super) fn signers(&self) -> Result<Vec<(Signer, &Pair)>, &'static str> {
        let common = self.common.as_ref().filter(|pair| pair.is_complete());
        let own_pair = |signer| match signer {
            Signer::KubeletServing => self.kubelet_serving.as_ref(),
            Signer::KubeApiserverClientKubelet => self.kubelet_client.as_ref(),
            Signer::KubeApiserverClient => self.client.as_ref(),
            Signer::LegacyUnknown => self.legacy_unknown.as_ref(),
        };
        let with_own_pair = |signer| Some((signer, own_pair(signer)?));
        let own_pairs: Vec<_> = Signer::ALL.into_iter().filter_map(with_own_pair).collect();
        match common {
            None => Ok(own_pairs),
            Some(common) if own_pairs.is_empty() => {
                Ok(Signer::ALL.into_iter().map(|signer| (signer, common)).collect())
            }
            Some(_) => Err("cannot specify default and per controller certs at the same time"),
        }
    }
}

impl Pair {
    /// Returns whether both certificate and key are set.
    fn is_complete(&self) -> bool {
        match self {
            Self::Files { certificate, key } | Self::Texts { certificate, key } => {
                !certificate.is_empty() && !key.is_empty()
            }
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            duration: Duration::from_secs(8760 * 3600),
            common: None,
            kubelet_serving: None,
            kubelet_client: None,
            client: None,
            legacy_unknown: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(certificate: &str, key: &str) -> Option<Pair> {
        Some(Pair::Files { certificate: certificate.into(), key: key.into() })
    }

    #[test]
    fn common_pair_excludes_pairs_of_single_signers() {
        let no_pairs = Options::default();
        assert_eq!(no_pairs.signers(), Ok(Vec::new()));
        let common = Options { common: files("c", "k"), ..Options::default() };
        assert_eq!(common.signers().unwrap().len(), 4);
        // A common pair is ignored if one of its paths is empty. A signer's own pair stays, and reading it fails.
        assert_eq!(
            Options { common: files("c", ""), ..Options::default() }.signers(),
            Ok(Vec::new())
        );
        let own_pair = Options { client: files("c", ""), ..Options::default() };
        assert_eq!(
            own_pair.signers().unwrap().iter().map(|(signer, _)| *signer).collect::<Vec<_>>(),
            [Signer::KubeApiserverClient]
        );
        assert!(Options { client: files("c", "k"), ..common }.signers().is_err());
        assert!(
            Options { client: files("c", "k"), common: files("c", ""), ..no_pairs }
                .signers()
                .is_ok()
        );
    }

    #[test]
    fn debug_output_hides_keys() {
        let pair = Pair::Texts { certificate: "c".into(), key: "secret".into() };
        assert!(!format!("{pair:?}").contains("secret"));
    }
}
