//! TLS of a server: certificates by server name, versions and ciphers, reloaded when a file changes.
//!
//! Files are reread every [`REREAD`] on the program's clock, and their contents compared. This works for files
//! that are replaced through symbolic links, as by kubelet, and for files that are overwritten. Only new
//! connections use the changes.

mod certificate;
mod names;
mod settings;

pub use certificate::{Certificate, TlsError};
pub use settings::TlsSettings;

use super::{
    accept::handshake,
    sync_queue::SyncQueue,
    trust::{Authority, ProxyHeaders, Trust},
};
use crate::{clock::Clock, queue};
use names::ByName;
use rustls::{
    ServerConfig,
    server::{Acceptor, ResolvesServerCert},
};
use std::{
    collections::HashMap,
    io,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::net::TcpStream;
use tokio_rustls::{LazyConfigAcceptor, server::TlsStream};
use tokio_util::sync::CancellationToken;

/// Interval at which certificate files are reread.
pub const REREAD: Duration = Duration::from_secs(10);

/// Interval at which TLS settings are rebuilt even if no file has changed.
const REBUILD_INTERVAL: Duration = Duration::from_secs(60);

/// Source of the certificate that a server presents.
#[derive(Clone)]
pub enum Identity {
    /// PEM files that are reread when they change.
    Files {
        /// The certificate, followed by the intermediate certificates up to a CA.
        certificate: PathBuf,
        /// Private key of the certificate.
        key: PathBuf,
    },
    /// Self-signed certificate that the program creates at its start and keeps in memory.
    SelfSigned(Certificate),
}

/// Certificate for clients that request certain server names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedFiles {
    /// PEM file of the certificate.
    pub certificate: PathBuf,
    /// PEM file of its key.
    pub key: PathBuf,
    /// Server names, `*.` patterns and IP addresses. Empty means the certificate's own names.
    pub names: Vec<String>,
}

/// CA files with which certificates of clients and front proxies are verified.
#[derive(Debug, Clone, Default)]
pub struct TrustFiles {
    /// CA of clients.
    pub clients: Option<PathBuf>,
    /// CA of proxies, with the headers that they may set.
    pub proxies: Option<(PathBuf, ProxyHeaders)>,
}

/// TLS of a server, according to the current content of its files.
pub struct Tls {
    settings: TlsSettings,
    identity: Identity,
    named: Vec<NamedFiles>,
    files: TrustFiles,
    trust: Trust,
    queues: Option<queue::Metrics>,
    read: Mutex<Arc<ReadCertificates>>,
    served: Mutex<ServedConfigs>,
}

/// Certificates as they were last read.
struct ReadCertificates {
    /// Certificate for clients whose server name no named certificate has.
    default: Certificate,
    /// Certificates in the order of [`Tls::named`].
    named: Vec<Certificate>,
}

impl ReadCertificates {
    fn load(
        settings: &TlsSettings,
        identity: &Identity,
        named: &[NamedFiles],
    ) -> Result<Self, TlsError> {
        let read = |certificate: &PathBuf, key: &PathBuf| {
            let pair = Certificate::from_files(certificate, key)?;
            // While the files are being written, certificate and key may not match.
            pair.certified(&settings.provider)?;
            Ok::<_, TlsError>(pair)
        };
        let default = match identity {
            Identity::Files { certificate, key } => read(certificate, key)?,
            Identity::SelfSigned(certificate) => certificate.clone(),
        };
        let named = named.iter().map(|files| read(&files.certificate, &files.key));
        Ok(Self { default, named: named.collect::<Result<_, _>>()? })
    }

    /// Returns the content of all certificates and keys, to detect changes.
    fn bytes(&self) -> Vec<Vec<u8>> {
        [&self.default].into_iter().chain(&self.named).flat_map(Certificate::bytes).collect()
    }
}

/// TLS configurations of new connections.
#[derive(Clone)]
struct ServedConfigs {
    /// For clients that send a server name, and for local addresses without a certificate.
    config: Arc<ServerConfig>,
    /// For clients that send no server name, by the local address.
    by_address: HashMap<IpAddr, Arc<ServerConfig>>,
    /// Certificates, keys and CA hints from which the configurations were built.
    inputs: Vec<Vec<u8>>,
}

impl Tls {
    /// Reads all files for the first time.
    ///
    /// # Errors
    /// Fails if a file is missing or cannot be used.
    pub fn new(
        settings: TlsSettings,
        identity: Identity,
        named: Vec<NamedFiles>,
        files: TrustFiles,
        trust: Trust,
    ) -> Result<Self, TlsError> {
        read_trust(&files, &trust)?;
        let read = ReadCertificates::load(&settings, &identity, &named)?;
        let served = ServedConfigs::build(&settings, &read, &named, &trust, None)?;
        // Without an earlier state, the result is never `None`.
        let served = served.ok_or_else(|| TlsError::Pem("nothing was read".to_owned()))?;
        let (read, served) = (Mutex::new(Arc::new(read)), Mutex::new(served));
        Ok(Self { settings, identity, named, files, trust, queues: None, read, served })
    }

    /// Counts rereads and rebuilds in these metrics of queues.
    #[must_use]
    pub fn with_metrics(self, queues: &queue::Metrics) -> Self {
        Self { queues: Some(queues.clone()), ..self }
    }

    /// Rereads the files, and returns whether the served TLS settings have changed. Invalid files leave them
    /// unchanged.
    ///
    /// # Errors
    /// Fails if a file is missing or cannot be used.
    pub fn refresh(&self) -> Result<bool, TlsError> {
        self.reread()?;
        self.rebuild()
    }

    /// Rereads the files, and returns whether certificates have changed.
    fn reread(&self) -> Result<bool, TlsError> {
        read_trust(&self.files, &self.trust)?;
        let reread = ReadCertificates::load(&self.settings, &self.identity, &self.named)?;
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = reread.bytes() != read.bytes();
        *read = Arc::new(reread);
        Ok(changed)
    }

    /// Rebuilds the TLS settings from the last read, and returns whether they have changed.
    fn rebuild(&self) -> Result<bool, TlsError> {
        let read = self.read.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let before = self.served().inputs;
        let rebuilt =
            ServedConfigs::build(&self.settings, &read, &self.named, &self.trust, Some(&before))?;
        let changed = rebuilt.is_some();
        if let Some(rebuilt) = rebuilt {
            *self.served.lock().unwrap_or_else(PoisonError::into_inner) = rebuilt;
        }
        Ok(changed)
    }

    /// Follows changes of the files and of [`Trust`], until dropped. Changes since the first read apply
    /// immediately.
    pub async fn keep_reloaded(&self, clock: &Clock) {
        let queues = self.queues.as_ref();
        // A self-signed certificate in memory is not reread, so its rereads are not counted.
        let reread_metrics = queues.filter(|_| matches!(self.identity, Identity::Files { .. }));
        let reread_queue = SyncQueue::new("DynamicCABundle-serving-cert", reread_metrics, clock);
        let rebuild_queue = SyncQueue::new("DynamicServingCertificateController", queues, clock);
        let reread_ticks = async {
            loop {
                reread_queue.enqueue();
                clock.sleep(REREAD).await;
            }
        };
        let mut trust = self.trust.watch();
        let rebuild_triggers = async {
            loop {
                rebuild_queue.enqueue();
                tokio::select! {
                    () = clock.sleep(REBUILD_INTERVAL) => {}
                    // The wait cannot fail, because `self.trust` owns the sender.
                    _ = trust.changed() => {}
                }
            }
        };
        let message = "Certificates cannot be reread; the last ones stay in use";
        let rereads = reread_queue.work(message, || {
            if self.reread()? {
                rebuild_queue.enqueue();
            }
            Ok::<(), TlsError>(())
        });
        let rebuilds = rebuild_queue.work(message, || {
            if self.rebuild()? {
                tracing::info!("Certificates have changed; new connections use them");
            }
            Ok::<(), TlsError>(())
        });
        tokio::join!(rereads, rebuilds, reread_ticks, rebuild_triggers);
    }

    /// Returns the configuration of a new connection. `names_server` is whether the client sends a server name. If not,
    /// the local address selects the certificate.
    fn config(&self, names_server: bool, address: Option<IpAddr>) -> Arc<ServerConfig> {
        let served = self.served.lock().unwrap_or_else(PoisonError::into_inner);
        let config = match address {
            Some(address) if !names_server => served.by_address.get(&address.to_canonical()),
            _ => None,
        };
        config.unwrap_or(&served.config).clone()
    }

    /// Performs the handshake of a connection of `peer`. Returns `None` after `stop`, for a client that sent plain HTTP (it
    /// receives an error), and for a failure, which is logged.
    pub async fn accept(
        &self,
        stream: TcpStream,
        peer: SocketAddr,
        stop: &CancellationToken,
    ) -> Option<TlsStream<TcpStream>> {
        handshake(stream, peer, stop, |stream| self.accept_tls(stream)).await
    }

    async fn accept_tls(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let address = stream.local_addr().ok().map(|address| address.ip());
        let handshake = LazyConfigAcceptor::new(Acceptor::default(), stream).await?;
        let names_server = handshake.client_hello().server_name().is_some();
        handshake.into_stream(self.config(names_server, address)).await
    }

    fn served(&self) -> ServedConfigs {
        self.served.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl ServedConfigs {
    /// Builds the TLS configurations. Returns `None` if their inputs are the same as `before`.
    fn build(
        settings: &TlsSettings,
        read: &ReadCertificates,
        named: &[NamedFiles],
        trust: &Trust,
        before: Option<&[Vec<u8>]>,
    ) -> Result<Option<Self>, TlsError> {
        let hints = trust.current().ca_hints();
        let mut inputs = read.bytes();
        let explicit_names = named.iter().map(|files| files.names.as_slice());
        let pairs: Vec<_> = read.named.iter().cloned().zip(explicit_names).collect();
        inputs.extend(hints.iter().map(|hint| hint.as_ref().to_vec()));
        if before == Some(&inputs) {
            return Ok(None);
        }
        let names = ByName::new(&read.default, &pairs, &settings.provider)?;
        let by_address = names.addresses().map(|(address, certificate)| {
            let certificate: Arc<dyn ResolvesServerCert> =
                Arc::new(names::SingleCertificate(certificate));
            settings.config(certificate, &hints).map(|config| (address, config))
        });
        let by_address = by_address.collect::<Result<_, _>>()?;
        let config = settings.config(Arc::new(names), &hints)?;
        Ok(Some(Self { config, by_address, inputs }))
    }
}

/// Reads the CAs of clients and of front proxies from files. Without files, the cluster's ConfigMap may contain
/// them.
fn read_trust(files: &TrustFiles, trust: &Trust) -> Result<(), TlsError> {
    let clients = files.clients.as_ref().map(read_authority).transpose()?;
    let proxies = match &files.proxies {
        Some((path, headers)) => Some((read_authority(path)?, headers.clone())),
        None => None,
    };
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

fn read_authority(path: &PathBuf) -> Result<Authority, TlsError> {
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
