//! Names: which are allowed, and how they are generated.
//!
//! Upstream: `k8s.io/apimachinery/pkg/util/validation` and `k8s.io/apiserver/pkg/storage/names`.

/// Letters and digits of generated names: no vowels and none of `0 1 3`, so that no words come out.
pub const SAFE: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
/// How many characters are put after a `generateName`.
pub const SUFFIX: usize = 5;
/// How long the part before them may be; the rest is cut off.
pub const MAX_BASE: usize = 63 - SUFFIX;

/// Why a name is not allowed, in upstream's words, so that clients that match on them still do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidName(pub Box<str>);

/// `base` with five random characters, as the server makes it of a `generateName`. `random` gives numbers that are
/// evenly spread over all of `u32`.
pub fn generate(base: &str, mut random: impl FnMut() -> u32) -> String {
    let mut end = base.len().min(MAX_BASE);
    while !base.is_char_boundary(end) {
        end -= 1;
    }
    let mut name = String::with_capacity(end + SUFFIX);
    name.push_str(&base[..end]);
    for _ in 0..SUFFIX {
        let at = (u64::from(random()) * SAFE.len() as u64) >> 32;
        name.push(char::from(SAFE[at as usize]));
    }
    name
}

/// A DNS label (RFC 1123): at most 63 of `a-z 0-9 -`, beginning and ending with a letter or digit.
pub fn dns_label(name: &str) -> Result<(), InvalidName> {
    at_most(name, 63)?;
    if is_label(name, |b| b.is_ascii_lowercase() || b.is_ascii_digit()) {
        return Ok(());
    }
    let rule = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character";
    Err(rejected(rule, "[a-z0-9]([-a-z0-9]*[a-z0-9])?", &["my-name", "123-abc"]))
}

/// A DNS label that begins with a letter (RFC 1035), as names of services must be.
pub fn dns_1035_label(name: &str) -> Result<(), InvalidName> {
    at_most(name, 63)?;
    let first = name.as_bytes().first().is_some_and(u8::is_ascii_lowercase);
    if first && is_label(name, |b| b.is_ascii_lowercase() || b.is_ascii_digit()) {
        return Ok(());
    }
    let rule = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character";
    Err(rejected(rule, "[a-z]([-a-z0-9]*[a-z0-9])?", &["my-name", "abc-123"]))
}

/// A DNS subdomain (RFC 1123): labels with dots between, at most 253 characters.
pub fn dns_subdomain(name: &str) -> Result<(), InvalidName> {
    at_most(name, 253)?;
    if is_subdomain(name) {
        return Ok(());
    }
    let rule = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character";
    Err(rejected(
        rule,
        "[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*",
        &["example.com"],
    ))
}

/// A name that is a segment of a path: not `.` or `..`, without `/` and `%`.
pub fn path_segment(name: &str) -> Result<(), InvalidName> {
    match name {
        "." | ".." => Err(InvalidName(format!("may not be '{name}'").into())),
        _ if name.contains('/') => Err(InvalidName("may not contain '/'".into())),
        _ if name.contains('%') => Err(InvalidName("may not contain '%'".into())),
        _ => Ok(()),
    }
}

/// Whether a `generateName` would be allowed: its end may be anything a random suffix makes good.
pub fn prefix(
    base: &str,
    validate: impl FnOnce(&str) -> Result<(), InvalidName>,
) -> Result<(), InvalidName> {
    match base.strip_suffix('-') {
        Some(masked) => validate(&format!("{masked}a")),
        None => validate(base),
    }
}

/// A key of labels and annotations: a name of at most 63 characters, perhaps after a subdomain and `/`.
pub fn qualified(key: &str) -> Result<(), InvalidName> {
    let name = match key.split_once('/') {
        None => key,
        Some((_, rest)) if rest.contains('/') => {
            let rule = "a qualified name must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";
            let InvalidName(rule) = rejected(
                rule,
                "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]",
                &["MyName", "my.name", "123-abc"],
            );
            return Err(InvalidName(format!("{rule} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')").into()));
        }
        Some(("", _)) => return Err(InvalidName("prefix part must be non-empty".into())),
        Some((domain, name)) => {
            dns_subdomain(domain)
                .map_err(|InvalidName(why)| InvalidName(format!("prefix part {why}").into()))?;
            name
        }
    };
    if name.is_empty() {
        return Err(InvalidName("name part must be non-empty".into()));
    }
    if name.len() > 63 {
        return Err(InvalidName("name part must be no more than 63 bytes".into()));
    }
    if is_word(name) {
        return Ok(());
    }
    let rule = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";
    Err(rejected(
        rule,
        "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]",
        &["MyName", "my.name", "123-abc"],
    ))
}

/// A label's value: empty, or at most 63 characters of a word.
pub fn label_value(value: &str) -> Result<(), InvalidName> {
    at_most(value, 63)?;
    if value.is_empty() || is_word(value) {
        return Ok(());
    }
    let rule = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";
    Err(rejected(
        rule,
        "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?",
        &["MyValue", "my_value", "12345"],
    ))
}

fn at_most(name: &str, length: usize) -> Result<(), InvalidName> {
    if name.len() > length {
        return Err(InvalidName(format!("must be no more than {length} bytes").into()));
    }
    Ok(())
}

/// Inner characters may also be `-`; the ends must satisfy `end`.
fn is_label(name: &str, end: impl Fn(u8) -> bool) -> bool {
    let bytes = name.as_bytes();
    matches!((bytes.first(), bytes.last()), (Some(&a), Some(&z)) if end(a) && end(z))
        && bytes.iter().all(|&b| end(b) || b == b'-')
}

fn is_subdomain(name: &str) -> bool {
    name.split('.').all(|label| is_label(label, |b| b.is_ascii_lowercase() || b.is_ascii_digit()))
}

/// Letters and digits, and between them also `- _ .`.
fn is_word(name: &str) -> bool {
    let bytes = name.as_bytes();
    matches!((bytes.first(), bytes.last()), (Some(a), Some(z)) if a.is_ascii_alphanumeric() && z.is_ascii_alphanumeric())
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(b))
}

#[cold]
fn rejected(rule: &str, pattern: &str, examples: &[&str]) -> InvalidName {
    let examples: Vec<String> = examples.iter().map(|example| format!("'{example}'")).collect();
    let examples = examples.join(",  or ");
    InvalidName(
        format!("{rule} (e.g. {examples}, regex used for validation is '{pattern}')").into(),
    )
}
