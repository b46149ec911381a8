//! Functions of URLs: CEL's library `url`.

use std::collections::HashMap;
use std::rc::Rc;

use super::Outcome;
use crate::url::Url;
use crate::value::Val;

/// Calls a function that converts or tests one string; `None` for other names and arguments.
pub(super) fn global<'a>(name: &str, args: &[Val<'a>]) -> Option<Outcome<'a>> {
    let [Val::Str(text)] = args else { return None };
    match name {
        "url" => {
            let url = Url::parse(text).map(|url| Val::Url(Rc::new(url)));
            Some(url.map_err(|why| format!("URL parse error during conversion from string: {why}")))
        }
        "isURL" => Some(Ok(Val::Bool(Url::is_request_uri(text)))),
        _ => None,
    }
}

/// Calls a method of a URL; `None` for other names and arguments.
pub(super) fn member<'a>(name: &str, args: &[Val<'a>]) -> Option<Outcome<'a>> {
    let [Val::Url(url)] = args else { return None };
    let (host, port) = url.host_and_port();
    Some(Ok(match name {
        "getScheme" => Val::str(url.scheme.clone()),
        "getHost" => Val::str(url.host.clone()),
        "getHostname" => Val::str(host),
        "getPort" => Val::str(port),
        "getEscapedPath" => Val::str(url.path.clone()),
        "getQuery" => {
            let mut query: Vec<(Val<'a>, Vec<Val<'a>>)> = Vec::new();
            let mut indexes: HashMap<&str, usize> = HashMap::new();
            for (key, value) in &url.query {
                let index = *indexes.entry(key).or_insert_with(|| {
                    query.push((Val::str(key.clone()), Vec::new()));
                    query.len() - 1
                });
                query[index].1.push(Val::str(value.clone()));
            }
            Val::Map(Rc::new(query.into_iter().map(|(k, v)| (k, Val::list(v))).collect()))
        }
        _ => return None,
    }))
}
