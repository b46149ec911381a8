//! URLs by the rules of Go's `net/url`: `ParseRequestURI`, then `Parse`.

use std::net::Ipv6Addr;

use evenkeel_api::quote::quote;

use crate::functions::address_error;

/// A parsed URL: absolute, or an absolute path.
#[derive(Debug, Clone, PartialEq)]
pub struct Url {
    /// The URL as it was parsed.
    pub text: String,
    /// Scheme in lower case, without the colon; empty for a path.
    pub scheme: String,
    /// Host with port, without escapes.
    pub host: String,
    /// Escaped path after the host.
    pub path: String,
    /// Query parameters in order, without those that do not decode.
    pub query: Vec<(String, String)>,
}

/// Maximum number of query parameters. A query with more counts as one without parameters, as in Go.
const MAX_PARAMETERS: usize = 10_000;

impl Url {
    /// Parses an absolute URL or an absolute path. The error is worded as Go's.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let parse_error = |text: &str, why: String| format!("parse {}: {why}", quote(text));
        // The request URI has no fragment: a `#` belongs to the path or the query.
        parse_parts(text, true).map_err(|why| parse_error(text, why))?;
        let without_fragment = text.split_once('#').map_or(text, |(before, _)| before);
        let url = parse_parts(without_fragment, false)
            .map_err(|why| parse_error(without_fragment, why))?;
        Ok(Self { text: text.to_owned(), ..url })
    }

    /// Returns whether a string is a valid request URI: an absolute URL or an absolute path.
    pub(crate) fn is_request_uri(text: &str) -> bool {
        parse_parts(text, true).is_ok()
    }

    /// Returns the reason why a string is not a valid request URI; `None` if it is valid.
    pub(crate) fn request_uri_error(text: &str) -> Option<String> {
        let why = parse_parts(text, true).err()?;
        Some(format!("parse {}: {why}", quote(text)))
    }

    /// Returns the host without port and brackets, and the port; an invalid port is part of the host.
    pub(crate) fn host_and_port(&self) -> (&str, &str) {
        let (host, port) = match self.host.rfind(':') {
            Some(at) if is_optional_port(&self.host[at..]) => {
                (&self.host[..at], &self.host[at + 1..])
            }
            _ => (&*self.host, ""),
        };
        let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        (inner.unwrap_or(host), port)
    }
}

/// Parses a URL without a fragment. If it is a request URI, two slashes at its beginning belong to the path; else a
/// host follows them.
fn parse_parts(text: &str, is_request: bool) -> Result<Url, String> {
    if text.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
        return Err("net/url: invalid control character in URL".to_owned());
    }
    if text.is_empty() {
        return Err("empty url".to_owned());
    }
    let mut url = Url {
        text: String::new(),
        scheme: String::new(),
        host: String::new(),
        path: String::new(),
        query: Vec::new(),
    };
    if text == "*" {
        url.path = text.to_owned();
        return Ok(url);
    }
    let (scheme, rest) = split_scheme(text)?;
    url.scheme = scheme.to_ascii_lowercase();
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    url.query = parameters(query);
    if !rest.starts_with('/') {
        if !url.scheme.is_empty() {
            return Ok(url);
        }
        return Err("invalid URI for request".to_owned());
    }
    let has_host = !url.scheme.is_empty() || !is_request && !rest.starts_with("///");
    let path = match rest.strip_prefix("//").filter(|_| has_host) {
        Some(rest) => {
            let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            url.host = authority_host(&url.scheme, authority)?;
            path
        }
        None => rest,
    };
    url.path = escaped_path(path)?;
    Ok(url)
}

/// Splits a URL into scheme and rest; the scheme is empty if the URL has none.
fn split_scheme(text: &str) -> Result<(&str, &str), String> {
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if at > 0 => {}
            b':' if at == 0 => return Err("missing protocol scheme".to_owned()),
            b':' => return Ok((&text[..at], &text[at + 1..])),
            _ => return Ok(("", text)),
        }
    }
    Ok(("", text))
}

/// Returns the decoded host of an authority `user:password@host:port`, with the port. Checks the user information.
fn authority_host(scheme: &str, authority: &str) -> Result<String, String> {
    let Some((userinfo, host)) = authority.rsplit_once('@') else {
        return decode_host(scheme, authority);
    };
    let host = decode_host(scheme, host)?;
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&byte);
    if !userinfo.bytes().all(is_valid) {
        return Err("net/url: invalid userinfo".to_owned());
    }
    unescaped(userinfo, Part::Other)?;
    Ok(host)
}

/// Returns a host with its port, without escapes.
fn decode_host(scheme: &str, host: &str) -> Result<String, String> {
    let invalid_port = |port: &str| format!("invalid port {} after host", quote(port));
    match host.rfind('[') {
        Some(0) => {}
        Some(_) => return Err("invalid IP-literal".to_owned()),
        None => {
            // Other schemes may list several hosts with ports, so that only the last colon begins the port.
            let is_strict = matches!(scheme, "http" | "https");
            let colon = if is_strict { host.find(':') } else { host.rfind(':') };
            if let Some(port) = colon.map(|at| &host[at..])
                && !is_optional_port(port)
            {
                return Err(invalid_port(port));
            }
            return Ok(lossy(unescaped(host, Part::Host)?));
        }
    }
    let close = host.rfind(']').ok_or("missing ']' in host")?;
    let (inner, port) = (&host[1..close], &host[close + 1..]);
    if !is_optional_port(port) {
        return Err(invalid_port(port));
    }
    // `%25` is an escaped percent sign, which begins the zone.
    let name = match inner.find("%25") {
        Some(zone) => {
            let address = unescaped(&inner[..zone], Part::Host)?;
            [address, unescaped(&inner[zone..], Part::Zone)?].concat()
        }
        None => unescaped(inner, Part::Host)?,
    };
    let name = lossy(name);
    let address = match name.split_once('%') {
        Some((_, "")) => "",
        Some((address, _)) => address,
        None => &name,
    };
    if address.parse::<Ipv6Addr>().is_err() {
        let is_v4 = name.parse::<std::net::Ipv4Addr>().is_ok();
        return Err(if is_v4 {
            "invalid IP-literal".to_owned()
        } else {
            format!("invalid host: {}", address_error(&name).unwrap_or_default())
        });
    }
    Ok(format!("[{name}]{port}"))
}

/// Returns whether `port` is empty, or a colon followed by any number of digits.
fn is_optional_port(port: &str) -> bool {
    port.is_empty()
        || port.strip_prefix(':').is_some_and(|port| port.bytes().all(|b| b.is_ascii_digit()))
}

/// Part of a URL. It determines which bytes may be escaped.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Host,
    /// Zone of an IPv6 address.
    Zone,
    Other,
}

/// Returns whether a host may contain this byte without an escape.
fn is_host_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.~!$&'()*+,;=:[]<>\"".contains(&byte)
}

/// Returns whether a path may contain this byte without an escape.
fn is_path_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@".contains(&byte)
}

/// Decodes the escapes of a part.
fn unescaped(text: &str, part: Part) -> Result<Vec<u8>, String> {
    let bytes = text.as_bytes();
    let (mut decoded, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while let Some(&byte) = bytes.get(at) {
        if byte != b'%' {
            let is_limited = part != Part::Other && byte.is_ascii();
            if is_limited && !is_host_byte(byte) {
                return Err(format!(
                    "invalid character {} in host name",
                    quote(&char::from(byte).to_string())
                ));
            }
            decoded.push(byte);
            at += 1;
            continue;
        }
        let escape = &bytes[at..bytes.len().min(at + 3)];
        let invalid = || format!("invalid URL escape {}", quote(&String::from_utf8_lossy(escape)));
        let digit = |index: usize| escape.get(index).and_then(|b| char::from(*b).to_digit(16));
        let (Some(high), Some(low)) = (digit(1), digit(2)) else { return Err(invalid()) };
        let value = u8::try_from(high * 16 + low).unwrap_or_default();
        let is_allowed = match part {
            Part::Host => high >= 8 || escape == b"%25",
            Part::Zone => escape == b"%25" || value == b' ' || is_host_byte(value),
            Part::Other => true,
        };
        if !is_allowed {
            return Err(invalid());
        }
        decoded.push(value);
        at += 3;
    }
    Ok(decoded)
}

/// Returns the escaped form of a path: the original path if it is validly escaped, else the default encoding.
///
/// Upstream: Go's `URL.EscapedPath`.
fn escaped_path(original: &str) -> Result<String, String> {
    let path = unescaped(original, Part::Other)?;
    let is_valid = |byte: u8| is_path_byte(byte) || b"!'()*[]%".contains(&byte);
    if original.bytes().all(is_valid) {
        return Ok(original.to_owned());
    }
    let mut escaped = String::with_capacity(path.len());
    for byte in path {
        if is_path_byte(byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    Ok(escaped)
}

/// Decodes the parameters of a query. Those with a semicolon or an invalid escape are dropped.
fn parameters(query: &str) -> Vec<(String, String)> {
    if query.split('&').count() > MAX_PARAMETERS {
        return Vec::new();
    }
    let decoded = |text: &str| unescaped(&text.replace('+', " "), Part::Other).ok().map(lossy);
    query
        .split('&')
        .filter(|parameter| !parameter.is_empty() && !parameter.contains(';'))
        .filter_map(|parameter| {
            let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            Some((decoded(key)?, decoded(value)?))
        })
        .collect()
}

fn lossy(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Prints a URL as the table has it: scheme, host, host without port, port, path, and the query by key.
    fn printed(text: &str) -> String {
        match Url::parse(text) {
            Err(why) => format!("error: {why}"),
            Ok(url) => {
                let (host, port) = url.host_and_port();
                let mut query = std::collections::BTreeMap::<&str, Vec<&str>>::new();
                url.query.iter().for_each(|(key, value)| query.entry(key).or_default().push(value));
                let query: String = query
                    .iter()
                    .map(|(key, values)| format!("{key}=[{}];", values.join(" ")))
                    .collect();
                format!("{}|{}|{host}|{port}|{}|{query}", url.scheme, url.host, url.path)
            }
        }
    }

    #[test]
    fn urls_are_parsed_as_in_go() {
        for (text, want) in [
            ("https://user@host:8080/p?q=1", "https|host:8080|host|8080|/p|q=[1];"),
            ("/p", "||||/p|"),
            ("", "error: parse \"\": empty url"),
            ("p", "error: parse \"p\": invalid URI for request"),
            ("*", "||||*|"),
            ("//a/b", "|a|a||/b|"),
            ("///a", "||||///a|"),
            ("http://a b/", "error: parse \"http://a b/\": invalid character \" \" in host name"),
            ("http://a/b c", "http|a|a||/b%20c|"),
            ("HTTP://A/", "http|A|A||/|"),
            ("1http://a", "error: parse \"1http://a\": invalid URI for request"),
            ("ht+tp://a", "ht+tp|a|a|||"),
            (":a", "error: parse \":a\": missing protocol scheme"),
            ("mailto:a@b", "mailto|||||"),
            ("http:a/b", "http|||||"),
            ("http:/a", "http||||/a|"),
            ("http://[::1]:80/x", "http|[::1]:80|::1|80|/x|"),
            ("http://[::1", "error: parse \"http://[::1\": missing ']' in host"),
            ("http://[1.2.3.4]", "error: parse \"http://[1.2.3.4]\": invalid IP-literal"),
            ("http://[fe80::1%25en0]/", "http|[fe80::1%en0]|fe80::1%en0||/|"),
            (
                "http://[1:2]",
                "error: parse \"http://[1:2]\": invalid host: ParseAddr(\"1:2\"): address string too short",
            ),
            ("http://a[b]", "error: parse \"http://a[b]\": invalid IP-literal"),
            ("http://a:b:c", "error: parse \"http://a:b:c\": invalid port \":b:c\" after host"),
            ("x://a:b:1/", "x|a:b:1|a:b|1|/|"),
            ("http://a:", "http|a:|a|||"),
            ("http://a:x", "error: parse \"http://a:x\": invalid port \":x\" after host"),
            ("http://a%20b/", "error: parse \"http://a%20b/\": invalid URL escape \"%20\""),
            ("http://a%C3%A9b/", "http|aéb|aéb||/|"),
            ("http://u%zz@a/", "error: parse \"http://u%zz@a/\": invalid URL escape \"%zz\""),
            ("http://u^@a/", "error: parse \"http://u^@a/\": net/url: invalid userinfo"),
            ("http://a/%zz", "error: parse \"http://a/%zz\": invalid URL escape \"%zz\""),
            ("http://a/%2", "error: parse \"http://a/%2\": invalid URL escape \"%2\""),
            ("http://a/%2fb%20c", "http|a|a||/%2fb%20c|"),
            ("/a\x01", "error: parse \"/a\\x01\": net/url: invalid control character in URL"),
            ("http://a/é?b=é", "http|a|a||/%C3%A9|b=[é];"),
            ("http://a?b=c&b=d&e&=f&g=%zz&h=i+j%20k;l&m=n", "http|a|a|||=[f];b=[c d];e=[];m=[n];"),
            ("http://a/b#c?d", "http|a|a||/b|"),
            ("/a#b?c", "||||/a|"),
            ("http://a/?", "http|a|a||/|"),
            ("http://a/??", "http|a|a||/|?=[];"),
            ("http://a/?b?c", "http|a|a||/|b?c=[];"),
            ("http://a/b?c#d", "http|a|a||/b|c=[];"),
            ("http://a<b>/", "http|a<b>|a<b>||/|"),
            ("http://a/<b>", "http|a|a||/%3Cb%3E|"),
            ("http://[::ffff:1.2.3.4]", "http|[::ffff:1.2.3.4]|::ffff:1.2.3.4|||"),
            ("http://user:pa:ss@host", "http|host|host|||"),
            ("http://@host", "http|host|host|||"),
            ("http://a@b@c/", "http|c|c||/|"),
            ("x://", "x|||||"),
            ("x:///a", "x||||/a|"),
            ("http://a/b;c=d,e!f'(g)*", "http|a|a||/b;c=d,e!f'(g)*|"),
        ] {
            assert_eq!(printed(text), want, "{text}");
        }
    }

    proptest! {
        /// Any string is parsed or refused, and escaping an escaped path does not change it.
        #[test]
        fn escaped_paths_stay(text in "[a-z]{0,3}:?/?/?[-a-z:@\\[\\]%0-9é?#<>. ]{0,20}") {
            if let Ok(url) = Url::parse(&text) {
                let path = url.path;
                prop_assert_eq!(escaped_path(&path), Ok(path.clone()));
                prop_assert!(path.is_ascii());
            }
        }
    }
}
