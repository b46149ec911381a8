//! The `Accept` header: media types in order of preference, with their parameters.

use http::HeaderMap;
use http::header::ACCEPT;

use crate::headers;

/// One media range of the `Accept` header.
#[derive(Debug, Clone, PartialEq)]
pub struct MediaRange {
    /// Media type in lower case, such as `application/json`.
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

    /// Whether the media range includes `media`.
    pub fn includes(&self, media: &str) -> bool {
        match self.media.as_str() {
            "*/*" => true,
            own => {
                own == media || own.strip_suffix("/*").is_some_and(|kind| media.starts_with(kind))
            }
        }
    }
}

/// Returns the accepted media ranges by descending preference; `*/*` if the header is absent.
pub fn media_ranges(headers: &HeaderMap) -> Vec<MediaRange> {
    let mut all: Vec<MediaRange> = headers
        .get_all(ACCEPT)
        .iter()
        .flat_map(|value| headers::value(value).split(','))
        .filter_map(media_range)
        .collect();
    if all.is_empty() {
        all.push(MediaRange { media: "*/*".to_owned(), params: Vec::new(), quality: 1.0 });
    }
    all.sort_by(|a, b| b.quality.total_cmp(&a.quality));
    all
}

fn media_range(text: &str) -> Option<MediaRange> {
    let mut parts = text.split(';').map(str::trim);
    let media = parts.next().filter(|media| media.contains('/'))?.to_ascii_lowercase();
    let mut quality = 1.0;
    let mut params = Vec::new();
    for part in parts {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        let value = value.trim().trim_matches('"');
        if name.trim() == "q" {
            quality = value.parse().unwrap_or(0.0);
        } else {
            params.push((name.trim().to_owned(), value.to_owned()));
        }
    }
    (quality > 0.0).then_some(MediaRange { media, params, quality })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sorts_by_preference_and_keeps_order_otherwise() {
        let mut headers = HeaderMap::new();
        let value = "application/json;q=0.5, application/json;as=Table;g=meta.k8s.io;v=v1,application/yaml;q=0";
        headers.insert(ACCEPT, value.parse().expect("a header"));
        let all = media_ranges(&headers);
        assert_eq!(all.len(), 2);
        assert_eq!(all[0].param("as"), "Table");
        assert!(all[1].includes("application/json") && all[1].param("as").is_empty());
        assert!(media_ranges(&HeaderMap::new())[0].includes("application/json"));
    }
}
