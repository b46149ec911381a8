//! Access to the console. Every process of the machine can send requests to its port, and so can every page in the user's
//! browser.
//!
//! | attack | refused by |
//! |---|---|
//! | another user of the machine | the cookie, which only the URL with the token ([`Keys`]) or a log-in sets |
//! | a page with a name that resolves to this machine (DNS rebinding) | the `Host` header, [`decide`] |
//! | a page of another origin that sends requests | `Sec-Fetch-Site`, `Origin`, the cookie's `SameSite` |
//! | a form of another page that changes something | the form's token, [`Session::allows_form`](crate::session::Session::allows_form) |

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use http::{HeaderMap, HeaderName, Method, StatusCode, header};
use ring::{
    hmac,
    rand::{SecureRandom as _, SystemRandom},
};
use std::net::SocketAddr;

/// Length of a random token in bytes.
const TOKEN_BYTES: usize = 32;

/// Header with the relation of a request's origin to the target. Only browsers set it.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// Header with the purpose of a request. Only browsers set it.
const FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");

/// Random value that authenticates a client. Comparisons take constant time.
pub(crate) struct Token {
    text: String,
    key: hmac::Key,
    tag: hmac::Tag,
}

impl Token {
    /// Generates a token. Fails if the system has no random numbers.
    pub(crate) fn draw(random: &SystemRandom) -> Result<Self, ring::error::Unspecified> {
        let mut bytes = [0; TOKEN_BYTES];
        random.fill(&mut bytes)?;
        let text = URL_SAFE_NO_PAD.encode(bytes);
        let key = hmac::Key::generate(hmac::HMAC_SHA256, random)?;
        let tag = hmac::sign(&key, text.as_bytes());
        Ok(Self { text, key, tag })
    }

    /// Returns the text of the token.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Returns whether a text is the token.
    pub(crate) fn is(&self, candidate: &str) -> bool {
        hmac::verify(&self.key, candidate.as_bytes(), self.tag.as_ref()).is_ok()
    }
}

/// Secrets of one console, valid until the process ends.
pub(crate) struct Keys {
    /// Token of the URL that the user receives.
    url: Token,
}

impl Keys {
    /// Generates all tokens.
    ///
    /// # Errors
    /// When the system has no random numbers.
    pub(crate) fn draw() -> Result<Self, ring::error::Unspecified> {
        Ok(Self { url: Token::draw(&SystemRandom::new())? })
    }

    /// Returns the token of the URL.
    pub(crate) fn url_token(&self) -> &str {
        &self.url.text
    }
}

/// Returns the value of `Set-Cookie` that lets a browser in. Browsers share cookies between the ports of a host, so the name
/// has the port.
pub(crate) fn set_cookie(port: u16, value: &str) -> String {
    format!("{}={value}; Path=/; HttpOnly; SameSite=Strict", cookie_name(port))
}

/// Returns the value of `Set-Cookie` that removes the cookie.
pub(crate) fn remove_cookie(port: u16) -> String {
    format!("{}; Max-Age=0", set_cookie(port, ""))
}

fn cookie_name(port: u16) -> String {
    format!("evenkeel-console-{port}")
}

/// Decision about a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access<S> {
    /// Serve the request for this session.
    Granted(S),
    /// Set the cookie, and redirect to the page without the token.
    Enter,
    /// Serve only public content, because the client is not logged in.
    Stranger,
    /// Refuse the request with this status and reason.
    Refused(StatusCode, &'static str),
}

/// Decides about a request. `token` is the URL's query parameter. `find` returns the session of a cookie's value.
pub(crate) fn decide<S>(
    keys: &Keys,
    address: SocketAddr,
    method: &Method,
    headers: &HeaderMap,
    token: Option<&str>,
    find: impl Fn(&str) -> Option<S>,
) -> Access<S> {
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
            true => Access::Enter,
            false => Access::Refused(
                StatusCode::UNAUTHORIZED,
                "The URL is of another start of the cluster. `evenkeel console` prints the current one.",
            ),
        };
    }
    session_of(port, headers, find).map_or(Access::Stranger, Access::Granted)
}

/// Returns the session of a request's cookie. `find` returns the session of a cookie's value.
pub(crate) fn session_of<S>(
    port: u16,
    headers: &HeaderMap,
    find: impl Fn(&str) -> Option<S>,
) -> Option<S> {
    let cookies = headers.get_all(header::COOKIE).into_iter();
    let mut cookies = cookies.filter_map(|value| value.to_str().ok()).flat_map(|v| v.split(';'));
    let name = cookie_name(port);
    cookies.find_map(|cookie| {
        let (_, value) = cookie.trim().split_once('=').filter(|(n, _)| *n == name)?;
        find(value)
    })
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

    /// Keys of a console, and the value of its only session's cookie.
    struct TestKeys {
        keys: Keys,
        session: Token,
    }

    fn draw() -> TestKeys {
        let session = Token::draw(&SystemRandom::new()).expect("random numbers");
        TestKeys { keys: Keys::draw().expect("random numbers"), session }
    }

    fn decided(
        known: &TestKeys,
        method: &Method,
        headers: &[(&str, &str)],
        token: Option<&str>,
    ) -> Access<()> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name: HeaderName = name.parse().expect("a header");
            map.insert(name, HeaderValue::from_str(value).expect("a value"));
        }
        let address = SocketAddr::from(([127, 0, 0, 1], PORT));
        let find = |value: &str| known.session.is(value).then_some(());
        decide(&known.keys, address, method, &map, token, find)
    }

    fn cookie(known: &TestKeys) -> String {
        set_cookie(PORT, known.session.text()).split(';').next().expect("a cookie").to_owned()
    }

    fn code(access: Access<()>) -> u16 {
        match access {
            Access::Granted(()) => 200,
            Access::Enter => 303,
            Access::Stranger => 401,
            Access::Refused(code, _) => code.as_u16(),
        }
    }

    #[test]
    fn only_loopback_names_with_the_port_are_served() {
        let keys = draw();
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
        let (keys, other) = (draw(), draw());
        let host = ("host", "localhost:7070");
        let get = |headers: &[_], token| code(decided(&keys, &Method::GET, headers, token));
        assert_eq!(get(&[host], None), 401);
        assert_eq!(get(&[host], Some(keys.keys.url_token())), 303);
        assert_eq!(get(&[host], Some(other.keys.url_token())), 401);
        assert_eq!(get(&[host], Some("")), 401);
        assert_eq!(get(&[host], Some(keys.session.text())), 401, "another token of the console");
        let (own, foreign) = (cookie(&keys), cookie(&other));
        let among_others = format!("a=b; {own}");
        assert_eq!(get(&[host, ("cookie", &*own)], None), 200);
        assert_eq!(get(&[host, ("cookie", &among_others)], None), 200);
        assert_eq!(get(&[host, ("cookie", &foreign)], None), 401);
        let attributes = set_cookie(PORT, "v");
        assert!(attributes.ends_with("=v; Path=/; HttpOnly; SameSite=Strict"), "{attributes}");
        let attributes = remove_cookie(PORT);
        assert!(
            attributes.ends_with("=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0"),
            "{attributes}"
        );
    }

    #[test]
    fn pages_of_other_origins_are_refused() {
        let keys = draw();
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
            // A link on another page. Browsers send the cookie only if the sites are the same.
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
}
