//! Parser of image references, in the grammar of the module `github.com/distribution/reference`.

/// Maximum length of a repository's path in bytes.
const MAX_PATH: usize = 255;
/// Maximum length of a tag in bytes.
const MAX_TAG: usize = 128;

/// Returns the tag of a reference, or `latest` if it has no tag. Returns `None` if the reference has a digest or is
/// invalid.
///
/// Upstream: `ParseImageName`.
pub(super) fn tag(image: &str) -> Option<&str> {
    // The grammar rejects a name that looks like the ID of an image: 64 hexadecimal digits.
    let is_identifier = image.len() == 64
        && image.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    if image.contains('@') || is_identifier {
        return None;
    }
    let (domain, remainder) = match image.split_once('/') {
        Some((first, rest)) if is_domain(first) => (Some(first), rest),
        _ => (None, image),
    };
    let (path, tag) = match remainder.split_once(':') {
        Some((path, tag)) => (path, Some(tag)),
        None => (remainder, None),
    };
    // `nginx` is short for `docker.io/library/nginx`, and the prefix counts toward the length.
    let is_official = domain.is_none() && !path.contains('/');
    let length = path.len() + if is_official { "library/".len() } else { 0 };
    let is_valid = domain.is_none_or(is_host_and_port)
        && length <= MAX_PATH
        && path.split('/').all(is_component);
    match tag {
        _ if !is_valid => None,
        None => Some("latest"),
        Some(tag) => is_tag(tag).then_some(tag),
    }
}

/// Returns whether the first part of a reference is a domain, not a part of the repository's path.
///
/// Upstream: `splitDockerDomain` of that module.
fn is_domain(first: &str) -> bool {
    first.contains(['.', ':']) || first == "localhost" || first.to_lowercase() != first
}

fn is_host_and_port(domain: &str) -> bool {
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    if let Some(rest) = domain.strip_prefix('[') {
        let Some((host, port)) = rest.split_once(']') else { return false };
        return host.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b':')
            && (port.is_empty() || port.strip_prefix(':').is_some_and(is_port));
    }
    let (host, port) = match domain.split_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (domain, None),
    };
    let is_label = |label: &str| {
        !label.is_empty()
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    host.split('.').all(is_label) && port.is_none_or(is_port)
}

/// Returns whether a part of a path consists of lower-case letters and digits, separated by `.`, `_`, `__` or
/// dashes.
fn is_component(part: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_separator =
        |text: &str| matches!(text, "." | "_" | "__") || text.bytes().all(|byte| byte == b'-');
    part.bytes().next().is_some_and(is_word)
        && part.bytes().last().is_some_and(is_word)
        && part
            .split(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
            .all(|text| text.is_empty() || is_separator(text))
}

fn is_tag(tag: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    tag.len() <= MAX_TAG
        && tag.bytes().next().is_some_and(is_word)
        && tag.bytes().all(|byte| is_word(byte) || matches!(byte, b'.' | b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_valid_references_without_a_digest_have_a_tag() {
        for (image, expected) in [
            ("a", Some("latest")),
            ("a/b__c.d--e", Some("latest")),
            ("localhost:5000/a:1.2-x", Some("1.2-x")),
            ("Example.com/a", Some("latest")),
            ("[::1]:80/a", Some("latest")),
            ("a:latest", Some("latest")),
            ("a@sha256:0", None),
            ("", None),
            ("-1", None),
            ("*", None),
            ("A", None),
            ("a:", None),
            ("a._b", None),
            ("a//b", None),
            ("example.com:x/a", None),
        ] {
            assert_eq!(tag(image), expected, "{image}");
        }
        assert_eq!(tag(&"0".repeat(64)), None, "an identifier");
        assert_eq!(tag(&"g".repeat(248)), None, "too long with the prefix of official images");
    }
}
