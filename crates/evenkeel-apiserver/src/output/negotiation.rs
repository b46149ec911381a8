//! Content negotiation by `Accept` and the query.

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

/// Encoding of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Encoding {
    Json,
    /// JSON with indentation.
    Pretty,
    Yaml,
    Protobuf,
}

/// Representation of an object in a response: the whole object, its metadata, or a Table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Shape {
    Whole,
    Metadata,
    /// The metadata of a list's items.
    MetadataList,
    Table(Include),
}

/// Returns the encodings that a media range includes, preferred ones first.
///
/// Upstream: `NegotiateMediaTypeOptions`, `acceptMediaTypeOptions`.
pub(super) fn encodings(
    media_range: &MediaRange,
    is_pretty: bool,
) -> impl Iterator<Item = Encoding> + use<> {
    let is_pretty = is_pretty || media_range.param("pretty") == "1";
    let json = if is_pretty { Encoding::Pretty } else { Encoding::Json };
    let stream = media_range.param("stream");
    let known = [(JSON, json), (YAML, Encoding::Yaml), (PROTOBUF, Encoding::Protobuf)];
    let accepted = known.map(|(media_type, encoding)| {
        // Watch events have no encoding in YAML.
        let supports_stream = stream.is_empty() || stream == "watch" && encoding != Encoding::Yaml;
        (supports_stream && media_range.includes(media_type)).then_some(encoding)
    });
    accepted.into_iter().flatten()
}

/// Returns whether a media range requests the conversion to another kind, such as a Table, by `as`, `g` (group) and `v`
/// (version).
pub(super) fn requests_conversion(media_range: &MediaRange) -> bool {
    ["as", "g", "v"].iter().any(|name| !media_range.param(name).is_empty())
}

/// Returns the encodings that a client accepts for a document that cannot be converted to a Table or to metadata,
/// preferred ones first.
pub(super) fn plain_encodings(
    headers: &HeaderMap,
    query: &[(String, String)],
) -> impl Iterator<Item = Encoding> + use<> {
    let is_pretty = wants_pretty(headers, query);
    let media_ranges = accept::media_ranges(headers).into_iter();
    let unconverted = media_ranges.filter(|range| !requests_conversion(range));
    unconverted.flat_map(move |range| encodings(&range, is_pretty))
}

/// Built-in resources whose status cannot be shown as a Table.
const STATUS_WITHOUT_TABLE: [&str; 7] = [
    "apiservices",
    "compositepodgroups",
    "customresourcedefinitions",
    "devicetaintrules",
    "podgroups",
    "resourceclaims",
    "resourcepoolstatusrequests",
];

/// Returns whether a resource or its subresource can be shown as a Table. Some subresources cannot, although their
/// responses are objects of kinds that can.
///
/// Upstream: the types of subresources that are no `TableConvertor`, such as `EphemeralContainersREST`.
pub(super) fn has_table(resource: &ResourceType, subresource: &str) -> bool {
    let is_without = match subresource {
        "approval" | "ephemeralcontainers" | "finalize" | "resize" => true,
        "status" => resource.custom.is_none() && STATUS_WITHOUT_TABLE.contains(&resource.plural()),
        _ => false,
    };
    table::has_columns(resource) && !is_without
}

/// Returns the shape that a media range requests, and the API version of a Table or of metadata. Returns `None` if the
/// resource has no such shape in this encoding.
///
/// Upstream: `AllowsMediaTypeTransform`.
pub(super) fn shape(
    resource: &ResourceType,
    has_table: bool,
    media_range: &MediaRange,
    encoding: Encoding,
    query: &[(String, String)],
) -> Option<(Shape, &'static str)> {
    let is_protobuf = encoding == Encoding::Protobuf;
    if !requests_conversion(media_range) {
        return (!is_protobuf || has_protobuf(resource)).then_some((Shape::Whole, META));
    }
    let meta = match (media_range.param("g"), media_range.param("v")) {
        ("meta.k8s.io", "v1") => META,
        ("meta.k8s.io", "v1beta1") => META_BETA,
        _ => return None,
    };
    let shape = match media_range.param("as") {
        "Table" if !is_protobuf && has_table => Shape::Table(include(query)),
        "PartialObjectMetadata" => Shape::Metadata,
        "PartialObjectMetadataList" => Shape::MetadataList,
        _ => return None,
    };
    Some((shape, meta))
}

/// Returns whether to indent JSON: the query's `pretty` decides. Without it, browsers, curl and Wget get indented JSON.
pub(super) fn wants_pretty(headers: &HeaderMap, query: &[(String, String)]) -> bool {
    let requested = query.iter().find(|(name, _)| name == "pretty");
    if let Some((_, value)) = requested.filter(|(_, value)| !value.is_empty()) {
        return matches!(value.as_str(), "1" | "t" | "T" | "true" | "TRUE" | "True");
    }
    let agent = text(headers, http::header::USER_AGENT);
    ["curl", "Wget", "Mozilla/5.0"].iter().any(|name| agent.starts_with(name))
}

/// Returns the value of `includeObject`.
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
