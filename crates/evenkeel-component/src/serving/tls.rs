//! TLS of the secure port, as the flags configure it.

use crate::options::{ServingOptions, TlsVersion};
use crate::secure_serving::{
    Certificate, Identity, NamedFiles, ProxyHeaders, Tls, TlsSettings, Trust, TrustFiles,
};
use anyhow::{Context, Result};
use std::path::Path;

/// Returns the TLS of the secure port: certificates, settings and trusted CAs.
///
/// # Errors
/// Fails if a certificate cannot be read, or `--tls-curve-preferences` names no supported group.
pub(super) fn tls(identity: Identity, options: &ServingOptions, trust: &Trust) -> Result<Tls> {
    let header = &options.request_header;
    let proxy_headers = ProxyHeaders {
        allowed_names: header.allowed_names.clone(),
        username: header.username.clone(),
        uid: header.uid.clone(),
        group: header.group.clone(),
        extra_prefix: header.extra_prefix.clone(),
    };
    let files = TrustFiles {
        clients: options.client_ca.as_ref().map(Into::into),
        proxies: header.client_ca.as_ref().map(|path| (path.into(), proxy_headers)),
    };
    let tls = Tls::new(settings(options)?, identity, named(options), files, trust.clone());
    tls.context("the secure port")
}

/// Returns the TLS of another port of the program, which is for browsers: the certificates and settings of the secure port,
/// only HTTP/1.1, and no request for certificates of clients.
///
/// # Errors
/// Fails if a certificate cannot be read, or `--tls-curve-preferences` names no supported group.
pub fn browser_tls(identity: Identity, options: &ServingOptions) -> Result<Tls> {
    let settings = settings(options)?.without_http2().without_client_certificates();
    let (files, trust) = (TrustFiles::default(), Trust::default());
    Tls::new(settings, identity, named(options), files, trust).context("the port for browsers")
}

/// Returns the certificates by server name (`--tls-sni-cert-key`).
fn named(options: &ServingOptions) -> Vec<NamedFiles> {
    let named = options.tls.by_name.iter().map(|named| NamedFiles {
        certificate: named.certificate.clone().into(),
        key: named.key.clone().into(),
        names: named.names.clone(),
    });
    named.collect()
}

/// Returns the protocol versions, cipher suites and key exchange groups.
fn settings(options: &ServingOptions) -> Result<TlsSettings> {
    let mut settings = TlsSettings::default();
    if options.tls.min_version == TlsVersion::Tls13 {
        settings = settings.only_tls13();
    }
    if !options.http2 {
        settings = settings.without_http2();
    }
    for cipher in settings.set_ciphers(&options.tls.ciphers) {
        tracing::warn!(
            cipher,
            "--tls-cipher-suites names a cipher suite that this program does not support; it is ignored"
        );
    }
    for group in settings.set_groups(&options.tls.groups).context("--tls-curve-preferences")? {
        tracing::warn!(
            group,
            "--tls-curve-preferences names a curve that this program does not support; it is ignored"
        );
    }
    Ok(settings)
}

/// Returns the serving certificate: the one of `--tls-cert-file` if it is set, otherwise a self-signed one for the host. With
/// `--cert-dir`, the self-signed certificate is stored in files, and created only if they do not exist.
///
/// A self-signed certificate in `--cert-dir` has the file name `program`.
///
/// Upstream: `MaybeDefaultWithSelfSignedCerts`.
///
/// # Errors
/// Fails if a self-signed certificate cannot be created.
pub fn identity(program: &str, options: &ServingOptions) -> Result<Identity> {
    if let Some((certificate, key)) = &options.certificate {
        return Ok(Identity::Files { certificate: certificate.into(), key: key.into() });
    }
    let host = match options.address {
        address if address.is_unspecified() => "localhost".to_owned(),
        address => address.to_string(),
    };
    let names = ["localhost".to_owned(), "127.0.0.1".to_owned(), host];
    let Some(folder) = options.cert_dir.as_deref().map(Path::new) else {
        return Ok(Identity::SelfSigned(Certificate::self_signed(&names, None)?));
    };
    // Reread these files like those of the flags, so that a replaced certificate is used.
    Certificate::self_signed(&names, Some((folder, program)))?;
    let file = |end: &str| folder.join(format!("{program}.{end}"));
    Ok(Identity::Files { certificate: file("crt"), key: file("key") })
}
