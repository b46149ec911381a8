//! Who may send a request to the console. Any process of the machine reaches its port, and so does any page in the user's
//! browser.
//!
//! | attack | refused by |
//! |---|---|
//! | another user of the machine | [`Keys`]: the cookie, which only the URL with the token sets |
//! | a page with a name that resolves to this machine (DNS rebinding) | the `Host` header, [`decide`] |
//! | a page of another origin that sends requests | `Sec-Fetch-Site`, `Origin`, the cookie's `SameSite` |
//! | a form of another page that changes something | the form's token, [`Keys::allows_form`] |

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use http::{HeaderMap, HeaderName, Method, StatusCode, header};
use ring::{
    hmac,
    rand::{SecureRandom as _, SystemRandom},
};
use std::net::SocketAddr;

/// Length of a random token in bytes.
const TOKEN_BYTES: usize = 32;

/// Origin relation of a request, set by browsers alone.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// Purpose of a request, set by browsers alone.
const FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");

/// A random value that a client must know. Comparisons take the same time for all wrong values.
struct Token {
    text: String,
    key: hmac::Key,
    tag: hmac::Tag,
}

impl Token {
    /// Draws a token. Fails if the system has no random numbers.
    fn draw(random: &SystemRandom) -> Result<Self, ring::error::Unspecified> {
        let mut bytes = [0; TOKEN_BYTES];
        random.fill(&mut bytes)?;
        let text = URL_SAFE_NO_PAD.encode(bytes);
        let key = hmac::Key::generate(hmac::HMAC_SHA256, random)?;
        let tag = hmac::sign(&key, text.as_bytes());
        Ok(Self { text, key, tag })
    }

    fn is(&self, candidate: &str) -> bool {
        hmac::verify(&self.key, candidate.as_bytes(), self.tag.as_ref()).is_ok()
    }
}

/// Secrets of one console. They end with the process.
pub(crate) struct Keys {
    /// In the URL that the user receives.
    url: Token,
    /// In the cookie.
    session: Token,
    /// In each form that changes something.
    form: Token,
}

impl Keys {
    /// Draws all tokens.
    ///
    /// # Errors
    /// When the system has no random numbers.
    pub(crate) fn draw() -> Result<Self, ring::error::Unspecified> {
        let random = SystemRandom::new();
        let draw = || Token::draw(&random);
        Ok(Self { url: draw()?, session: draw()?, form: draw()? })
    }

    /// Returns the token of the URL.
    pub(crate) fn url_token(&self) -> &str {
        &self.url.text
    }

    /// Returns the token of forms.
    pub(crate) fn form_token(&self) -> &str {
        &self.form.text
    }

    /// Returns whether a form has the token that a page of this console gave it.
    pub(crate) fn allows_form(&self, candidate: &str) -> bool {
        self.form.is(candidate)
    }

    /// Returns the value of `Set-Cookie` that lets a browser in. Browsers share cookies between the ports of a host, so the
    /// name has the port.
    pub(crate) fn set_cookie(&self, port: u16) -> String {
        format!("{}={}; Path=/; HttpOnly; SameSite=Strict", cookie_name(port), self.session.text)
    }
}

fn cookie_name(port: u16) -> String {
    format!("evenkeel-console-{port}")
}

/// Answer to the question whether a request may be served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Serve the request.
    Granted,
    /// Set the cookie, and redirect to the page without the token.
    LogIn,
    /// Answer with this status and reason.
    Refused(StatusCode, &'static str),
}

/// Decides about a request. `token` is the URL's query parameter.
pub(crate) fn decide(
    keys: &Keys,
    address: SocketAddr,
    method: &Method,
    headers: &HeaderMap,
    token: Option<&str>,
) -> Access {
    let text = |name: &HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let port = address.port();
    let host = text(&header::HOST).unwrap_or_default();
    if !is_own_host(host, port) {
        let why = "The console answers to localhost, 127.0.0.1 and [::1] only.";
        return Access::Refused(StatusCode::MISDIRECTED_REQUEST, why);
    }
    let is_read = method == Method::GET || method == Method::HEAD;
    if !is_read && method != Method::POST {
        return Access::Refused(StatusCode::METHOD_NOT_ALLOWED, "Only GET and POST are served.");
    }
    let own_origin = format!("http://{host}");
    let site = text(&FETCH_SITE);
    let is_own_site = site.is_none_or(|site| matches!(site, "same-origin" | "none"));
    let is_link = is_read && text(&FETCH_MODE) == Some("navigate");
    if !is_own_site && !is_link {
        return Access::Refused(StatusCode::FORBIDDEN, "Pages of other origins are not served.");
    }
    if !is_read {
        let is_own_origin = match text(&header::ORIGIN) {
            Some(origin) => origin == own_origin,
            None => site == Some("same-origin"),
        };
        if !is_own_origin {
            return Access::Refused(
                StatusCode::FORBIDDEN,
                "Forms of other origins change nothing.",
            );
        }
    }
    if let Some(token) = token.filter(|_| is_read) {
        return match keys.url.is(token) {
            true => Access::LogIn,
            false => Access::Refused(
                StatusCode::UNAUTHORIZED,
                "The URL is of another start of the cluster. `evenkeel console` prints the current one.",
            ),
        };
    }
    let cookies = headers.get_all(header::COOKIE).into_iter();
    let mut cookies = cookies.filter_map(|value| value.to_str().ok()).flat_map(|v| v.split(';'));
    let name = cookie_name(port);
    let is_known = cookies.any(|cookie| {
        cookie.trim().split_once('=').is_some_and(|(n, v)| n == name && keys.session.is(v))
    });
    if is_known {
        Access::Granted
    } else {
        let why = "Open the URL that `evenkeel up` printed, or that `evenkeel console` prints.";
        Access::Refused(StatusCode::UNAUTHORIZED, why)
    }
}

/// Returns whether a `Host` header names this console. A page of another name that resolves to this machine is no page of
/// the console.
fn is_own_host(host: &str, port: u16) -> bool {
    ["127.0.0.1", "localhost", "[::1]"].iter().any(|name| host == format!("{name}:{port}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    const PORT: u16 = 7070;

    fn decided(
        keys: &Keys,
        method: &Method,
        headers: &[(&str, &str)],
        token: Option<&str>,
    ) -> Access {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name: HeaderName = name.parse().expect("a header");
            map.insert(name, HeaderValue::from_str(value).expect("a value"));
        }
        let address = SocketAddr::from(([127, 0, 0, 1], PORT));
        decide(keys, address, method, &map, token)
    }

    fn cookie(keys: &Keys) -> String {
        keys.set_cookie(PORT).split(';').next().expect("a cookie").to_owned()
    }

    fn code(access: Access) -> u16 {
        match access {
            Access::Granted => 200,
            Access::LogIn => 303,
            Access::Refused(code, _) => code.as_u16(),
        }
    }

    #[test]
    fn only_loopback_names_with_the_port_are_served() {
        let keys = Keys::draw().expect("random numbers");
        let cookie = cookie(&keys);
        for (host, want) in [
            ("127.0.0.1:7070", 200),
            ("localhost:7070", 200),
            ("[::1]:7070", 200),
            ("127.0.0.1:7071", 421),
            ("127.0.0.1", 421),
            ("evil.example:7070", 421),
            ("localhost.evil.example:7070", 421),
            ("", 421),
        ] {
            let headers = [("host", host), ("cookie", &*cookie)];
            assert_eq!(code(decided(&keys, &Method::GET, &headers, None)), want, "{host}");
        }
    }

    #[test]
    fn the_token_of_the_url_becomes_a_cookie_that_lets_in() {
        let (keys, other) = (Keys::draw().expect("random"), Keys::draw().expect("random"));
        let host = ("host", "localhost:7070");
        let get = |headers: &[_], token| code(decided(&keys, &Method::GET, headers, token));
        assert_eq!(get(&[host], None), 401);
        assert_eq!(get(&[host], Some(keys.url_token())), 303);
        assert_eq!(get(&[host], Some(other.url_token())), 401);
        assert_eq!(get(&[host], Some("")), 401);
        assert_eq!(get(&[host], Some(keys.form_token())), 401, "another token of the console");
        let (own, foreign) = (cookie(&keys), cookie(&other));
        let among_others = format!("a=b; {own}");
        assert_eq!(get(&[host, ("cookie", &*own)], None), 200);
        assert_eq!(get(&[host, ("cookie", &among_others)], None), 200);
        assert_eq!(get(&[host, ("cookie", &foreign)], None), 401);
        let attributes = keys.set_cookie(PORT);
        assert!(attributes.ends_with("; Path=/; HttpOnly; SameSite=Strict"), "{attributes}");
    }

    #[test]
    fn pages_of_other_origins_are_refused() {
        let keys = Keys::draw().expect("random numbers");
        let (host, cookie) = (("host", "127.0.0.1:7070"), cookie(&keys));
        let own = [host, ("cookie", &*cookie)];
        let with = |method: &Method, more: &[(&str, &str)]| {
            let headers: Vec<_> = own.iter().chain(more).copied().collect();
            code(decided(&keys, method, &headers, None))
        };
        type Headers = &'static [(&'static str, &'static str)];
        let table: &[(Method, Headers, u16)] = &[
            (Method::GET, &[("sec-fetch-site", "same-origin")], 200),
            (Method::GET, &[("sec-fetch-site", "none"), ("sec-fetch-mode", "navigate")], 200),
            (Method::GET, &[("sec-fetch-site", "same-site"), ("sec-fetch-mode", "cors")], 403),
            (Method::GET, &[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "no-cors")], 403),
            // A link elsewhere. Browsers leave out the cookie unless the sites are the same.
            (Method::GET, &[("sec-fetch-site", "same-site"), ("sec-fetch-mode", "navigate")], 200),
            (Method::POST, &[("origin", "http://127.0.0.1:7070")], 200),
            (Method::POST, &[("sec-fetch-site", "same-origin")], 200),
            (Method::POST, &[], 403),
            (Method::POST, &[("origin", "null")], 403),
            (Method::POST, &[("origin", "http://127.0.0.1:7071")], 403),
            (Method::POST, &[("origin", "http://localhost:7070")], 403),
            (Method::POST, &[("origin", "https://evil.example")], 403),
            (Method::POST, &[("sec-fetch-site", "same-site"), ("sec-fetch-mode", "navigate")], 403),
            (Method::DELETE, &[], 405),
            (Method::OPTIONS, &[("origin", "https://evil.example")], 405),
        ];
        for (method, headers, want) in table {
            assert_eq!(with(method, headers), *want, "{method} {headers:?}");
        }
    }

    #[test]
    fn forms_have_a_token_of_their_own() {
        let keys = Keys::draw().expect("random numbers");
        assert!(keys.allows_form(keys.form_token()));
        assert!(!keys.allows_form(keys.url_token()) && !keys.allows_form(""));
    }
}
