//! Functions of URLs: CEL's library `url`.

use std::rc::Rc;

use super::Outcome;
use crate::value::{Url, Val};

pub(super) fn global<'a>(name: &str, args: &[Val<'a>]) -> Option<Outcome<'a>> {
    let [Val::Str(text)] = args else { return None };
    match name {
        "url" => Some(parse(text).map(|url| Val::Url(Rc::new(url))).ok_or_else(|| {
            format!(
                "URL parse error during conversion from string: parse {}: invalid URI for request",
                evenkeel_api::quote::quote(text)
            )
        })),
        "isURL" => Some(Ok(Val::Bool(parse(text).is_some()))),
        _ => None,
    }
}

/// Parses an absolute URL or an absolute path.
fn parse(text: &str) -> Option<Url> {
    let (scheme, rest) = match text.split_once("://") {
        Some((scheme, rest)) => {
            let good = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
            if !scheme.starts_with(|c: char| c.is_ascii_alphabetic()) || !scheme.chars().all(good) {
                return None;
            }
            (scheme, rest)
        }
        None if text.starts_with('/') => ("", text),
        None => return None,
    };
    if text.contains([' ', '\n', '\t']) {
        return None;
    }
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (host, path) = if scheme.is_empty() {
        ("", rest)
    } else {
        rest.split_at(rest.find('/').unwrap_or(rest.len()))
    };
    let host = host.rsplit('@').next().unwrap_or(host);
    let decoded = |text: &str| {
        percent_encoding::percent_decode_str(&text.replace('+', " "))
            .decode_utf8_lossy()
            .into_owned()
    };
    let query = query
        .split('&')
        .filter(|part| !part.is_empty())
        .map(|part| part.split_once('=').unwrap_or((part, "")))
        .map(|(key, value)| (decoded(key), decoded(value)))
        .collect();
    Some(Url {
        text: text.to_owned(),
        scheme: scheme.to_owned(),
        host: host.to_owned(),
        path: path.to_owned(),
        query,
    })
}

pub(super) fn member<'a>(name: &str, args: &[Val<'a>]) -> Option<Outcome<'a>> {
    let [Val::Url(url)] = args else { return None };
    let end = url.host.rfind(']').unwrap_or(0);
    let (name_of_host, port) = match url.host[end..].rfind(':') {
        Some(at) => (&url.host[..end + at], &url.host[end + at + 1..]),
        None => (&*url.host, ""),
    };
    Some(Ok(match name {
        "getScheme" => Val::str(url.scheme.clone()),
        "getHost" => Val::str(url.host.clone()),
        "getHostname" => Val::str(name_of_host.trim_matches(['[', ']'])),
        "getPort" => Val::str(port),
        "getEscapedPath" => Val::str(url.path.clone()),
        "getQuery" => {
            let mut query: Vec<(Val<'a>, Vec<Val<'a>>)> = Vec::new();
            for (key, value) in &url.query {
                let key = Val::str(key.clone());
                match query.iter_mut().find(|(k, _)| k.equals(&key)) {
                    Some((_, values)) => values.push(Val::str(value.clone())),
                    None => query.push((key, vec![Val::str(value.clone())])),
                }
            }
            Val::Map(Rc::new(query.into_iter().map(|(k, v)| (k, Val::list(v))).collect()))
        }
        _ => return None,
    }))
}
