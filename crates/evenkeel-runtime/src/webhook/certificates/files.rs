//! Certificates in files, which are read again when they change.
//!
//! Upstream: `certwatcher`. The interval is the same, but file system notifications are not used.

use super::{CertificateError, Served, material};
use crate::{clock::Clock, webhook::metrics::Metrics};
use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// Interval at which the files are read.
///
/// Upstream: `defaultWatchInterval`.
const REREAD_INTERVAL: Duration = Duration::from_secs(10);

/// PEM files of a certificate and its key.
pub(in crate::webhook) struct Files {
    certificate: PathBuf,
    key: PathBuf,
}

impl Files {
    pub(super) fn new(certificate: PathBuf, key: PathBuf) -> Self {
        Self { certificate, key }
    }

    /// Reads both files, and serves them.
    ///
    /// # Errors
    /// Fails if a file is missing, or certificate and key do not match.
    pub(super) fn read(
        &self,
        served: &Served,
        metrics: Option<&Metrics>,
    ) -> Result<bool, CertificateError> {
        if let Some(metrics) = metrics {
            metrics.certificate_reads.inc();
        }
        let result = self.load().map(|key| served.set(Arc::new(key)));
        if let (Err(_), Some(metrics)) = (&result, metrics) {
            metrics.certificate_read_errors.inc();
        }
        result
    }

    fn load(&self) -> Result<rustls::sign::CertifiedKey, CertificateError> {
        let failed =
            |path: &Path, reason: String| CertificateError::File { path: path.to_owned(), reason };
        let read = |path: &Path| fs::read(path).map_err(|error| failed(path, error.to_string()));
        let (certificate, key) = (read(&self.certificate)?, read(&self.key)?);
        material::certified_key(&certificate, &key)
            .map_err(|reason| failed(&self.certificate, reason))
    }

    /// Reads the files periodically. The last certificate stays in use while the files are invalid.
    pub(super) async fn keep_read(
        &self,
        clock: &Clock,
        served: &Served,
        metrics: Option<&Metrics>,
    ) {
        loop {
            clock.sleep(REREAD_INTERVAL).await;
            match self.read(served, metrics) {
                Ok(false) => {}
                Ok(true) => tracing::info!("the certificate of webhooks has changed"),
                Err(error) => tracing::warn!(
                    %error,
                    "the certificate of webhooks cannot be read again; the last one stays in use"
                ),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{
        issue,
        material::{Material, Names},
        plan::Renewal,
    };
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn changed_files_are_served_and_damaged_ones_are_not() {
        let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
        let names = Names::new("hooks".into(), "default".into(), None).unwrap();
        let make = || issue::issue(Renewal::Everything, None, &names, clock.now()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let (certificate, key) = (folder.path().join("tls.crt"), folder.path().join("tls.key"));
        let write = |material: &Material| {
            fs::write(&certificate, &material.certificate).unwrap();
            fs::write(&key, &material.key).unwrap();
        };
        let (files, served) = (Files::new(certificate.clone(), key.clone()), Served::default());
        let error = files.read(&served, None).unwrap_err();
        assert!(error.to_string().contains("tls.crt cannot be used"), "{error}");
        assert!(served.is_empty());
        let first = make();
        write(&first);
        assert!(files.read(&served, None).unwrap());
        assert!(!files.read(&served, None).unwrap(), "nothing has changed");
        let shown = || served.current().unwrap().cert.clone();
        let before = shown();
        let reads = async {
            write(&make());
            clock.sleep(REREAD_INTERVAL * 2).await;
            let after = shown();
            assert_ne!(after, before);
            fs::write(&key, &first.key).unwrap();
            clock.sleep(REREAD_INTERVAL * 2).await;
            assert_eq!(shown(), after, "a key that does not belong to the certificate");
        };
        tokio::select! {
            () = files.keep_read(&clock, &served, None) => {}
            () = reads => {}
        }
    }
}
