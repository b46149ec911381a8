//! Authentication: determines the user of a request from a bearer token or a client certificate. A request without
//! credentials has the user `system:anonymous`, if the server allows anonymous requests.
//!
//! | documented rule | implemented in |
//! |---|---|
//! | Static tokens (`--token-auth-file`) | `add_csv` |
//! | Service account tokens, of the TokenRequest API and of Secrets | `serviceaccount/mod.rs` |
//! | Bootstrap tokens (`--enable-bootstrap-token-auth`) | `bootstrap_token::validate` |
//! | JSON web tokens that issuers other than this server signed (`--authentication-config`) | `oidc/mod.rs` |
//! | Front proxies (`--requestheader-client-ca-file`), tried before all other authenticators | `front_proxy::user`, `../serve/service.rs` |
//! | Anonymous requests, for all paths or some of them | `anonymous::allows` |
//! | The server uses the first authenticator that accepts a token; JWT authenticators come last | `authenticate_token` |
//! | A token without audiences is valid for the server's own audiences | `authenticate_token` |

use std::collections::HashMap;
use std::sync::Arc;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use jiff::Timestamp;

use super::anonymous::Anonymous;
use super::front_proxy::RequestHeaderOptions;
use super::oidc::Source;
use super::response::{Notes, Outcome, Response, intersect};
use super::serviceaccount::ServiceAccounts;
use super::{bootstrap_token, constant_time};
use crate::store::Store;
use evenkeel_apimachinery::headers;
use evenkeel_apimachinery::user::User;

/// Warning to a client that sends two spaces before its token.
const EXTRA_SPACE: &str = "the provided Authorization header contains extra space before the bearer token, and is ignored";

/// Authenticator of requests, with all configured methods to identify a user.
///
/// Upstream: `authenticator.Config.New`.
pub(crate) struct Authenticator {
    /// Static tokens with their users.
    pub(crate) static_tokens: StaticTokens,
    /// Issuer of service account tokens.
    pub(crate) service_accounts: ServiceAccounts,
    /// Whether bootstrap tokens are accepted.
    pub(crate) bootstrap_tokens: bool,
    /// File with the issuers of other JSON web tokens, if there is one.
    pub(crate) jwt: Option<Arc<Source>>,
    /// Configuration of anonymous requests.
    pub(crate) anonymous: Anonymous,
    /// Options for front proxies, which may name users in headers; `None` without front proxies.
    pub(crate) front_proxy: Option<RequestHeaderOptions>,
}

/// Users of static bearer tokens, by the SHA-256 digest of the token.
#[derive(Default)]
pub(crate) struct StaticTokens(HashMap<[u8; 32], Arc<User>>);

impl StaticTokens {
    /// Adds a token and the user that it authenticates.
    pub(crate) fn add(&mut self, token: &str, user: User) {
        self.0.insert(constant_time::hash(token.as_bytes()), Arc::new(user));
    }

    /// Adds the rows of kube-apiserver's `--token-auth-file`: token, user, uid, "group1,group2".
    pub(crate) fn add_csv(&mut self, text: &str) {
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let fields = csv_fields(line);
            let [token, name, uid, rest @ ..] = fields.as_slice() else { continue };
            let groups = rest.first().map_or("", String::as_str);
            let groups = groups.split(',').map(str::trim).filter(|group| !group.is_empty());
            let mut user = User::authenticated(name, groups);
            user.uid = uid.as_str().into();
            self.add(token, user);
        }
    }

    /// Returns the user of a static token; `None` if the token is unknown.
    fn user(&self, token: &str) -> Option<&Arc<User>> {
        self.0.get(&constant_time::hash(token.as_bytes()))
    }
}

/// Result of authentication.
pub(crate) struct Authenticated {
    /// User of the request; `None` if the server refuses the request.
    pub(crate) user: Option<Arc<User>>,
    /// Warning to the client, and the token use to record.
    pub(crate) notes: Notes,
}

/// Returns the placeholder for the user of a connection whose client certificate is refused: it has expired, or no
/// client CA signed it. The placeholder has neither a name nor groups, so that it equals no real user.
pub(crate) fn refused_peer() -> User {
    User::default()
}

impl Authenticator {
    /// Authenticates a request for a path. `peer` is the user of the connection: the one of the client certificate, or
    /// an in-process caller. An unknown bearer token is refused even with a client certificate. Requests of a
    /// [`refused_peer`] need a token.
    pub(crate) async fn authenticate_request(
        &self,
        store: &Store,
        now: Timestamp,
        headers: &HeaderMap,
        path: &str,
        peer: Option<&Arc<User>>,
    ) -> Authenticated {
        let mut notes = Notes::default();
        let user = match bearer(headers::text(headers, AUTHORIZATION)) {
            Bearer::Token(token) => {
                let api_audiences = self.service_accounts.audiences();
                match self.authenticate_token(store, now, token, api_audiences, &mut notes).await {
                    Ok(response) => response.map(|response| response.user),
                    Err(error) => {
                        tracing::debug!(error, "a token is refused");
                        None
                    }
                }
            }
            without_token => {
                if without_token == Bearer::ExtraSpace {
                    notes.warning = Some(EXTRA_SPACE);
                }
                match peer {
                    Some(peer) if **peer == refused_peer() => None,
                    Some(peer) => Some(peer.clone()),
                    None => self.anonymous.allows(path).then(|| Arc::new(User::anonymous())),
                }
            }
        };
        Authenticated { user, notes }
    }

    /// Appends the metrics of authentication.
    pub(crate) fn render(&self, out: &mut String) {
        if let Some(source) = &self.jwt {
            source.render(out);
        }
    }

    /// Returns the user of a token, and the requested audiences for which the token is valid.
    ///
    /// Upstream: `unionAuthTokenHandler.AuthenticateToken`.
    pub(crate) async fn authenticate_token(
        &self,
        store: &Store,
        now: Timestamp,
        token: &str,
        requested_audiences: &[String],
        notes: &mut Notes,
    ) -> Outcome {
        // A token without audiences is valid for the requested audiences that are among the server's audiences.
        let server_audiences = intersect(self.service_accounts.audiences(), requested_audiences);
        let respond = |user: Arc<User>| {
            let audiences = server_audiences.clone();
            (!audiences.is_empty()).then_some(Response { user, audiences })
        };
        if let Some(response) = self.static_tokens.user(token).cloned().and_then(respond) {
            return Ok(Some(response));
        }
        let mut errors = Vec::new();
        match self.service_accounts.authenticate(store, now, token, requested_audiences, notes) {
            Ok(None) => {}
            Ok(response) => return Ok(response),
            Err(error) => errors.push(error),
        }
        let bootstrap_user = || {
            let (id, secret) = bootstrap_token::parse(token).filter(|_| self.bootstrap_tokens)?;
            let stored = store.get("/secrets", &bootstrap_token::key(id))?.decode().ok()?;
            bootstrap_token::validate(id, secret, &stored, now)
        };
        if let Some(response) = bootstrap_user().map(Arc::new).and_then(respond) {
            return Ok(Some(response));
        }
        if let Some(source) = &self.jwt
            && !server_audiences.is_empty()
        {
            match source.authenticators().authenticate(token, now).await {
                Ok(None) => {}
                Ok(Some(user)) => return Ok(respond(Arc::new(user))),
                Err(error) => errors.push(error),
            }
        }
        match errors.as_slice() {
            [] => Ok(None),
            [error] => Err(error.clone()),
            errors => Err(format!("[{}]", errors.join(", "))),
        }
    }
}

/// Bearer token in the header `Authorization`.
#[derive(Debug, PartialEq, Eq)]
enum Bearer<'a> {
    /// The request has no such header, or the header has another scheme.
    None,
    /// A token after two spaces, which the server ignores as upstream does.
    ExtraSpace,
    Token(&'a str),
}

/// Parses the header `Authorization`.
///
/// Upstream: `bearertoken.Authenticator.AuthenticateRequest`.
fn bearer(header: &str) -> Bearer<'_> {
    let mut parts = header.trim().splitn(3, ' ');
    let scheme = parts.next().unwrap_or_default();
    match (parts.next(), parts.next()) {
        (Some(token), rest) if scheme.eq_ignore_ascii_case("bearer") => match (token, rest) {
            ("", Some(_)) => Bearer::ExtraSpace,
            ("", None) => Bearer::None,
            (token, _) => Bearer::Token(token),
        },
        _ => Bearer::None,
    }
}

/// Returns the fields of a CSV line without their quotes.
fn csv_fields(line: &str) -> Vec<String> {
    let mut fields = Vec::new();
    let mut field = String::new();
    let mut is_quoted = false;
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            // Two quotes within quotes are an escaped quote.
            '"' if is_quoted && chars.peek() == Some(&'"') => {
                chars.next();
                field.push('"');
            }
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => fields.push(std::mem::take(&mut field)),
            c => field.push(c),
        }
    }
    fields.push(field);
    fields.iter().map(|field| field.trim().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn static_tokens_are_read_from_csv() {
        let mut tokens = StaticTokens::default();
        tokens.add_csv("t1,alice,1,\"dev,ops\"\nt2,bob,2\n\n");
        let alice = tokens.user("t1").expect("a known token");
        assert_eq!((&*alice.name, &*alice.uid), ("alice", "1"));
        assert!(alice.is_in("ops") && alice.is_in("system:authenticated"));
        assert_eq!(tokens.user("t2").map(|bob| &*bob.name), Some("bob"));
        assert_eq!(tokens.user("t3"), None);
    }

    #[test]
    fn a_bearer_token_follows_exactly_one_space() {
        for (header, expected) in [
            ("Bearer a", Bearer::Token("a")),
            ("bearer a", Bearer::Token("a")),
            ("  Bearer a ", Bearer::Token("a")),
            ("Bearer a b", Bearer::Token("a")),
            ("Bearer  a", Bearer::ExtraSpace),
            ("Bearer", Bearer::None),
            ("Bearer ", Bearer::None),
            ("Basic a", Bearer::None),
            ("", Bearer::None),
        ] {
            assert_eq!(bearer(header), expected, "{header:?}");
        }
    }
}
