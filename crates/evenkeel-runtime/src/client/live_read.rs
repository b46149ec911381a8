//! Live reads of the API server: requests, sending, and decoding of the replies.

use super::{
    ApiError, Client, List, ListOptions, negotiation, send::ApiRequest, verbs::object_path,
};
use crate::{
    discovery::ServerResources,
    plan::{Failure, LiveRead, OnError, Outcome, ReadRequest, Reply},
};
use bytes::Bytes;
use evenkeel_api::{DecodeError, Kind, View};
use http::{HeaderMap, Method};
use std::{sync::Arc, time::Duration};

impl LiveRead {
    /// Reads one object of type `V`. For [`Metadata`](super::Metadata) it reads only the metadata.
    pub fn get<V: View>(kind: &Kind, namespace: &str, name: &str) -> Self {
        let path = object_path(kind, namespace, name, "");
        Self::of(ReadRequest::Get { path, accept: negotiation::accept::<V>() })
    }

    /// Lists objects of type `V`, in all namespaces if `namespace` is empty.
    pub fn list<V: View>(kind: &Kind, namespace: &str, options: &ListOptions) -> Self {
        let path = kind.path(namespace) + options.query().as_str();
        Self::of(ReadRequest::Get { path, accept: negotiation::accept_list::<V>() })
    }

    /// Posts a review, such as a SubjectAccessReview, to its collection's path.
    pub fn review(path: &str, body: impl Into<Bytes>) -> Self {
        Self::of(ReadRequest::Review { path: path.to_owned(), body: body.into() })
    }

    /// Reads JSON from a path.
    pub fn json(path: &str) -> Self {
        Self::of(ReadRequest::Get { path: path.to_owned(), accept: negotiation::JSON })
    }

    /// Reads JSON from a path with the program's client ([`ReadRequest::GetShared`]).
    pub fn shared_json(path: &str) -> Self {
        Self::of(ReadRequest::GetShared { path: path.to_owned() })
    }

    /// Discovers the API server's resources, unless the client did so less than `max_age` ago.
    pub fn resources(max_age: Duration) -> Self {
        Self::of(ReadRequest::Discovery { max_age })
    }

    fn of(request: ReadRequest) -> Self {
        Self { request, delay: Duration::ZERO, on_error: OnError::Continue }
    }
}

impl Reply {
    /// Creates a reply with this JSON body.
    pub fn json(body: impl Into<Bytes>) -> Self {
        Self { headers: HeaderMap::new(), body: body.into(), resources: None }
    }

    /// Creates a reply to [`LiveRead::resources`].
    pub fn of_resources(resources: Arc<ServerResources>) -> Self {
        Self { headers: HeaderMap::new(), body: Bytes::new(), resources: Some(resources) }
    }

    /// Returns the discovered resources of a reply to [`LiveRead::resources`].
    pub fn resources(&self) -> Option<&Arc<ServerResources>> {
        self.resources.as_ref()
    }

    /// Decodes the object.
    ///
    /// # Errors
    /// Fails if the reply is not an object of this type.
    pub fn object<V: View>(&self) -> Result<V, Failure> {
        negotiation::decode_object(&self.headers, &self.body)
            .map_err(|error| decode_failure(&error))
    }

    /// Decodes the list.
    ///
    /// # Errors
    /// Fails if the reply is not a list of this type.
    pub fn list<V: View>(&self) -> Result<List<V>, Failure> {
        negotiation::decode_list(&self.headers, &self.body).map_err(|error| decode_failure(&error))
    }

    /// Returns the body, for replies to [`LiveRead::json`], [`LiveRead::shared_json`] and [`LiveRead::review`].
    pub fn body(&self) -> &Bytes {
        &self.body
    }
}

impl Outcome {
    /// Decodes the object that a live read returned. Returns `None` if the object does not exist (404).
    ///
    /// # Errors
    /// Fails if the read failed for another reason, or returned another type.
    pub fn object<V: View>(&self) -> Result<Option<V>, Failure> {
        match (&self.reply, &self.error) {
            (Some(reply), _) => reply.object().map(Some),
            (None, Some(error)) if !error.is_not_found() => Err(error.clone()),
            (None, _) => Ok(None),
        }
    }
}

fn decode_failure(error: &DecodeError) -> Failure {
    Failure::local(format!("cannot decode the reply of the API server: {error}"))
}

impl Client {
    /// Sends a live read after its delay. The caller selects the client by the [`ReadRequest`].
    pub(crate) async fn live_read(&self, read: &LiveRead) -> Result<Reply, ApiError> {
        if !read.delay.is_zero() {
            self.clock().sleep(read.delay).await;
        }
        let call = match &read.request {
            ReadRequest::Discovery { max_age } => {
                return Ok(Reply::of_resources(self.recent_api_resources(*max_age).await?));
            }
            ReadRequest::Get { path, accept } => {
                ApiRequest::new(Method::GET, path.clone(), accept).for_list(0)
            }
            ReadRequest::GetShared { path } => {
                ApiRequest::new(Method::GET, path.clone(), negotiation::JSON).for_list(0)
            }
            ReadRequest::Review { path, body } => {
                ApiRequest::new(Method::POST, path.clone(), negotiation::JSON).json(body.clone())
            }
        };
        let (parts, body) = self.exchange(&call).await?.into_parts();
        Ok(Reply { headers: parts.headers, body, resources: None })
    }
}
