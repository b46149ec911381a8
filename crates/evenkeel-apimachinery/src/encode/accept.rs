//! The `Accept` header: media types in order of preference, with their parameters.

use http::HeaderMap;
use http::header::ACCEPT;

use crate::headers;

/// One media range of the `Accept` header.
#[derive(Debug, Clone, PartialEq)]
pub struct MediaRange {
    /// Type and sub-type, such as `application/json`.
    pub(crate) media: String,
    /// Parameters without `q`.
    params: Vec<(String, String)>,
    quality: f32,
}

impl MediaRange {
    /// Returns a parameter's value; empty if the parameter is absent.
    pub fn param(&self, name: &str) -> &str {
        self.params.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value)
    }

    /// Returns whether the media range includes `media`.
    pub fn includes(&self, media: &str) -> bool {
        match self.media.as_str() {
            "*/*" => true,
            own => {
                let kind = own.strip_suffix('*').filter(|kind| kind.ends_with('/'));
                own == media || kind.is_some_and(|kind| media.starts_with(kind))
            }
        }
    }
}

/// Returns the accepted media ranges, preferred ones first; `*/*` without the header. As in upstream, a range with
/// quality 0 is still accepted.
///
/// Upstream: `ParseAccept` of goautoneg.
pub fn media_ranges(headers: &HeaderMap) -> Vec<MediaRange> {
    let header = headers.get(ACCEPT).map_or("", headers::value);
    if header.is_empty() {
        return vec![MediaRange { media: "*/*".to_owned(), params: Vec::new(), quality: 1.0 }];
    }
    let mut all: Vec<MediaRange> = Vec::new();
    for media_range in header.split(',').filter_map(media_range) {
        // `precedes` is not a total order, so upstream's insertion order matters.
        let before = all.iter().rev().take_while(|other| precedes(&media_range, other)).count();
        all.insert(all.len() - before, media_range);
    }
    all
}

/// Returns whether a media range is preferred to one that precedes it in the header.
fn precedes(one: &MediaRange, other: &MediaRange) -> bool {
    let wild = |range: &MediaRange| {
        let (kind, sub) = range.media.split_once('/').unwrap_or_default();
        (kind == "*", sub == "*")
    };
    let ((kind, sub), (other_kind, other_sub)) = (wild(one), wild(other));
    one.quality > other.quality || !kind && other_kind || !sub && other_sub
}

fn media_range(text: &str) -> Option<MediaRange> {
    let mut parts = text.trim().split(';');
    let media = parts.next().unwrap_or_default();
    let media = match media.split_once('/') {
        None if media.trim() == "*" => "*/*".to_owned(),
        None | Some((_, "")) => return None,
        Some((_, sub)) if sub.contains('/') => return None,
        Some((kind, sub)) => format!("{}/{}", kind.trim(), sub.trim()),
    };
    let mut quality = 1.0;
    let mut params = Vec::new();
    for (name, value) in parts.filter_map(|part| part.split_once('=')) {
        if value.is_empty() || value.contains('=') {
            continue;
        }
        match name.trim() {
            "q" => quality = value.parse().unwrap_or(0.0),
            name => params.push((name.to_owned(), value.trim().to_owned())),
        }
    }
    Some(MediaRange { media, params, quality })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn media_ranges_are_ordered_by_quality_and_specificity() {
        let mut headers = HeaderMap::new();
        let value = "application/json;q=0.5, application/json;as=Table;g=meta.k8s.io;v=v1,application/yaml;q=0";
        headers.insert(ACCEPT, value.parse().expect("a header"));
        let all = media_ranges(&headers);
        let media: Vec<&str> = all.iter().map(|range| &*range.media).collect();
        assert_eq!(media, ["application/json", "application/json", "application/yaml"]);
        assert_eq!(all[0].param("as"), "Table");
        assert!(all[1].includes("application/json") && all[1].param("as").is_empty());
        for (value, media) in [
            (
                "*/*;q=0.8,text/html,application/*,a/b",
                vec!["text/html", "a/b", "application/*", "*/*"],
            ),
            ("garbage, a/b/c, a/, *", vec!["*/*"]),
        ] {
            headers.insert(ACCEPT, value.parse().expect("a header"));
            let all = media_ranges(&headers);
            assert_eq!(all.iter().map(|range| &*range.media).collect::<Vec<_>>(), media, "{value}");
        }
        assert!(media_ranges(&HeaderMap::new())[0].includes("application/json"));
    }

    #[test]
    fn ranges_of_one_type_include_its_sub_types_only() {
        let headers =
            |value: &str| HeaderMap::from_iter([(ACCEPT, value.parse().expect("a header value"))]);
        let includes = |range: &str| media_ranges(&headers(range))[0].includes("application/json");
        assert!(includes("application/*"));
        assert!(!includes("app/*"));
    }
}
