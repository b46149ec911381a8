//! Rewriting of links in HTML pages.

use std::ops::Range;

use memchr::memmem;

/// Attributes that contain links, by element.
///
/// Upstream: `atomsToAttrs`.
const LINKS: [(&[u8], &[&[u8]]); 25] = [
    (b"a", &[b"href"]),
    (b"applet", &[b"codebase"]),
    (b"area", &[b"href"]),
    (b"audio", &[b"src"]),
    (b"base", &[b"href"]),
    (b"blockquote", &[b"cite"]),
    (b"body", &[b"background"]),
    (b"button", &[b"formaction"]),
    (b"command", &[b"icon"]),
    (b"del", &[b"cite"]),
    (b"embed", &[b"src"]),
    (b"form", &[b"action"]),
    (b"frame", &[b"longdesc", b"src"]),
    (b"head", &[b"profile"]),
    (b"html", &[b"manifest"]),
    (b"iframe", &[b"longdesc", b"src"]),
    (b"img", &[b"longdesc", b"src", b"usemap"]),
    (b"input", &[b"src", b"usemap", b"formaction"]),
    (b"ins", &[b"cite"]),
    (b"link", &[b"href"]),
    (b"object", &[b"classid", b"codebase", b"data", b"usemap"]),
    (b"q", &[b"cite"]),
    (b"script", &[b"src"]),
    (b"source", &[b"src"]),
    (b"video", &[b"poster", b"src"]),
];

/// Elements whose content is text, even if it contains tags.
const RAW_TEXT: [&[u8]; 9] = [
    b"iframe",
    b"noembed",
    b"noframes",
    b"noscript",
    b"script",
    b"style",
    b"textarea",
    b"title",
    b"xmp",
];

/// Rewrites the links of a page, and copies all other bytes. `link` returns the rewritten link, or `None` to keep the
/// link.
///
/// Upstream: `rewriteHTML`.
pub(super) fn rewrite(page: &[u8], link: &dyn Fn(&str) -> Option<String>) -> Vec<u8> {
    let mut out = Vec::with_capacity(page.len() + page.len() / 8);
    let mut rest = page;
    while let Some(at) = memchr::memchr(b'<', rest) {
        let (before, tag) = rest.split_at(at);
        out.extend_from_slice(before);
        let length = if tag.starts_with(b"<!--") {
            memmem::find(tag.get(4..).unwrap_or_default(), b"-->").map(|at| at + 7)
        } else if tag.get(1).is_some_and(u8::is_ascii_alphabetic) {
            start_tag(tag, link, &mut out)
        } else if tag.get(1).is_none_or(|byte| b"/!?".contains(byte)) {
            memchr::memchr(b'>', tag).map(|at| at + 1)
        } else {
            // This `<` is text.
            Some(1)
        };
        let Some(length) = length else {
            // The tag or comment has no end.
            out.extend_from_slice(tag);
            return out;
        };
        let (tag, after) = tag.split_at_checked(length).unwrap_or((tag, b""));
        rest = after;
        if tag.get(1).is_some_and(u8::is_ascii_alphabetic) {
            // `start_tag` has written the tag.
            let (text, after) = after.split_at(raw_text_length(name(tag), after));
            out.extend_from_slice(text);
            rest = after;
        } else {
            out.extend_from_slice(tag);
        }
    }
    out.extend_from_slice(rest);
    out
}

/// Returns the element's name in a start tag.
fn name(tag: &[u8]) -> &[u8] {
    let name = tag.get(1..).unwrap_or_default();
    let end = name.iter().position(|byte| is_space(*byte) || b"/>".contains(byte));
    name.get(..end.unwrap_or(name.len())).unwrap_or_default()
}

/// Returns the length of the text after the start tag of an element of [`RAW_TEXT`], and 0 for other elements.
fn raw_text_length(name: &[u8], after: &[u8]) -> usize {
    if !RAW_TEXT.iter().any(|raw| raw.eq_ignore_ascii_case(name)) {
        return 0;
    }
    let is_end = |at: &usize| {
        let end = after.get(at + 2..at + 2 + name.len());
        end.is_some_and(|end| end.eq_ignore_ascii_case(name))
    };
    memmem::find_iter(after, b"</").find(is_end).unwrap_or(after.len())
}

/// Writes a start tag with rewritten links, and returns the length of the original tag. If the tag has no end, writes
/// nothing and returns `None`.
fn start_tag(
    tag: &[u8],
    link: &dyn Fn(&str) -> Option<String>,
    out: &mut Vec<u8>,
) -> Option<usize> {
    let element = name(tag);
    let mut elements = LINKS.iter();
    let link_attributes = elements
        .find(|(known, _)| known.eq_ignore_ascii_case(element))
        .map_or(&[][..], |(_, attributes)| attributes);
    // `at` is the position in the tag. The bytes of the tag up to `written` are in `out`.
    let (mut at, mut written, start) = (1 + element.len(), 0, out.len());
    loop {
        let next = *tag.get(at).or_else(|| {
            out.truncate(start);
            None
        })?;
        if next == b'>' {
            out.extend_from_slice(tag.get(written..=at)?);
            return Some(at + 1);
        }
        if is_space(next) || next == b'/' {
            at += 1;
            continue;
        }
        let Some(Attribute { name, value, end }) = attribute(tag, at) else {
            out.truncate(start);
            return None;
        };
        at = end;
        let is_link = link_attributes.iter().any(|known| known.eq_ignore_ascii_case(name));
        if is_link
            && let Some(AttributeValue { range, text }) = value
            && let Ok(text) = std::str::from_utf8(text)
            && let Some(rewritten) = link(decode(text).trim())
        {
            out.extend_from_slice(tag.get(written..range.start)?);
            out.push(b'"');
            out.extend_from_slice(encode(&rewritten).as_bytes());
            out.push(b'"');
            written = range.end;
        }
    }
}

/// Attribute in a start tag.
struct Attribute<'a> {
    name: &'a [u8],
    value: Option<AttributeValue<'a>>,
    /// Position in the tag after the attribute.
    end: usize,
}

/// Value of an attribute in a tag.
struct AttributeValue<'a> {
    /// Range of the value in the tag, with its quotes.
    range: Range<usize>,
    /// Value without quotes.
    text: &'a [u8],
}

/// Parses the attribute that begins at a position. Returns `None` if it has no end.
fn attribute(tag: &[u8], start: usize) -> Option<Attribute<'_>> {
    let find = |from: usize, matches: &dyn Fn(u8) -> bool| {
        Some(from + tag.get(from..)?.iter().position(|byte| matches(*byte))?)
    };
    // A name may begin with an equals sign.
    let end = find(start + 1, &|byte| is_space(byte) || b"/>=".contains(&byte))?;
    let name = tag.get(start..end)?;
    let equals = find(end, &|byte| !is_space(byte))?;
    if tag.get(equals) != Some(&b'=') {
        return Some(Attribute { name, value: None, end });
    }
    let from = find(equals + 1, &|byte| !is_space(byte))?;
    let (text, to) = match tag.get(from)? {
        quote @ (b'"' | b'\'') => {
            let end = find(from + 1, &|byte| byte == *quote)?;
            (tag.get(from + 1..end)?, end + 1)
        }
        b'>' => (&b""[..], from),
        _ => {
            let end = find(from, &|byte| is_space(byte) || byte == b'>')?;
            (tag.get(from..end)?, end)
        }
    };
    Some(Attribute { name, value: Some(AttributeValue { range: from..to, text }), end: to })
}

fn is_space(byte: u8) -> bool {
    b" \t\r\n\x0c".contains(&byte)
}

/// Character references that are decoded in links, with their characters.
const REFERENCES: [(&str, &str); 6] = [
    ("&lt;", "<"),
    ("&gt;", ">"),
    ("&quot;", "\""),
    ("&#34;", "\""),
    ("&#39;", "'"),
    ("&amp;", "&"),
];

fn decode(text: &str) -> String {
    REFERENCES.iter().fold(text.to_owned(), |text, (reference, c)| text.replace(reference, c))
}

fn encode(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('"', "&#34;");
    text.replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rewritten(page: &str) -> String {
        let link = |link: &str| link.starts_with('/').then(|| format!("/p{link}"));
        String::from_utf8(rewrite(page.as_bytes(), &link)).expect("text")
    }

    #[test]
    fn links_are_rewritten_and_all_else_stays() {
        for (page, expected) in [
            ("plain", "plain"),
            ("<a href=\"/a\">", "<a href=\"/p/a\">"),
            (
                "<A  HREF = '/a?b=1&amp;c'  class=x>t</A>",
                "<A  HREF = \"/p/a?b=1&amp;c\"  class=x>t</A>",
            ),
            ("<a href=/a>", "<a href=\"/p/a\">"),
            ("<a href=/a/>", "<a href=\"/p/a/\">"),
            ("<a href=\"b\"><a href='http://x/'>", "<a href=\"b\"><a href='http://x/'>"),
            ("<a src=\"/a\" href=\"/b\">", "<a src=\"/a\" href=\"/p/b\">"),
            (
                "<img src=\"/a\"/><video poster='/b' src='/c'>",
                "<img src=\"/p/a\"/><video poster=\"/p/b\" src=\"/p/c\">",
            ),
            ("<p href=\"/a\">", "<p href=\"/a\">"),
            (
                "<!-- <a href=\"/a\"> --><a href=\"/b\">",
                "<!-- <a href=\"/a\"> --><a href=\"/p/b\">",
            ),
            (
                "<script src=\"/s\">\"<a href='/a'>\"</script><a href=/b>",
                "<script src=\"/p/s\">\"<a href='/a'>\"</script><a href=\"/p/b\">",
            ),
            ("<!DOCTYPE html><a href='/a\"<>'>", "<!DOCTYPE html><a href=\"/p/a&#34;&lt;&gt;\">"),
            ("1 < 2 <a href=\"/a\">", "1 < 2 <a href=\"/p/a\">"),
            ("<a href=\"/a", "<a href=\"/a"),
            ("<a href=\"/a\" ", "<a href=\"/a\" "),
            ("<!-- <a href=\"/a\">", "<!-- <a href=\"/a\">"),
            ("<style><a href=\"/a\">", "<style><a href=\"/a\">"),
            ("<", "<"),
        ] {
            assert_eq!(rewritten(page), expected);
        }
    }

    proptest! {
        #[test]
        fn a_page_without_links_stays(page in "[<>/='\" a-cA-C!&;-]{0,60}") {
            prop_assert_eq!(rewrite(page.as_bytes(), &|_| None), page.as_bytes());
        }
    }
}
