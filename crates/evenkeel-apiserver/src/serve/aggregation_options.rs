//! Options of aggregation.

use std::fmt;

use crate::aggregation::remotes::Aggregation;
use crate::https::ClientIdentity;

/// Options of the aggregation of extension API servers, named after kube-apiserver's flags.
#[derive(Clone, Default)]
pub struct AggregationOptions {
    /// Certificate chain and key in PEM that identify this server to extension API servers (`--proxy-client-cert-file`,
    /// `--proxy-client-key-file`). Default: none. Extension API servers then do not trust the user in a request's
    /// headers.
    pub proxy_client: Option<(String, String)>,
    /// Whether redirects of extension API servers reach clients (`--aggregator-reject-forwarding-redirect=false`).
    pub forward_redirects: bool,
}

impl AggregationOptions {
    /// Builds the state of aggregation. An error has the option's name and the reason.
    pub(super) fn build(self) -> Result<Aggregation, (&'static str, String)> {
        let identity = self.proxy_client.map(|(chain, key)| ClientIdentity::from_pem(&chain, &key));
        let identity = identity.transpose().map_err(|reason| ("proxy-client-cert-file", reason))?;
        Ok(Aggregation::new(identity, !self.forward_redirects))
    }
}

impl fmt::Debug for AggregationOptions {
    /// Formats the options without the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AggregationOptions")
            .field("proxy_client", &self.proxy_client.as_ref().map(|(chain, _)| chain))
            .field("forward_redirects", &self.forward_redirects)
            .finish()
    }
}
