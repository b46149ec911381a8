//! Makes live reads, sends them, and decodes their replies.

use super::{ApiError, Client, List, ListOptions, send::ApiRequest, verbs::object_path, wire};
use crate::plan::{Failure, LiveRead, OnError, Reply};
use bytes::Bytes;
use evenkeel_api::{DecodeError, Kind, View};
use http::{HeaderMap, Method};

impl LiveRead {
    /// Reads one object of type `V`, or its metadata where that is [`Metadata`](super::Metadata).
    pub fn get<V: View>(kind: &Kind, namespace: &str, name: &str) -> Self {
        Self::path(object_path(kind, namespace, name, ""), wire::accept::<V>())
    }

    /// Lists objects of type `V`; in all namespaces where `namespace` is empty.
    pub fn list<V: View>(kind: &Kind, namespace: &str, options: &ListOptions) -> Self {
        Self::path(kind.path(namespace) + options.query().as_str(), wire::accept_list::<V>())
    }

    /// Posts a review, such as a SubjectAccessReview, to its collection's path.
    pub fn review(path: &str, body: impl Into<Bytes>) -> Self {
        Self { body: Some(body.into()), ..Self::json(path) }
    }

    /// Reads JSON from a path.
    pub fn json(path: &str) -> Self {
        Self::path(path.to_owned(), wire::JSON)
    }

    fn path(path: String, accept: &'static str) -> Self {
        Self { path, accept, body: None, shared: false, on_error: OnError::Continue }
    }
}

impl Reply {
    /// A reply with this JSON body.
    pub fn json(body: impl Into<Bytes>) -> Self {
        Self { headers: HeaderMap::new(), body: body.into() }
    }

    /// Decodes the object.
    ///
    /// # Errors
    /// When it is not of this type.
    pub fn object<V: View>(&self) -> Result<V, Failure> {
        wire::object(&self.headers, &self.body).map_err(undecodable)
    }

    /// Decodes the list.
    ///
    /// # Errors
    /// When it is not a list of this type.
    pub fn list<V: View>(&self) -> Result<List<V>, Failure> {
        wire::list(&self.headers, &self.body).map_err(undecodable)
    }

    /// Returns the body, for replies to [`LiveRead::json`] and [`LiveRead::review`].
    pub fn body(&self) -> &Bytes {
        &self.body
    }
}

fn undecodable(error: DecodeError) -> Failure {
    Failure {
        code: 0,
        reason: String::new(),
        message: format!("cannot decode the reply of the API server: {error}"),
        namespace_terminating: false,
    }
}

impl Client {
    /// Sends a live read.
    pub(crate) async fn live_read(&self, read: &LiveRead) -> Result<Reply, ApiError> {
        let method = if read.body.is_some() { Method::POST } else { Method::GET };
        let call = ApiRequest::new(method, read.path.clone(), read.accept);
        let call = match &read.body {
            Some(body) => call.json(body.clone()),
            None => call,
        };
        let (parts, body) = self.exchange(&call).await?.into_parts();
        Ok(Reply { headers: parts.headers, body })
    }
}
