//! Who sends a request: a bearer token, a client certificate, or nobody.

use std::collections::HashMap;
use std::sync::Arc;

use http::HeaderMap;
use http::header::AUTHORIZATION;

use super::User;
use crate::status::StatusError;

/// Knows tokens.
#[derive(Default)]
pub(crate) struct Authenticator {
    tokens: HashMap<Box<str>, Arc<User>>,
}

impl Authenticator {
    /// Adds a token.
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

    /// The user of a request. `peer` is whom the connection stands for (a client certificate's user, or the caller in process).
    pub(crate) fn user(
        &self,
        headers: &HeaderMap,
        peer: Option<&Arc<User>>,
    ) -> Result<Arc<User>, StatusError> {
        if let Some(value) = headers.get(AUTHORIZATION) {
            let token = value.to_str().ok().and_then(|v| {
                let (scheme, token) = v.split_once(' ')?;
                scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
            });
            if let Some(token) = token.filter(|t| !t.is_empty()) {
                return self.token(token).ok_or_else(StatusError::unauthorized);
            }
        }
        Ok(peer.cloned().unwrap_or_else(|| Arc::new(User::anonymous())))
    }

    /// The user of a token.
    pub(crate) fn token(&self, token: &str) -> Option<Arc<User>> {
        self.tokens.get(token).cloned()
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
        let headers = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, http::HeaderValue::from_static(value));
            headers
        };
        let alice = known.user(&headers("Bearer t1"), None).expect("a known token");
        assert_eq!(&*alice.name, "alice");
        assert!(alice.is_in("ops") && alice.is_in("system:authenticated"));
        assert!(known.user(&headers("Bearer nope"), None).is_err());
        assert_eq!(
            &*known.user(&headers("Basic x"), None).expect("nobody").name,
            "system:anonymous"
        );
        assert_eq!(&*known.user(&HeaderMap::new(), Some(&alice)).expect("the peer").name, "alice");
    }
}
