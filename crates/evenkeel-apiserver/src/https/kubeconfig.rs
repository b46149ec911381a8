//! Server that a kubeconfig file names, for webhooks that are configured by a file.
//!
//! Upstream: `LoadKubeconfig` of `util/webhook`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use evenkeel_apimachinery::value::{flag, list, text};
use evenkeel_x509::CertPool;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{HeaderValue, Request, Response, Uri};
use http_body_util::Full;
use rustls::ClientConfig;
use serde_json::Value;

use super::{Address, ClientIdentity, Trust, client_config, exchange};

/// Server of a kubeconfig file's current context, with the client's credentials.
pub(crate) struct Target {
    uri: Uri,
    tls: Arc<ClientConfig>,
    /// The header `Authorization`, if the file has a token.
    authorization: Option<HeaderValue>,
}

impl Target {
    /// Reads the current context of a kubeconfig file. Relative paths in it begin at `folder`, or at the working
    /// directory.
    pub(crate) fn parse(kubeconfig: &str, folder: Option<&Path>) -> Result<Self, String> {
        let config = evenkeel_apimachinery::decode::file(kubeconfig.as_bytes())?;
        // The lists `contexts`, `clusters` and `users` have items with a name and a field for the item itself.
        let find = |list_field: &str, item_field: &str, name: &str| {
            let item = list(&config, list_field).iter().find(|item| text(item, "name") == name);
            item.and_then(|item| item.get(item_field)).cloned().unwrap_or_default()
        };
        let context = find("contexts", "context", text(&config, "current-context"));
        let cluster = find("clusters", "cluster", text(&context, "cluster"));
        let user = find("users", "user", text(&context, "user"));
        let server = text(&cluster, "server");
        let uri: Uri = server.parse().map_err(|error| format!("server {server:?}: {error}"))?;
        if uri.scheme_str() != Some("https") || uri.authority().is_none() {
            return Err(format!("server {server:?} must be an https URL"));
        }
        let unsupported = [
            (&cluster, "proxy-url"),
            (&cluster, "tls-server-name"),
            (&user, "exec"),
            (&user, "auth-provider"),
            (&user, "username"),
        ];
        if let Some((_, field)) =
            unsupported.iter().find(|(object, field)| object.get(field).is_some())
        {
            return Err(format!(
                "{field} is not in this server: tokens and client certificates are"
            ));
        }
        let files = Files { folder };
        let trust = if flag(&cluster, "insecure-skip-tls-verify") {
            Trust::Any
        } else {
            Trust::Roots(files.roots(&cluster)?)
        };
        let tls = Arc::new(client_config(trust, files.identity(&user)?.as_ref())?);
        Ok(Self { uri, tls, authorization: files.authorization(&user)? })
    }

    /// Posts JSON to the server's URL, with another query if it is not empty. A response of more than `limit` bytes is
    /// an error.
    pub(crate) async fn post(
        &self,
        body: Bytes,
        query: &str,
        limit: usize,
    ) -> Result<Response<Bytes>, String> {
        let authority = self.uri.authority().ok_or("the URL names no host")?;
        let path = self.uri.path_and_query().map_or("/", |path| path.as_str());
        let with_query = format!("{}?{query}", self.uri.path());
        let path = if query.is_empty() { path } else { &with_query };
        let mut request = Request::post(path)
            .header(HOST, authority.as_str())
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "application/json");
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        let request = request.body(Full::new(body)).map_err(|error| error.to_string())?;
        let address = Address::from_authority(authority);
        exchange(&address, self.tls.clone(), request, limit).await
    }

    /// Returns the URL without its query.
    pub(crate) fn url(&self) -> String {
        let authority = self.uri.authority().map_or("", |authority| authority.as_str());
        format!("https://{authority}{}", self.uri.path())
    }
}

/// Reader of the files that a kubeconfig file names.
struct Files<'a> {
    /// Folder that relative paths start from; `None` for the working directory.
    folder: Option<&'a Path>,
}

impl Files<'_> {
    /// Returns the bytes of a field: `FIELD-data` in base64, or the content of the file that `FIELD` names. `None` if
    /// neither is set.
    fn read(&self, object: &Value, field: &str) -> Result<Option<Vec<u8>>, String> {
        let failed = |error: String| format!("{field}: {error}");
        match (text(object, &format!("{field}-data")), text(object, field)) {
            ("", "") => Ok(None),
            ("", path) => {
                let bytes = std::fs::read(self.path(path));
                bytes.map(Some).map_err(|error| failed(error.to_string()))
            }
            (data, _) => {
                let bytes = BASE64_STANDARD.decode(data);
                bytes.map(Some).map_err(|error| failed(error.to_string()))
            }
        }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.folder.map_or_else(|| PathBuf::from(path), |folder| folder.join(path))
    }

    /// Returns the certificate authorities of a cluster; the system's certificate authorities if the cluster names
    /// none.
    fn roots(&self, cluster: &Value) -> Result<CertPool, String> {
        const FIELD: &str = "certificate-authority";
        match self.read(cluster, FIELD)? {
            None => Ok(CertPool::system()),
            Some(pem) => CertPool::from_pem(&pem).map_err(|error| format!("{FIELD}: {error}")),
        }
    }

    /// Returns the client certificate of a user with its key, if it has one.
    fn identity(&self, user: &Value) -> Result<Option<ClientIdentity>, String> {
        let [certificate, key] = ["client-certificate", "client-key"];
        let pem = |field| {
            let bytes = self.read(user, field)?;
            let pem = bytes.map(String::from_utf8).transpose();
            pem.map_err(|_| format!("{field}: it is not PEM"))
        };
        match (pem(certificate)?, pem(key)?) {
            (None, None) => Ok(None),
            (Some(chain), Some(key)) => ClientIdentity::from_pem(&chain, &key)
                .map(Some)
                .map_err(|error| format!("{certificate}: {error}")),
            _ => Err(format!("{certificate} and {key} must be set together")),
        }
    }

    /// Returns the header `Authorization` with the token of a user; `None` if it has no token.
    fn authorization(&self, user: &Value) -> Result<Option<HeaderValue>, String> {
        let token = match (text(user, "token"), text(user, "tokenFile")) {
            ("", "") => return Ok(None),
            ("", path) => std::fs::read_to_string(self.path(path))
                .map_err(|error| format!("tokenFile: {error}"))?,
            (token, _) => token.to_owned(),
        };
        let mut value = HeaderValue::try_from(format!("Bearer {}", token.trim()))
            .map_err(|_| "the token is not a valid header value".to_owned())?;
        value.set_sensitive(true);
        Ok(Some(value))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(server: &str, user: &Value) -> Result<Target, String> {
        let kubeconfig = json!({"current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
            "clusters": [{"name": "k", "cluster": {"server": server, "insecure-skip-tls-verify": true}}],
            "users": [{"name": "u", "user": user}]});
        Target::parse(&kubeconfig.to_string(), Some(Path::new("/nowhere")))
    }

    #[test]
    fn a_kubeconfig_file_names_the_server() {
        let target = parse("https://audit:8443/k?x=y", &json!({"token": "t "})).expect("a server");
        assert_eq!(target.uri.to_string(), "https://audit:8443/k?x=y");
        assert_eq!(target.url(), "https://audit:8443/k");
        assert_eq!(target.authorization, Some(HeaderValue::from_static("Bearer t")));
        for (server, user, why) in [
            ("http://audit", json!({}), "must be an https URL"),
            ("", json!({}), "server \"\""),
            ("https://audit", json!({"exec": {}}), "exec is not in this server"),
            ("https://audit", json!({"client-certificate-data": "eA=="}), "must be set together"),
            ("https://audit", json!({"tokenFile": "t"}), "tokenFile: No such file"),
            ("https://audit", json!({"token": "a\nb"}), "not a valid header value"),
        ] {
            let error = parse(server, &user).err().unwrap_or_default();
            assert!(error.contains(why), "{error}");
        }
    }
}
