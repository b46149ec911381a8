//! TLS of a server: which certificate for whom, versions and ciphers, and all of it anew when a file changes.
//!
//! Files are read again every [`REREAD`] on the program's clock, and compared by what is in them: that works for files
//! that are replaced by way of symbolic links, as kubelet does, and for those that are written in place. Only connections
//! that begin later see what changed.

mod certificate;
mod names;
mod settings;

pub use certificate::{Certificate, TlsError};
pub use settings::TlsSettings;

use super::trust::{Authority, ProxyHeaders, Trust};
use crate::{client::full_text, clock::Clock};
use names::ByName;
use rustls::{ServerConfig, server::ResolvesServerCert};
use std::{
    collections::HashMap,
    net::IpAddr,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// How often files are read again.
pub const REREAD: Duration = Duration::from_secs(10);

/// Where a server's own certificate comes from.
pub enum Identity {
    /// PEM files.
    Files {
        /// The certificate, and those that lead from it to a CA.
        certificate: PathBuf,
        /// Its key.
        key: PathBuf,
    },
    /// Made by the program.
    Made(Certificate),
}

/// A certificate for clients that ask for certain names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedFiles {
    /// PEM file of the certificate.
    pub certificate: PathBuf,
    /// PEM file of its key.
    pub key: PathBuf,
    /// Names, `*.` patterns and IP addresses; those of the certificate when empty.
    pub names: Vec<String>,
}

/// Files that say whose certificates are believed.
#[derive(Debug, Clone, Default)]
pub struct TrustFiles {
    /// CA of clients.
    pub clients: Option<PathBuf>,
    /// CA of proxies, and what those may say.
    pub proxies: Option<(PathBuf, ProxyHeaders)>,
}

/// TLS of a server, as its files have it now.
pub struct Tls {
    settings: TlsSettings,
    identity: Identity,
    named: Vec<NamedFiles>,
    files: TrustFiles,
    trust: Trust,
    served: Mutex<Served>,
}

/// What new connections get.
#[derive(Clone)]
struct Served {
    config: Arc<ServerConfig>,
    /// For clients that name no server, by the address that they came to.
    by_address: HashMap<IpAddr, Arc<ServerConfig>>,
    made_of: Vec<Vec<u8>>,
}

impl Tls {
    /// Reads everything for the first time.
    ///
    /// # Errors
    /// When a file is missing or cannot be used.
    pub fn new(
        settings: TlsSettings,
        identity: Identity,
        named: Vec<NamedFiles>,
        files: TrustFiles,
        trust: Trust,
    ) -> Result<Self, TlsError> {
        read_trust(&files, &trust)?;
        let served = Served::make(&settings, &identity, &named, &trust, None)?;
        // There is nothing before the first that it could be equal to.
        let served = served.ok_or_else(|| TlsError::Pem("nothing was read".to_owned()))?;
        Ok(Self { settings, identity, named, files, trust, served: Mutex::new(served) })
    }

    /// Reads the files again, and says whether anything has changed. What cannot be used leaves everything as it is.
    ///
    /// # Errors
    /// When a file is missing or cannot be used.
    pub fn refresh(&self) -> Result<bool, TlsError> {
        read_trust(&self.files, &self.trust)?;
        let before = self.served().made_of;
        let made =
            Served::make(&self.settings, &self.identity, &self.named, &self.trust, Some(&before))?;
        let changed = made.is_some();
        if let Some(made) = made {
            *self.served.lock().unwrap_or_else(PoisonError::into_inner) = made;
        }
        Ok(changed)
    }

    /// Keeps up with files, and with what else changes [`Trust`], until dropped. What has changed since the first reading counts
    /// at once.
    pub async fn keep(&self, clock: &Clock) {
        let mut trust = self.trust.watch();
        let mut failing = String::new();
        loop {
            let error = match self.refresh() {
                Ok(changed) => {
                    if changed {
                        tracing::info!(
                            "Certificates have changed; new connections get the new ones"
                        );
                    }
                    String::new()
                }
                Err(error) => full_text(&error),
            };
            if error != failing && !error.is_empty() {
                tracing::error!(
                    error,
                    "Certificates cannot be read again; what was read before stays"
                );
            }
            failing = error;
            tokio::select! {
                () = clock.sleep(REREAD) => {}
                // The sender lives in `self.trust`.
                _ = trust.changed() => {}
            }
        }
    }

    /// What a new connection gets: by the name that the client asks for, or by the address that it came to.
    pub(super) fn config(&self, names_server: bool, address: Option<IpAddr>) -> Arc<ServerConfig> {
        let served = self.served.lock().unwrap_or_else(PoisonError::into_inner);
        let by_address = address.filter(|_| !names_server).map(|address| address.to_canonical());
        by_address
            .and_then(|address| served.by_address.get(&address))
            .unwrap_or(&served.config)
            .clone()
    }

    fn served(&self) -> Served {
        self.served.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Served {
    /// None when it would be made of what the one before was made of.
    fn make(
        settings: &TlsSettings,
        identity: &Identity,
        named: &[NamedFiles],
        trust: &Trust,
        before: Option<&[Vec<u8>]>,
    ) -> Result<Option<Self>, TlsError> {
        let own = match identity {
            Identity::Files { certificate, key } => Certificate::from_files(certificate, key)?,
            Identity::Made(certificate) => certificate.clone(),
        };
        let hints = trust.now().hints();
        let mut made_of = own.bytes();
        let mut pairs = Vec::new();
        for files in named {
            let pair = Certificate::from_files(&files.certificate, &files.key)?;
            made_of.extend(pair.bytes());
            pairs.push((pair, files.names.as_slice()));
        }
        made_of.extend(hints.iter().map(|hint| hint.as_ref().to_vec()));
        if before == Some(&made_of) {
            return Ok(None);
        }
        let names = ByName::new(&own, &pairs, &settings.provider)?;
        let by_address = names.addresses().map(|(address, certificate)| {
            let certificate: Arc<dyn ResolvesServerCert> = Arc::new(names::One(certificate));
            settings.config(certificate, &hints).map(|config| (address, config))
        });
        let by_address = by_address.collect::<Result<_, _>>()?;
        let config = settings.config(Arc::new(names), &hints)?;
        Ok(Some(Self { config, by_address, made_of }))
    }
}

/// What files say of whose certificates are believed; where there are none, something else may say it.
fn read_trust(files: &TrustFiles, trust: &Trust) -> Result<(), TlsError> {
    let clients = files.clients.as_ref().map(authority).transpose()?;
    let proxies = files.proxies.as_ref().map(|(path, words)| Ok((authority(path)?, words.clone())));
    let proxies = proxies.transpose()?;
    trust.change(|anchors| {
        if clients.is_some() {
            anchors.clients = clients;
        }
        if proxies.is_some() {
            anchors.proxies = proxies;
        }
    });
    Ok(())
}

fn authority(path: &PathBuf) -> Result<Authority, TlsError> {
    let failed = |source: Box<dyn std::error::Error + Send + Sync>| TlsError::Read {
        what: "certificates",
        path: path.clone(),
        source,
    };
    let pem = std::fs::read(path).map_err(|error| failed(error.into()))?;
    Authority::from_pem(&pem).map_err(|error| failed(error.into()))
}

#[cfg(test)]
mod tests;
