//! Certificates of the webhook server: from files, or managed by the program itself.
//!
//! A self-managed certificate is in a Secret that all replicas share. Each replica renews it when it is due, and the first
//! write wins. `plan` decides from the Secret and the time, `issue` makes keys and certificates, and `inject` decides which
//! `caBundle`s differ. `controller` performs the I/O.

mod controller;
mod files;
mod inject;
mod issue;
mod material;
mod plan;
mod served;

pub(super) use served::Served;

use super::metrics::Metrics;
use crate::{clock::Clock, controller::Env, tasks::Tasks};
use files::Files;
use material::Names;
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

/// Error of the certificates of webhooks.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A file is missing or cannot be used.
    #[error("the webhooks' certificate {} cannot be used: {reason}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Reason why it cannot be used.
        reason: String,
    },
    /// The namespace of the Service is unknown.
    #[error(
        "the namespace of the Service {service} is unknown, because this process runs in no pod; \
         set it with Certificates::in_namespace"
    )]
    Namespace {
        /// Name of the Service.
        service: String,
    },
    /// The names of the Service and the namespace do not form a valid host name.
    #[error("{0:?} is not a host name that a certificate can have")]
    Name(String),
}

/// Source of the certificate of a [`WebhookServer`](super::WebhookServer).
///
/// ```
/// use evenkeel_runtime::webhook::Certificates;
///
/// // Files that another program renews, such as cert-manager.
/// let mounted = Certificates::folder("/tmp/k8s-webhook-server/serving-certs");
/// // Certificates that the program issues, renews and publishes in `caBundle`s.
/// let own = Certificates::self_managed("webapp-hooks");
/// ```
#[derive(Debug, Clone)]
pub struct Certificates(Kind);

/// Source of the certificates.
#[derive(Debug, Clone)]
enum Kind {
    Files { certificate: PathBuf, key: PathBuf },
    SelfManaged { service: String, namespace: Option<String>, secret: Option<String> },
}

impl Certificates {
    /// Returns the certificate in two PEM files, which are read again every 10 seconds. The certificate's file may also
    /// hold its intermediates.
    #[doc(alias = "certwatcher")]
    pub fn files(certificate: impl AsRef<Path>, key: impl AsRef<Path>) -> Self {
        let (certificate, key) = (certificate.as_ref().to_owned(), key.as_ref().to_owned());
        Self(Kind::Files { certificate, key })
    }

    /// Returns the certificate in the files `tls.crt` and `tls.key` of a folder, such as a mounted Secret.
    #[doc(alias = "CertDir")]
    pub fn folder(folder: impl AsRef<Path>) -> Self {
        let folder = folder.as_ref();
        Self::files(folder.join("tls.crt"), folder.join("tls.key"))
    }

    /// Returns certificates that the program manages for a Service in the pod's namespace. The program creates a CA (10 years)
    /// and a serving certificate (1 year), stores both in a Secret, and renews each after two thirds of its lifetime. It writes
    /// the `caBundle` of all webhook configurations and CustomResourceDefinitions that call the Service.
    ///
    /// The program needs these permissions: `create` of Secrets; `get`, `list`, `watch` and `patch` of its Secret; `list`,
    /// `watch` and `patch` of the MutatingWebhookConfigurations, ValidatingWebhookConfigurations and
    /// CustomResourceDefinitions, for each of these kinds that calls the program.
    #[doc(alias("cert-controller", "ca-injector"))]
    pub fn self_managed(service: &str) -> Self {
        Self(Kind::SelfManaged { service: service.to_owned(), namespace: None, secret: None })
    }

    /// Sets the namespace of a self-managed certificate's Service and Secret. Default: the namespace of the pod.
    #[must_use]
    pub fn in_namespace(mut self, name: &str) -> Self {
        if let Kind::SelfManaged { namespace, .. } = &mut self.0 {
            *namespace = Some(name.to_owned());
        }
        self
    }

    /// Sets the name of a self-managed certificate's Secret. Default: the Service's name with the suffix `-tls`.
    #[must_use]
    pub fn secret(mut self, name: &str) -> Self {
        if let Kind::SelfManaged { secret, .. } = &mut self.0 {
            *secret = Some(name.to_owned());
        }
        self
    }

    /// Returns the source of the certificate. `namespace` is the pod's.
    pub(super) fn source(self, namespace: Option<&str>) -> Result<Source, CertificateError> {
        match self.0 {
            Kind::Files { certificate, key } => Ok(Source::Files(Files::new(certificate, key))),
            Kind::SelfManaged { service, namespace: own, secret } => {
                let Some(namespace) = own.or_else(|| namespace.map(str::to_owned)) else {
                    return Err(CertificateError::Namespace { service });
                };
                Names::new(service, namespace, secret).map(Source::SelfManaged)
            }
        }
    }
}

/// Kinds of objects whose `caBundle` is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Watches {
    pub(super) mutating: bool,
    pub(super) validating: bool,
    pub(super) conversions: bool,
}

/// Source of a server's certificate.
pub(super) enum Source {
    Files(Files),
    SelfManaged(Names),
}

impl Source {
    /// Starts the tasks that keep `served` up to date.
    ///
    /// # Errors
    /// Fails if a file is missing or cannot be used.
    pub(super) fn start(
        self,
        env: &Env,
        metrics: Metrics,
        watches: Watches,
        served: &Arc<Served>,
        tasks: &Tasks,
    ) -> Result<(), CertificateError> {
        match self {
            Self::Files(files) => {
                let counted = Some(metrics);
                files.read(served, counted.as_ref())?;
                let (files, clock, served) =
                    (Arc::new(files), Clock::clone(&env.clock), Arc::clone(served));
                tasks.spawn_restarting_until_cancelled("webhook certificate files", move || {
                    let (files, clock) = (Arc::clone(&files), clock.clone());
                    let (served, metrics) = (Arc::clone(&served), counted.clone());
                    async move { files.keep_read(&clock, &served, metrics.as_ref()).await }
                });
            }
            Self::SelfManaged(names) => controller::start(names, env, watches, served, tasks),
        }
        Ok(())
    }
}
