//! Negotiation: what a client accepts, and what it asks for in the query.

use http::HeaderMap;

use super::table::{self, Include};
use crate::resource::ResourceType;
use evenkeel_api::protobuf::Transcoder;
use evenkeel_apimachinery::encode::accept::{self, MediaRange};
use evenkeel_apimachinery::headers::text;

pub(super) const JSON: &str = "application/json";
pub(super) const YAML: &str = "application/yaml";
pub(super) const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
pub(super) const META: &str = "meta.k8s.io/v1";
pub(super) const META_BETA: &str = "meta.k8s.io/v1beta1";

/// Encoding of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Encoding {
    Json,
    Pretty,
    Yaml,
    Protobuf,
}

/// Representation of an object in an answer: whole, metadata, or as a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Shape {
    Whole,
    Metadata,
    /// The metadata of a list's items.
    MetadataList,
    Table(Include),
}

/// The encodings that a media range includes, preferred ones first.
///
/// Upstream: `NegotiateMediaTypeOptions`, `acceptMediaTypeOptions`.
pub(super) fn encodings(
    media_range: &MediaRange,
    is_pretty: bool,
) -> impl Iterator<Item = Encoding> + use<> {
    let is_pretty = is_pretty || media_range.param("pretty") == "1";
    let json = if is_pretty { Encoding::Pretty } else { Encoding::Json };
    let stream = media_range.param("stream");
    let all = [(JSON, json), (YAML, Encoding::Yaml), (PROTOBUF, Encoding::Protobuf)];
    let all = all.map(|(media, encoding)| {
        let streams = stream.is_empty() || stream == "watch" && encoding != Encoding::Yaml;
        (streams && media_range.includes(media)).then_some(encoding)
    });
    all.into_iter().flatten()
}

/// Whether a media range asks for another kind.
pub(super) fn is_converted(media_range: &MediaRange) -> bool {
    ["as", "g", "v"].iter().any(|name| !media_range.param(name).is_empty())
}

/// Returns the encodings that a client accepts of a document that is never converted, preferred ones first.
pub(super) fn plain_encodings(
    headers: &HeaderMap,
    query: &[(String, String)],
) -> impl Iterator<Item = Encoding> + use<> {
    let is_pretty = wants_pretty(headers, query);
    let plain = accept::media_ranges(headers).into_iter().filter(|range| !is_converted(range));
    plain.flat_map(move |range| encodings(&range, is_pretty))
}

/// The shape that a media range asks for, and the version of the Table or the metadata; `None` where there is none.
///
/// Upstream: `AllowsMediaTypeTransform`.
pub(super) fn shape(
    resource: &ResourceType,
    media_range: &MediaRange,
    encoding: Encoding,
    query: &[(String, String)],
) -> Option<(Shape, &'static str)> {
    let is_protobuf = encoding == Encoding::Protobuf;
    if !is_converted(media_range) {
        return (!is_protobuf || has_protobuf(resource)).then_some((Shape::Whole, META));
    }
    let meta = match (media_range.param("g"), media_range.param("v")) {
        ("meta.k8s.io", "v1") => META,
        ("meta.k8s.io", "v1beta1") => META_BETA,
        _ => return None,
    };
    let shape = match media_range.param("as") {
        "Table" if !is_protobuf && table::has(resource) => Shape::Table(include(query)),
        "PartialObjectMetadata" => Shape::Metadata,
        "PartialObjectMetadataList" => Shape::MetadataList,
        _ => return None,
    };
    Some((shape, meta))
}

/// People get indented JSON: those who ask for it, and those who come with a browser or a command line tool.
pub(super) fn wants_pretty(headers: &HeaderMap, query: &[(String, String)]) -> bool {
    let given = query.iter().find(|(name, _)| name == "pretty");
    if let Some((_, value)) = given.filter(|(_, value)| !value.is_empty()) {
        return matches!(value.as_str(), "1" | "t" | "T" | "true" | "TRUE" | "True");
    }
    let agent = text(headers, http::header::USER_AGENT);
    ["curl", "Wget", "Mozilla/5.0"].iter().any(|name| agent.starts_with(name))
}

fn include(query: &[(String, String)]) -> Include {
    match query.iter().find(|(name, _)| name == "includeObject").map_or("", |(_, value)| value) {
        "" | "Metadata" => Include::Metadata,
        "None" => Include::None,
        "Object" => Include::Object,
        _ => Include::Unknown,
    }
}

fn has_protobuf(resource: &ResourceType) -> bool {
    Transcoder::supports(&resource.api_version, resource.kind())
}
