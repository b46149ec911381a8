//! Compression dictionary of headers, which the SPDY/3 specification defines.

use std::sync::LazyLock;

/// Words of the dictionary. A four-byte length precedes each.
const WORDS: &[&str] = &[
    "options",
    "head",
    "post",
    "put",
    "delete",
    "trace",
    "accept",
    "accept-charset",
    "accept-encoding",
    "accept-language",
    "accept-ranges",
    "age",
    "allow",
    "authorization",
    "cache-control",
    "connection",
    "content-base",
    "content-encoding",
    "content-language",
    "content-length",
    "content-location",
    "content-md5",
    "content-range",
    "content-type",
    "date",
    "etag",
    "expect",
    "expires",
    "from",
    "host",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "last-modified",
    "location",
    "max-forwards",
    "pragma",
    "proxy-authenticate",
    "proxy-authorization",
    "range",
    "referer",
    "retry-after",
    "server",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
    "vary",
    "via",
    "warning",
    "www-authenticate",
    "method",
    "get",
    "status",
    "200 OK",
    "version",
    "HTTP/1.1",
    "url",
    "public",
    "set-cookie",
    "keep-alive",
    "origin",
];

/// Text after the words, in parts.
const TEXT: &[&str] = &[
    "1001012012022052063003023033043053063074024054064074084094104114124134144154164175025045",
    "05203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401",
    " Unauthorized403 Forbidden404 Not Found500 Internal Server Error501 Not Implemented503 S",
    "ervice UnavailableJan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, We",
    "d, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,application/xm",
    "l,application/xhtml+xml,text/plain,text/javascript,publicprivatemax-age=gzip,deflate,sdc",
    "hcharset=utf-8charset=iso-8859-1,utf-,*,enq=0.",
];

/// Bytes of the dictionary.
pub(super) static DICTIONARY: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut bytes = Vec::new();
    for word in WORDS {
        bytes.extend((word.len() as u32).to_be_bytes());
        bytes.extend(word.bytes());
    }
    bytes.extend(TEXT.iter().flat_map(|part| part.bytes()));
    bytes
});

#[cfg(test)]
mod tests {
    use flate2::{Compress, Compression};

    use super::*;

    #[test]
    fn it_is_the_dictionary_of_the_protocol() {
        assert_eq!(DICTIONARY.len(), 1423);
        // Streams of SPDY/3 name the dictionary by this checksum.
        let mut stream = Compress::new(Compression::fast(), true);
        assert_eq!(stream.set_dictionary(&DICTIONARY).expect("a dictionary"), 0xe3c6_a7c2);
    }
}
