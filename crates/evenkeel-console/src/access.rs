//! Access to the console. Every process on the machine and every page in the user's browser can send requests to its port.
//!
//! | attack | refused by |
//! |---|---|
//! | another user of the machine | the cookie, which only the URL with the token ([`Keys`]) or a log-in sets |
//! | a page with a name that resolves to this machine (DNS rebinding) | the `Host` header, [`decide`]; on a [`Site::Secure`], whose names are unknown, its certificate and the cookie, which no other name gets |
//! | a page of another origin that sends requests | `Sec-Fetch-Site`, `Origin`, the cookie's `SameSite` |
//! | a form of another page that changes something | the form's token, [`Session::allows_form`](crate::session::Session::allows_form) |

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use http::{HeaderMap, HeaderName, Method, StatusCode, header};
use ring::{
    hmac,
    rand::{SecureRandom as _, SystemRandom},
};
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

    /// Returns the token as a string.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Returns whether a string is the token.
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
    /// Fails if the system provides no random numbers.
    pub(crate) fn draw() -> Result<Self, ring::error::Unspecified> {
        Ok(Self { url: Token::draw(&SystemRandom::new())? })
    }

    /// Returns the token of the URL.
    pub(crate) fn url_token(&self) -> &str {
        &self.url.text
    }
}

/// Where a console is served, with its port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Site {
    /// Over plain HTTP, under the names of the loopback address.
    Loopback(u16),
    /// Over TLS, under any host name, such as the name of a service or a pod, or `localhost` for a forwarded port.
    Secure(u16),
}

impl Site {
    /// Returns the value of `Set-Cookie` that grants a browser access.
    pub(crate) fn set_cookie(self, value: &str) -> String {
        let secure = if matches!(self, Self::Secure(_)) { "; Secure" } else { "" };
        format!("{}={value}; Path=/; HttpOnly; SameSite=Strict{secure}", self.cookie_name())
    }

    /// Returns the value of `Set-Cookie` that removes the cookie.
    pub(crate) fn remove_cookie(self) -> String {
        format!("{}; Max-Age=0", self.set_cookie(""))
    }

    /// Returns the name of the cookie. Browsers share cookies between the ports of a host, so it has the port. With the prefix
    /// `__Host-`, they accept it only from this host, and only over TLS.
    fn cookie_name(self) -> String {
        match self {
            Self::Loopback(port) => format!("evenkeel-console-{port}"),
            Self::Secure(port) => format!("__Host-evenkeel-console-{port}"),
        }
    }

    /// Returns whether a `Host` header names this console. Other names that resolve to this machine do not count.
    fn is_own_host(self, host: &str) -> bool {
        match self {
            Self::Loopback(port) => ["127.0.0.1", "localhost", "[::1]"]
                .iter()
                .any(|name| host == format!("{name}:{port}")),
            Self::Secure(_) => !host.is_empty(),
        }
    }

    fn scheme(self) -> &'static str {
        match self {
            Self::Loopback(_) => "http",
            Self::Secure(_) => "https",
        }
    }
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

/// Decides about a request. `token` is the URL's query parameter. Without keys, no URL grants access. `find` returns the
/// session of a cookie's value.
pub(crate) fn decide<S>(
    keys: Option<&Keys>,
    site: Site,
    method: &Method,
    headers: &HeaderMap,
    token: Option<&str>,
    find: impl Fn(&str) -> Option<S>,
) -> Access<S> {
    let text = |name: &HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let host = text(&header::HOST).unwrap_or_default();
    if !site.is_own_host(host) {
        let why = "The console answers to localhost, 127.0.0.1 and [::1] only.";
        return Access::Refused(StatusCode::MISDIRECTED_REQUEST, why);
    }
    let is_read = method == Method::GET || method == Method::HEAD;
    if !is_read && method != Method::POST {
        return Access::Refused(StatusCode::METHOD_NOT_ALLOWED, "Only GET and POST are served.");
    }
    let own_origin = format!("{}://{host}", site.scheme());
    let relation = text(&FETCH_SITE);
    let is_own_site = relation.is_none_or(|relation| matches!(relation, "same-origin" | "none"));
    let is_link = is_read && text(&FETCH_MODE) == Some("navigate");
    if !is_own_site && !is_link {
        return Access::Refused(StatusCode::FORBIDDEN, "Pages of other origins are not served.");
    }
    if !is_read {
        let is_own_origin = match text(&header::ORIGIN) {
            Some(origin) => origin == own_origin,
            None => relation == Some("same-origin"),
        };
        if !is_own_origin {
            return Access::Refused(
                StatusCode::FORBIDDEN,
                "Forms of other origins change nothing.",
            );
        }
    }
    if let Some((token, keys)) = token.filter(|_| is_read).zip(keys) {
        return match keys.url.is(token) {
            true => Access::Enter,
            false => Access::Refused(
                StatusCode::UNAUTHORIZED,
                "The URL is of another start of the cluster. `evenkeel console` prints the current one.",
            ),
        };
    }
    session_of(site, headers, find).map_or(Access::Stranger, Access::Granted)
}

/// Returns the session of a request's cookie. `find` returns the session of a cookie's value.
pub(crate) fn session_of<S>(
    site: Site,
    headers: &HeaderMap,
    find: impl Fn(&str) -> Option<S>,
) -> Option<S> {
    let cookies = headers.get_all(header::COOKIE).into_iter();
    let mut cookies = cookies.filter_map(|value| value.to_str().ok()).flat_map(|v| v.split(';'));
    let name = site.cookie_name();
    cookies.find_map(|cookie| {
        let (_, value) = cookie.trim().split_once('=').filter(|(n, _)| *n == name)?;
        find(value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    const SITE: Site = Site::Loopback(7070);

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
        decided_at(SITE, known, method, headers, token)
    }

    fn decided_at(
        site: Site,
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
        let find = |value: &str| known.session.is(value).then_some(());
        let keys = matches!(site, Site::Loopback(_)).then_some(&known.keys);
        decide(keys, site, method, &map, token, find)
    }

    fn cookie(known: &TestKeys) -> String {
        SITE.set_cookie(known.session.text()).split(';').next().expect("a cookie").to_owned()
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
        let attributes = SITE.set_cookie("v");
        assert!(attributes.ends_with("=v; Path=/; HttpOnly; SameSite=Strict"), "{attributes}");
        let attributes = SITE.remove_cookie();
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
            // A link on another page. Browsers send the cookie only if both pages have the same site.
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
    fn by_tls_any_name_is_served_to_its_own_cookie_and_origin() {
        let keys = draw();
        let site = Site::Secure(10_261);
        let cookie = site.set_cookie(keys.session.text());
        let attributes = "; Path=/; HttpOnly; SameSite=Strict; Secure";
        assert!(cookie.starts_with("__Host-evenkeel-console-10261="), "{cookie}");
        assert!(cookie.ends_with(attributes) && !cookie.contains("Domain"), "{cookie}");
        assert!(site.remove_cookie().ends_with("; Secure; Max-Age=0"));
        let own = cookie.split(';').next().expect("a cookie");
        let of_plain_http = format!("evenkeel-console-10261={}", keys.session.text());
        let url = keys.keys.url_token();
        type Headers<'a> = &'a [(&'a str, &'a str)];
        let table: &[(Method, Headers<'_>, Option<&str>, u16)] = &[
            (Method::GET, &[("host", "manager.example:443"), ("cookie", own)], None, 200),
            (Method::GET, &[("host", "localhost:7000"), ("cookie", own)], None, 200),
            (Method::GET, &[("host", "localhost:7000"), ("cookie", &of_plain_http)], None, 401),
            (Method::GET, &[("host", ""), ("cookie", own)], None, 421),
            (Method::GET, &[("host", "localhost:7000")], Some(url), 401),
            (
                Method::POST,
                &[("host", "a:1"), ("cookie", own), ("origin", "https://a:1")],
                None,
                200,
            ),
            (
                Method::POST,
                &[("host", "a:1"), ("cookie", own), ("origin", "http://a:1")],
                None,
                403,
            ),
            (
                Method::POST,
                &[("host", "a:1"), ("cookie", own), ("origin", "https://b:1")],
                None,
                403,
            ),
            (Method::POST, &[("host", "a:1"), ("cookie", own)], None, 403),
        ];
        for (method, headers, token, want) in table {
            let access = decided_at(site, &keys, method, headers, *token);
            assert_eq!(code(access), *want, "{method} {headers:?}");
        }
    }
}
