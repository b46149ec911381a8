//! What is no plain verb on a stored object: bindings, evictions, tokens, logs, reviews. The kind's hooks serve it.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, Response};
use serde_json::Value;

use super::write::{Write, stored_type};
use super::{answer_value, update};
use crate::api::{Answer, Call};
use crate::decode;
use crate::pipeline::query::WriteOptions;
use crate::pipeline::{Ask, answer, warn};
use crate::serve::Body;
use crate::status::StatusError;

/// Whether requests of a method have a body that is read.
pub(super) fn takes_body(method: &Method) -> bool {
    !matches!(*method, Method::GET | Method::HEAD)
}

/// Serves it by the hooks, where they want to.
pub(super) async fn serve(
    ask: &Ask<'_>,
    body: &Bytes,
) -> Result<Option<Response<Body>>, StatusError> {
    let stored = stored_type(ask.api, ask.resource());
    let plain =
        ask.target.subresource.is_empty() && ask.resource().verbs.has(crate::resource::Verb::Get);
    if plain || !stored.hooks.connects(ask.target.subresource) {
        return Ok(None);
    }
    let options = WriteOptions::parse(ask.query, ask.user_agent(), "CreateOptions", false)?;
    let (body, warnings) = if body.is_empty() {
        (Value::Null, Vec::new())
    } else {
        let kind = update::part_kind(ask);
        let decoded = decode::object(
            ask.resource(),
            &kind,
            ask.header(CONTENT_TYPE),
            body,
            options.validation,
        )?;
        (decoded.object, decoded.warnings)
    };
    let write = Write::new(ask, options);
    let call = Call {
        cx: write.context(ask.target.name),
        method: ask.method,
        headers: ask.headers,
        query: &ask.query.0,
        body,
        rest: ask.target.rest,
    };
    let Some(answered) = stored.hooks.connect(&call) else { return Ok(None) };
    let mut response = match answered.await? {
        Answer::Object(code, object) => answer_value(ask, code, &object)?,
        Answer::Raw(code, content_type, bytes) => {
            answer(code, HeaderValue::from_static(content_type), Body::whole(bytes))
        }
    };
    warn(&mut response, &warnings);
    Ok(Some(response))
}
