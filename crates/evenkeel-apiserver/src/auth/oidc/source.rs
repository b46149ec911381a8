//! Configuration file of JSON web tokens' issuers, and the authenticators that apply. The server follows changes of the
//! file without a restart.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use tokio::time::Instant;

use super::super::anonymous::Anonymous;
use super::super::config_reloads::ConfigReloads;
use super::authenticators::JwtAuthenticators;
use super::config::AnonymousConfig;
use super::tracker::{Step, Tracker};
use super::{Configured, configure};
use crate::clock::Clock;
use crate::tasks::Tasks;

/// Interval at which the file is checked for changes.
const CHECK_PERIOD: Duration = Duration::from_secs(5);
/// Maximum time that the authenticators of a changed file have to fetch their keys.
///
/// Upstream: `UpdateAuthenticationConfigTimeout`.
const UPDATE_TIMEOUT: Duration = Duration::from_secs(60);

/// Configuration file with the authenticators that apply.
pub(crate) struct Source {
    path: PathBuf,
    /// Issuers of service account tokens, which the file must not name.
    disallowed_issuers: Vec<String>,
    /// Configuration of anonymous requests at the start, which later versions of the file must keep.
    anonymous: Option<AnonymousConfig>,
    clock: Clock,
    reloads: ConfigReloads,
    /// Parent of the tasks that fetch keys.
    tasks: Tasks,
    tracker: Mutex<Tracker>,
    /// When the source was loaded.
    started: Instant,
    authenticators: RwLock<Arc<JwtAuthenticators>>,
}

impl Source {
    /// Loads the file for the first time. Returns the configuration of anonymous requests, too, if the file has one.
    /// `server` is the server's ID in metrics.
    ///
    /// # Errors
    /// The file cannot be read, or its content is invalid. The error has the reason.
    pub(crate) fn load(
        path: &Path,
        disallowed_issuers: Vec<String>,
        server: &str,
        clock: Clock,
        tasks: &Tasks,
    ) -> Result<(Self, Option<Anonymous>), String> {
        let content = read(path)?;
        let Configured { jwt, anonymous } = configure(&content, &disallowed_issuers)?;
        let tasks = tasks.child();
        let authenticators = Arc::new(JwtAuthenticators::start(jwt, tasks.child()));
        let reloads = ConfigReloads::new("authentication", server);
        reloads.applies(&content);
        let started = clock.instant();
        let tracker = Mutex::new(Tracker::new(content));
        let for_requests = anonymous.as_ref().map(AnonymousConfig::compile);
        let source = Self {
            path: path.to_owned(),
            disallowed_issuers,
            anonymous,
            clock,
            reloads,
            tasks,
            tracker,
            started,
            authenticators: RwLock::new(authenticators),
        };
        Ok((source, for_requests))
    }

    /// Returns the authenticators that apply. Requests that hold them may still use them after a change of the file.
    pub(crate) fn authenticators(&self) -> Arc<JwtAuthenticators> {
        self.authenticators.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Appends the metrics of reloads.
    pub(crate) fn render(&self, out: &mut String) {
        self.reloads.render(out);
    }

    /// Follows changes of the file. Never returns.
    pub(crate) async fn follow(&self) {
        loop {
            tokio::time::sleep(CHECK_PERIOD).await;
            self.check().await;
        }
    }

    /// Reads the file, and applies its content if it has changed.
    async fn check(&self) {
        let step = self.with_tracker(|tracker| tracker.next(read(&self.path), self.since_start()));
        let (succeeded, error) = match step {
            Step::Keep => return,
            Step::Fail(error) => (false, error),
            Step::Apply(content) => match self.apply(content).await {
                Ok(()) => (true, String::new()),
                Err(error) => (false, error),
            },
        };
        self.reloads.record(succeeded, self.clock.now());
        if succeeded {
            tracing::info!(file = %self.path.display(), "the authentication configuration was loaded again");
        } else {
            tracing::error!(error, "the authentication configuration cannot be loaded again");
        }
    }

    /// Replaces the authenticators by those of a new content, once they have their keys. An error leaves the old ones.
    ///
    /// Upstream: `updateAuthenticationConfig`.
    async fn apply(&self, content: Vec<u8>) -> Result<(), String> {
        let jwt = match self.configure(&content) {
            Ok(jwt) => jwt,
            Err(error) => {
                self.with_tracker(|tracker| tracker.settle(content));
                return Err(error);
            }
        };
        // The tasks of the new authenticators end here if they are not ready in time.
        let new = JwtAuthenticators::start(jwt, self.tasks.child());
        if tokio::time::timeout(UPDATE_TIMEOUT, new.ready()).await.is_err() {
            return Err(format!("[{}, context deadline exceeded]", new.unhealthy().join(", ")));
        }
        *self.authenticators.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(new);
        self.reloads.applies(&content);
        self.with_tracker(|tracker| tracker.settle(content));
        Ok(())
    }

    /// Validates a new content, which must configure anonymous requests as at the start.
    fn configure(&self, content: &[u8]) -> Result<Vec<super::JwtAuthenticator>, String> {
        let Configured { jwt, anonymous } = configure(content, &self.disallowed_issuers)?;
        if anonymous != self.anonymous {
            return Err("anonymous: Forbidden: changed from initial configuration file".to_owned());
        }
        Ok(jwt)
    }

    /// Returns the time since the source was loaded.
    fn since_start(&self) -> Duration {
        self.clock.instant().saturating_duration_since(self.started)
    }

    fn with_tracker<T>(&self, use_it: impl FnOnce(&mut Tracker) -> T) -> T {
        use_it(&mut self.tracker.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Reads the file. The error has its path.
fn read(path: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str =
        "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n";

    fn metrics(source: &Source) -> String {
        let mut out = String::new();
        source.render(&mut out);
        out
    }

    /// Returns the number of reloads with this status.
    fn reloads(source: &Source, status: &str) -> Option<String> {
        let metrics = metrics(source);
        let line = metrics.lines().find(|line| {
            line.contains("reloads_total{") && line.contains(&format!("status=\"{status}\""))
        });
        line.and_then(|line| line.rsplit_once(' ')).map(|(_, value)| value.to_owned())
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_valid_file_whose_issuers_have_keys_replaces_the_authenticators() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("config.yaml");
        let write = |text: &str| std::fs::write(&path, format!("{HEAD}{text}")).expect("written");
        write("anonymous: {enabled: true}");
        let (tasks, issuers) = (Tasks::default(), vec!["https://own".to_owned()]);
        let loaded = Source::load(&path, issuers, "s", Clock::system(), &tasks);
        let (source, anonymous) = loaded.expect("a valid file");
        assert_eq!(anonymous, Some(Anonymous::default()));
        let first = source.authenticators();
        let check = async || {
            source.check().await;
            Arc::ptr_eq(&first, &source.authenticators())
        };
        assert!(check().await, "the file has not changed");
        assert_eq!((reloads(&source, "failure"), reloads(&source, "success")), (None, None));
        let issuer = "claimMappings: {username: {claim: sub, prefix: ''}}";
        let failing = [
            ("jwt: [".to_owned(), "1"),
            ("jwt: []".to_owned(), "2"),
            (
                format!(
                    "anonymous: {{enabled: true}}\njwt: [{{issuer: {{url: 'https://own', audiences: [a]}}, {issuer}}}]"
                ),
                "3",
            ),
            // Nothing listens on this port, so that the keys cannot be fetched.
            (
                format!(
                    "anonymous: {{enabled: true}}\njwt: [{{issuer: {{url: 'https://127.0.0.1:1', audiences: [a]}}, {issuer}}}]"
                ),
                "4",
            ),
        ];
        for (text, failures) in &failing {
            write(text);
            assert!(check().await, "{text}");
            assert_eq!(reloads(&source, "failure").as_deref(), Some(*failures), "{text}");
        }
        // Keys may be there later, so the last one is tried again, unlike an invalid file.
        tokio::time::advance(Duration::from_secs(60)).await;
        assert!(check().await);
        assert_eq!(reloads(&source, "failure").as_deref(), Some("5"));
        std::fs::remove_file(&path).expect("removed");
        assert!(check().await);
        assert_eq!(reloads(&source, "failure").as_deref(), Some("6"));
        let before = metrics(&source);
        write("anonymous: {enabled: true}\njwt: []");
        assert!(!check().await, "a valid file replaces them");
        assert_eq!(reloads(&source, "success").as_deref(), Some("1"));
        let info = |text: &str| text.lines().last().map(str::to_owned);
        assert_ne!(info(&before), info(&metrics(&source)), "the digest is that of the new file");
    }
}
