//! Authentication: determines the user of a request from a bearer token or a client certificate; without either, the user is
//! `system:anonymous`.

use std::collections::HashMap;
use std::sync::Arc;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use jiff::Timestamp;

use super::{Accounts, ISSUER, User};
use crate::store::Store;
use evenkeel_apimachinery::headers;
use evenkeel_apimachinery::status::StatusError;

/// Authenticates requests by static tokens and service account tokens.
#[derive(Default)]
pub(crate) struct Authenticator {
    tokens: HashMap<Box<str>, Arc<User>>,
    accounts: Option<Accounts>,
}

impl Authenticator {
    /// Adds a static bearer token and the user that it authenticates.
    pub(crate) fn add(&mut self, token: &str, user: User) {
        self.tokens.insert(token.into(), Arc::new(user));
    }

    /// Adds the rows of kube-apiserver's `--token-auth-file`: token, user, uid, "group1,group2".
    pub(crate) fn add_csv(&mut self, text: &str) {
        for line in text.lines().map(str::trim).filter(|l| !l.is_empty()) {
            let fields = csv_fields(line);
            let [token, name, uid, rest @ ..] = fields.as_slice() else { continue };
            let groups = rest.first().map_or("", String::as_str);
            let mut user = User::authenticated(
                name,
                groups.split(',').map(str::trim).filter(|g| !g.is_empty()),
            );
            user.uid = uid.as_str().into();
            self.add(token, user);
        }
    }

    /// Accepts service account tokens that the given issuer signed.
    pub(crate) fn set_accounts(&mut self, accounts: Accounts) {
        self.accounts = Some(accounts);
    }

    /// Returns the issuer of service account tokens; `None` if the server has none.
    pub(crate) fn accounts(&self) -> Option<&Accounts> {
        self.accounts.as_ref()
    }

    /// Returns the user of a request. `peer` is the user of the connection: the client certificate's, or the in-process caller.
    /// An unknown bearer token is refused, even with a client certificate.
    pub(crate) fn user(
        &self,
        store: &Store,
        now: Timestamp,
        headers: &HeaderMap,
        peer: Option<&Arc<User>>,
    ) -> Result<Arc<User>, StatusError> {
        if let Some(value) = headers.get(AUTHORIZATION) {
            let token = headers::value(value)
                .split_once(' ')
                .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
                .map(|(_, token)| token.trim());
            if let Some(token) = token.filter(|t| !t.is_empty()) {
                let known = self.token(store, now, token, &[]);
                return known.map(|(user, _)| user).ok_or_else(StatusError::unauthorized);
            }
        }
        Ok(peer.cloned().unwrap_or_else(|| Arc::new(User::anonymous())))
    }

    /// Returns the user of a token and those of the given audiences for which the token is valid.
    pub(crate) fn token(
        &self,
        store: &Store,
        now: Timestamp,
        token: &str,
        audiences: &[String],
    ) -> Option<(Arc<User>, Vec<String>)> {
        if let Some(user) = self.tokens.get(token) {
            return Some((
                user.clone(),
                if audiences.is_empty() { vec![ISSUER.to_owned()] } else { audiences.to_vec() },
            ));
        }
        self.accounts.as_ref()?.user(store, now, token, audiences)
    }
}

/// The fields of a line of CSV, quotes taken off.
fn csv_fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut quoted = false;
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => {
                chars.next();
                fields.last_mut().into_iter().for_each(|f| f.push('"'));
            }
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(String::new()),
            c => fields.last_mut().into_iter().for_each(|f| f.push(c)),
        }
    }
    fields.iter().map(|f| f.trim().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_tokens() {
        let mut known = Authenticator::default();
        known.add_csv("t1,alice,1,\"dev,ops\"\nt2,bob,2\n\n");
        let store = Store::in_memory(&[]);
        let who =
            |headers: &HeaderMap, peer| known.user(&store, Timestamp::UNIX_EPOCH, headers, peer);
        let bearing = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, http::HeaderValue::from_static(value));
            headers
        };
        let alice = who(&bearing("Bearer t1"), None).expect("a known token");
        assert_eq!(&*alice.name, "alice");
        assert!(alice.is_in("ops") && alice.is_in("system:authenticated"));
        assert!(who(&bearing("Bearer nope"), None).is_err());
        assert_eq!(&*who(&bearing("Basic x"), None).expect("nobody").name, "system:anonymous");
        assert_eq!(&*who(&HeaderMap::new(), Some(&alice)).expect("the peer").name, "alice");
    }
}
