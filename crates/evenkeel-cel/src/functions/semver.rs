//! Functions of semantic versions. Upstream: `cel/library/semverlib.go` and `github.com/blang/semver/v4`.

use std::cmp::Ordering;
use std::rc::Rc;

use evenkeel_api::quote::quote;

use super::Outcome;
use super::number::parse_u64;
use crate::value::Val;

/// A semantic version. Build metadata is dropped, because comparisons ignore it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Semver {
    /// Major, minor and patch number.
    numbers: [u64; 3],
    /// Identifiers of the pre-release part; empty for a release.
    prerelease: Vec<Identifier>,
}

/// Identifier of a pre-release part. A number is less than a word.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Identifier {
    Number(u64),
    Word(String),
}

impl Semver {
    fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("Version string empty".to_owned());
        }
        let mut parts = text.splitn(3, '.');
        let (Some(major), Some(minor), Some(rest)) = (parts.next(), parts.next(), parts.next())
        else {
            return Err("No Major.Minor.Patch elements found".to_owned());
        };
        let (major, minor) = (number("major", major)?, number("minor", minor)?);
        let (rest, build) = match rest.split_once('+') {
            Some((rest, build)) => (rest, Some(build)),
            None => (rest, None),
        };
        let (patch, prerelease) = match rest.split_once('-') {
            Some((patch, prerelease)) => (patch, Some(prerelease)),
            None => (rest, None),
        };
        let patch = number("patch", patch)?;
        let prerelease = match prerelease {
            Some(prerelease) => prerelease.split('.').map(identifier).collect::<Result<_, _>>()?,
            None => Vec::new(),
        };
        let version = Self { numbers: [major, minor, patch], prerelease };
        for part in build.into_iter().flat_map(|build| build.split('.')) {
            if part.is_empty() {
                return Err("Build meta data is empty".to_owned());
            }
            if !part.chars().all(is_identifier_char) {
                return Err(format!(
                    "Invalid character(s) found in build meta data {}",
                    quote(part)
                ));
            }
        }
        Ok(version)
    }
}

impl Ord for Semver {
    fn cmp(&self, other: &Self) -> Ordering {
        // A version is greater than its pre-releases.
        let is_release = |version: &Self| version.prerelease.is_empty();
        self.numbers
            .cmp(&other.numbers)
            .then_with(|| is_release(self).cmp(&is_release(other)))
            .then_with(|| self.prerelease.cmp(&other.prerelease))
    }
}

impl PartialOrd for Semver {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

fn is_identifier_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '-'
}

fn is_digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

fn has_leading_zeros(text: &str) -> bool {
    text.len() > 1 && text.starts_with('0')
}

/// Parses the major, minor or patch number. `name` is its name in errors.
fn number(name: &str, text: &str) -> Result<u64, String> {
    if !is_digits(text) {
        return Err(format!("Invalid character(s) found in {name} number {}", quote(text)));
    }
    if has_leading_zeros(text) {
        let mut name = name.to_owned();
        name[..1].make_ascii_uppercase();
        return Err(format!("{name} number must not contain leading zeroes {}", quote(text)));
    }
    parse_u64(text)
}

fn identifier(text: &str) -> Result<Identifier, String> {
    if text.is_empty() {
        return Err("Prerelease is empty".to_owned());
    }
    if is_digits(text) {
        if has_leading_zeros(text) {
            return Err(format!(
                "Numeric PreRelease version must not contain leading zeroes {}",
                quote(text)
            ));
        }
        return parse_u64(text).map(Identifier::Number);
    }
    if !text.chars().all(is_identifier_char) {
        return Err(format!("Invalid character(s) found in prerelease {}", quote(text)));
    }
    Ok(Identifier::Word(text.to_owned()))
}

/// Completes a version that begins with `v`, has leading zeros, or omits the minor or patch number.
///
/// Upstream: `normalizeAndParse`.
fn normalized(text: &str) -> Result<String, String> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let without_zeros = |part: &str| {
        if part.len() < 2 {
            return part.to_owned();
        }
        let part = part.trim_start_matches('0');
        let zero = if part.starts_with(|c: char| c.is_ascii_digit()) { "" } else { "0" };
        format!("{zero}{part}")
    };
    let mut parts: Vec<String> = text.splitn(3, '.').map(without_zeros).collect();
    if parts.len() < 3 {
        if parts.last().is_some_and(|last| last.contains(['+', '-'])) {
            return Err("short version cannot contain PreRelease/Build meta data".to_owned());
        }
        parts.resize(3, "0".to_owned());
    }
    Ok(parts.join("."))
}

/// Parses a semantic version; `lenient` also accepts versions that [`normalized`] completes.
pub(crate) fn semver<'a>(text: &str, lenient: bool) -> Outcome<'a> {
    let version = if lenient { Semver::parse(&normalized(text)?) } else { Semver::parse(text) }?;
    Ok(Val::Semver(Rc::new(version)))
}

pub(super) fn global<'a>(name: &str, args: &[Val<'a>]) -> Option<Outcome<'a>> {
    let (text, lenient) = match args {
        [Val::Str(text)] => (text, false),
        [Val::Str(text), Val::Bool(lenient)] => (text, *lenient),
        _ => return None,
    };
    match name {
        "semver" => Some(semver(text, lenient)),
        "isSemver" => Some(Ok(Val::Bool(semver(text, lenient).is_ok()))),
        _ => None,
    }
}

pub(super) fn member<'a>(name: &str, args: &[Val<'a>]) -> Option<Outcome<'a>> {
    let (version, other) = match args {
        [Val::Semver(version)] => (version, None),
        [Val::Semver(version), Val::Semver(other)] => (version, Some(other)),
        _ => return None,
    };
    // Upstream does not check for overflow, either.
    let number = |index: usize| Val::Int(version.numbers[index] as i64);
    Some(Ok(match (name, other) {
        ("major", None) => number(0),
        ("minor", None) => number(1),
        ("patch", None) => number(2),
        ("compareTo", Some(other)) => Val::Int(version.cmp(other) as i64),
        ("isGreaterThan", Some(other)) => Val::Bool(version.cmp(other).is_gt()),
        ("isLessThan", Some(other)) => Val::Bool(version.cmp(other).is_lt()),
        _ => return None,
    }))
}

#[cfg(test)]
mod tests {
    use crate::tests::assert_results;

    #[test]
    fn versions_are_ordered_by_numbers_and_identifiers() {
        assert_results(&[
            ("semver('1.2.3-alpha.10').isLessThan(semver('1.2.3-alpha.2'))", "false"),
            ("semver('1.2.3-alpha').compareTo(semver('1.2.3-1'))", "1"),
            ("semver('1.2.3-alpha.1').compareTo(semver('1.2.3-alpha'))", "1"),
            ("semver('1.2.3-alpha').compareTo(semver('1.2.3'))", "-1"),
            ("semver('1.2.3+a') == semver('1.2.3+b')", "true"),
            ("semver('v01.02.03', true).compareTo(semver('1.2.3'))", "0"),
            ("semver('1.2', true).patch()", "0"),
            ("semver('00', true).major()", "0"),
            ("semver('18446744073709551615.0.0').major()", "-1"),
            ("isSemver('1.2.3-') || isSemver('1.2.3 ') || isSemver('1.2.3-a..b')", "false"),
        ]);
    }

    #[test]
    fn errors_say_what_is_wrong() {
        assert_results(&[
            ("semver('')", "error: Version string empty"),
            ("semver('1.2')", "error: No Major.Minor.Patch elements found"),
            ("semver('..')", "error: strconv.ParseUint: parsing \"\": invalid syntax"),
            ("semver('v1.2.3')", "error: Invalid character(s) found in major number \"v1\""),
            ("semver('1.2.3.4')", "error: Invalid character(s) found in patch number \"3.4\""),
            ("semver('1.02.3')", "error: Minor number must not contain leading zeroes \"02\""),
            ("semver('1.2.3-')", "error: Prerelease is empty"),
            ("semver('1.2.3-é')", "error: Invalid character(s) found in prerelease \"é\""),
            (
                "semver('1.2.3-01')",
                "error: Numeric PreRelease version must not contain leading zeroes \"01\"",
            ),
            (
                "semver('1.2.3-99999999999999999999')",
                "error: strconv.ParseUint: parsing \"99999999999999999999\": value out of range",
            ),
            ("semver('1.2.3+')", "error: Build meta data is empty"),
            ("semver('1.2.3+a_b')", "error: Invalid character(s) found in build meta data \"a_b\""),
            (
                "semver('1-a', true)",
                "error: short version cannot contain PreRelease/Build meta data",
            ),
            (
                "semver('vv1.2.3', true)",
                "error: Invalid character(s) found in major number \"0v1\"",
            ),
            ("string(semver('1.2.3'))", "error: no such overload: string(kubernetes.Semver)"),
        ]);
    }
}
