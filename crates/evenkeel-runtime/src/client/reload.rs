//! Certificate rotation: transports that reload the kubeconfig, client certificates and CAs when their files change.
//!
//! kube's client reloads token files, but reads all other files only once.
//!
//! Upstream: `dynamicClientCert`.

use super::{
    ConnectError, ConnectOptions,
    connect::{build_stack, config},
    full_text,
    transport::{ReplaceableStack, Stack, Transport},
};
use crate::clock::Clock;
use kube::{Config, config::Kubeconfig};
use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// Interval between checks of the files for changes.
const POLL_INTERVAL: Duration = Duration::from_secs(10);

/// CA file of a pod's service account.
const POD_CA: &str = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt";

/// Function that modifies the configuration of one transport.
type ModifyConfig = Arc<dyn Fn(&mut Config) + Send + Sync>;

/// Reloads the files of a connection, and rebuilds its transports when the files change.
pub struct ConfigReloader {
    options: ConnectOptions,
    clock: Clock,
    fingerprint: Fingerprint,
    transports: Vec<(ModifyConfig, ReplaceableStack)>,
}

/// Hash of each file's content. `None` for a file that cannot be read.
type Fingerprint = BTreeMap<PathBuf, Option<u64>>;

impl ConfigReloader {
    /// Creates a reloader for connections with these options. [`ConfigReloader::run`] starts it.
    pub fn new(options: ConnectOptions, clock: Clock) -> Self {
        let fingerprint = fingerprint(&options);
        Self { options, clock, fingerprint, transports: Vec::new() }
    }

    /// Returns a transport with the files' configuration, modified by `modify`. After a reload, new requests
    /// use the new configuration, and open watches keep their connection.
    ///
    /// # Errors
    /// Fails if a file or a field cannot be used, as in [`super::connect()`].
    pub async fn transport(
        &mut self,
        modify: impl Fn(&mut Config) + Send + Sync + 'static,
    ) -> Result<Transport, ConnectError> {
        let mut config = config(&self.options).await?;
        modify(&mut config);
        let namespace = config.default_namespace.clone();
        let stack = ReplaceableStack::new(build_stack(&config)?);
        self.transports.push((Arc::new(modify), stack.clone()));
        Ok(Transport::new(stack, &namespace))
    }

    /// Reloads changed files until the future is dropped. If files are invalid, logs them and keeps the transports.
    pub async fn run(mut self) {
        loop {
            self.clock.sleep(POLL_INTERVAL).await;
            self.reload_if_changed().await;
        }
    }

    async fn reload_if_changed(&mut self) {
        let found = fingerprint(&self.options);
        if found == self.fingerprint {
            return;
        }
        match self.rebuild().await {
            Ok(renewed) => {
                for ((_, stack), renewed) in self.transports.iter().zip(renewed) {
                    stack.set(renewed);
                }
                let mut changed = Vec::new();
                for (path, hash) in &found {
                    if self.fingerprint.get(path) != Some(hash) {
                        changed.push(path.display().to_string());
                    }
                }
                tracing::info!(
                    files = changed.join(", "),
                    "Files changed; new requests use new connections"
                );
                self.fingerprint = found;
            }
            // The file may be incomplete. The next poll reads it again.
            Err(error) => {
                tracing::warn!(error = full_text(&error), "Changed files cannot be used (yet)");
            }
        }
    }

    /// Builds a new stack for each transport from the files.
    async fn rebuild(&self) -> Result<Vec<Stack>, ConnectError> {
        let base_config = config(&self.options).await?;
        let stacks = self.transports.iter().map(|(modify, _)| {
            let mut config = base_config.clone();
            modify(&mut config);
            build_stack(&config)
        });
        stacks.collect()
    }
}

fn fingerprint(options: &ConnectOptions) -> Fingerprint {
    fingerprint_of(options, std::env::var_os("KUBECONFIG"), std::env::home_dir())
}

/// Returns the fingerprint for this `$KUBECONFIG` and home folder.
fn fingerprint_of(
    options: &ConnectOptions,
    kubeconfig: Option<OsString>,
    home: Option<PathBuf>,
) -> Fingerprint {
    let kubeconfigs = match (&options.kubeconfig, kubeconfig.filter(|paths| !paths.is_empty())) {
        (Some(path), _) => vec![path.clone()],
        (None, _) if options.only_in_pod || options.server.is_some() => Vec::new(),
        (None, Some(paths)) => std::env::split_paths(&paths).collect(),
        (None, None) => home.map(|home| home.join(".kube/config")).into_iter().collect(),
    };
    let mut files = BTreeSet::new();
    for path in kubeconfigs {
        if let Ok(kubeconfig) = Kubeconfig::read_from(&path) {
            files.extend(certificate_files(&kubeconfig));
        }
        files.insert(path);
    }
    if options.kubeconfig.is_none() {
        files.insert(POD_CA.into());
    }
    let mut fingerprint = Fingerprint::new();
    for path in files {
        let hash = content_hash(&path);
        fingerprint.insert(path, hash);
    }
    fingerprint
}

/// Returns the certificate files that a kubeconfig names.
fn certificate_files(kubeconfig: &Kubeconfig) -> Vec<PathBuf> {
    let clusters = kubeconfig.clusters.iter().filter_map(|named| named.cluster.as_ref());
    let users = kubeconfig.auth_infos.iter().filter_map(|named| named.auth_info.as_ref());
    let of_clusters = clusters.filter_map(|cluster| cluster.certificate_authority.as_ref());
    let of_users =
        users.flat_map(|user| [user.client_certificate.as_ref(), user.client_key.as_ref()]);
    of_clusters.chain(of_users.flatten()).map(PathBuf::from).collect()
}

fn content_hash(path: &Path) -> Option<u64> {
    let mut hasher = DefaultHasher::new();
    fs::read(path).ok()?.hash(&mut hasher);
    Some(hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

    /// Starts a server that responds to each request with its name.
    async fn server(tasks: &crate::tasks::Tasks, name: &'static str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tasks.spawn_until_cancelled(name, async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = [0; 4096];
                while stream.read(&mut request).await.is_ok_and(|read| read > 0) {
                    let answer =
                        format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{name}", name.len());
                    stream.write_all(answer.as_bytes()).await.unwrap();
                }
            }
        });
        url
    }

    fn kubeconfig(url: &str, user: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n\
             clusters: [{{name: k, cluster: {{server: \"{url}\"}}}}]\nusers: [{{name: u, user: {{{user}}}}}]\n"
        )
    }

    /// Sends a request and returns the body of the response: the server's name.
    async fn response_of(client: &kube::Client) -> String {
        let request = http::Request::get("/").body(Vec::new()).unwrap();
        client.request_text(request).await.unwrap()
    }

    #[tokio::test]
    async fn a_changed_kubeconfig_is_reloaded_and_an_invalid_one_ignored() {
        let (tasks, folder) = (crate::tasks::Tasks::new(), tempfile::tempdir().unwrap());
        let (one, two) = (server(&tasks, "one").await, server(&tasks, "two").await);
        let path = folder.path().join("kubeconfig");
        fs::write(&path, kubeconfig(&one, "")).unwrap();
        let options = ConnectOptions { kubeconfig: Some(path.clone()), ..Default::default() };
        let mut reload = ConfigReloader::new(options, Clock::system());
        let client = reload.transport(|_| {}).await.unwrap();
        assert_eq!(response_of(client.kube()).await, "one");
        fs::write(&path, "not: a: kubeconfig").unwrap();
        reload.reload_if_changed().await;
        assert_eq!(response_of(client.kube()).await, "one");
        fs::write(&path, kubeconfig(&two, "")).unwrap();
        reload.reload_if_changed().await;
        assert_eq!(response_of(client.kube()).await, "two");
        tasks.shut_down(POLL_INTERVAL).await;
    }

    #[test]
    fn certificate_files_in_a_kubeconfig_are_watched() {
        let folder = tempfile::tempdir().unwrap();
        let (path, cert) = (folder.path().join("kubeconfig"), folder.path().join("client.crt"));
        // The path is relative to the kubeconfig.
        fs::write(&path, kubeconfig("https://h", "client-certificate: client.crt")).unwrap();
        let options = ConnectOptions { kubeconfig: Some(path.clone()), ..Default::default() };
        let absent = fingerprint(&options);
        assert_eq!(absent.keys().collect::<Vec<_>>(), [&cert, &path]);
        fs::write(&cert, "one").unwrap();
        let one = fingerprint(&options);
        fs::write(&cert, "two").unwrap();
        let two = fingerprint(&options);
        assert!(absent != one && one != two);
        assert_eq!(two, fingerprint(&options));
    }

    #[test]
    fn an_inferred_kubeconfig_is_watched() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path();
        let (own, cert) = (home.join(".kube/config"), home.join(".kube/client.crt"));
        fs::create_dir(home.join(".kube")).unwrap();
        fs::write(&own, kubeconfig("https://h", "client-certificate: client.crt")).unwrap();
        let [a, b, pod] = ["/nonexistent/a", "/nonexistent/b", POD_CA].map(PathBuf::from);
        let inferred = ConnectOptions::default();
        let in_pod = ConnectOptions { only_in_pod: true, ..Default::default() };
        let server = ConnectOptions { server: Some("h".to_owned()), ..Default::default() };
        for (options, variable, watched) in [
            (&inferred, None, vec![&cert, &own, &pod]),
            (&inferred, Some(""), vec![&cert, &own, &pod]),
            (&inferred, Some("/nonexistent/b:/nonexistent/a"), vec![&a, &b, &pod]),
            (&in_pod, None, vec![&pod]),
            (&server, None, vec![&pod]),
        ] {
            let found =
                fingerprint_of(options, variable.map(OsString::from), Some(home.to_owned()));
            assert_eq!(found.keys().collect::<BTreeSet<_>>(), watched.into_iter().collect());
        }
    }
}
