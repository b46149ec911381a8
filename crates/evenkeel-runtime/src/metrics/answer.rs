//! Response to a scrape, with negotiation of format and compression.

use super::{
    protobuf,
    text::{self, Dialect},
};
use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use http::{HeaderMap, HeaderValue, Response, header};
use prometheus::proto::MetricFamily;
use std::io::Write as _;

/// Exposition format of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Text,
    OpenMetrics,
    Protobuf,
}

impl Format {
    /// Returns the content type as client_golang writes it.
    fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8; escaping=underscores",
            Self::OpenMetrics => {
                "application/openmetrics-text; version=1.0.0; charset=utf-8; escaping=underscores"
            }
            Self::Protobuf => {
                "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; \
                 encoding=delimited; escaping=underscores"
            }
        }
    }
}

/// Returns the response to a scrape with these request headers. The families must be sorted by name.
///
/// As with upstream's programs, the format is text or protobuf, whichever the client prefers. Only clients that accept
/// neither receive OpenMetrics, because its histograms have different bounds (`1.0` instead of `1`). Clients that
/// prefer it, such as Prometheus, would otherwise have other series than upstream's.
///
/// ```
/// use evenkeel_runtime::metrics;
/// let registry = prometheus::Registry::new();
/// metrics::gauge(&registry, "up", "Whether it is.").set(1.0);
/// let answer = metrics::answer(&http::HeaderMap::new(), &registry.gather());
/// assert_eq!(answer.body(), "# HELP up Whether it is.\n# TYPE up gauge\nup 1\n");
/// ```
pub fn answer(headers: &HeaderMap, families: &[MetricFamily]) -> Response<Bytes> {
    let format = choose_format(&accepted_ranges(headers, &header::ACCEPT));
    let mut body = match format {
        Format::Text => text::encode(families, Dialect::Prometheus).into_bytes(),
        Format::OpenMetrics => text::encode(families, Dialect::OpenMetrics).into_bytes(),
        Format::Protobuf => protobuf::encode(families),
    };
    let accepts_gzip =
        accepted_ranges(headers, &header::ACCEPT_ENCODING).iter().any(|range| range.name == "gzip");
    // Compression into memory cannot fail, so an uncompressed body is only a fallback.
    let compressed = accepts_gzip.then(|| compress(&body)).and_then(Result::ok);
    let mut response = Response::new(Bytes::new());
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(format.content_type()));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    if let Some(compressed) = compressed {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        body = compressed;
    }
    *response.body_mut() = body.into();
    response
}

fn compress(body: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut gzip = GzEncoder::new(Vec::with_capacity(body.len() / 8), Compression::fast());
    gzip.write_all(body)?;
    gzip.finish()
}

/// One choice in an `Accept…` header, such as `text/plain;version=0.0.4`.
struct AcceptRange<'a> {
    name: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
}

impl AcceptRange<'_> {
    /// Returns whether a parameter has one of the values. An absent parameter equals an empty value.
    fn has_parameter(&self, parameter: &str, values: &[&str]) -> bool {
        let found = self.parameters.iter().find(|(name, _)| *name == parameter);
        found.map_or_else(|| values.contains(&""), |(_, value)| values.contains(value))
    }
}

/// Returns the choices of a header by descending quality, without those of quality 0.
fn accepted_ranges<'a>(headers: &'a HeaderMap, name: &header::HeaderName) -> Vec<AcceptRange<'a>> {
    let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    let mut found: Vec<(f32, AcceptRange<'a>)> = values
        .flat_map(|value| value.split(','))
        .map(|range| {
            let mut parts = range.split(';').map(str::trim);
            let name = parts.next().unwrap_or_default();
            let parameters: Vec<_> = parts.filter_map(|part| part.split_once('=')).collect();
            let quality = parameters.iter().find(|(name, _)| *name == "q");
            let quality = quality.map_or(1.0, |(_, quality)| quality.parse().unwrap_or(1.0));
            (quality, AcceptRange { name, parameters })
        })
        .filter(|(quality, _)| *quality > 0.0)
        .collect();
    found.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    found.into_iter().map(|(_, range)| range).collect()
}

/// Returns the first of text and protobuf that a client accepts, then OpenMetrics, then text.
fn choose_format(accepted: &[AcceptRange<'_>]) -> Format {
    let mut accepts_openmetrics = false;
    for range in accepted {
        match range.name {
            "text/plain" if range.has_parameter("version", &["", "0.0.4"]) => return Format::Text,
            "application/vnd.google.protobuf"
                if range.has_parameter("proto", &["io.prometheus.client.MetricFamily"])
                    && range.has_parameter("encoding", &["delimited"]) =>
            {
                return Format::Protobuf;
            }
            "application/openmetrics-text" => {
                accepts_openmetrics |= range.has_parameter("version", &["", "0.0.1", "1.0.0"]);
            }
            _ => {}
        }
    }
    if accepts_openmetrics { Format::OpenMetrics } else { Format::Text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    #[track_caller]
    fn check(accept: &'static str, want: Format) {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
        assert_eq!(choose_format(&accepted_ranges(&headers, &header::ACCEPT)), want, "{accept}");
    }

    #[test]
    fn text_and_protobuf_are_preferred_to_openmetrics() {
        let open = "application/openmetrics-text;version=1.0.0";
        check("*/*", Format::Text);
        check("application/json", Format::Text);
        check("text/plain;version=1.0.0", Format::Text);
        check(open, Format::OpenMetrics);
        check("application/openmetrics-text;version=2.0.0", Format::Text);
        // The headers of Prometheus 3, without native histograms and with them.
        check(
            "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
             application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;q=0.4,\
             text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
            Format::Text,
        );
        check(
            "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.7,\
             application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.3",
            Format::Protobuf,
        );
        check(
            "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=text",
            Format::Text,
        );
        check("application/openmetrics-text;q=0,*/*", Format::Text);
    }

    #[test]
    fn bodies_are_compressed_only_for_clients_that_accept_gzip() {
        let registry = prometheus::Registry::new();
        crate::metrics::gauge(&registry, "up", "Up.").set(1.0);
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("zstd, gzip;q=0.5"));
        let compressed = answer(&headers, &registry.gather());
        assert_eq!(compressed.headers()[header::CONTENT_ENCODING], "gzip");
        let mut text = String::new();
        flate2::read::GzDecoder::new(&compressed.body()[..]).read_to_string(&mut text).unwrap();
        assert_eq!(text, "# HELP up Up.\n# TYPE up gauge\nup 1\n");

        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("gzip;q=0"));
        let plain = answer(&headers, &registry.gather());
        assert_eq!(
            (plain.headers().get(header::CONTENT_ENCODING), plain.body()),
            (None, &Bytes::from(text))
        );
    }
}
