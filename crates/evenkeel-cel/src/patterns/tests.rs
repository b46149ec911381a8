//! Tests of patterns: errors and matches.

use super::*;

#[test]
fn errors_are_those_of_go() {
    for (pattern, want) in [
        ("(", "missing closing ): `(`"),
        (")", "unexpected ): `)`"),
        ("*", "missing argument to repetition operator: `*`"),
        ("a**", "invalid nested repetition operator: `**`"),
        ("a{2,1}", "invalid repeat count: `{2,1}`"),
        ("a{1001}", "invalid repeat count: `{1001}`"),
        ("[a", "missing closing ]: `[a`"),
        ("[b-a]", "invalid character class range: `b-a`"),
        ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
        (r"\1", r"invalid escape sequence: `\1`"),
        (r"\Z", r"invalid escape sequence: `\Z`"),
        (r"\8", r"invalid escape sequence: `\8`"),
        (r"\xZZ", r"invalid escape sequence: `\xZZ`"),
        (r"\x{110000}", r"invalid escape sequence: `\x{110000`"),
        ("(?P<n", "invalid named capture: `(?P<n`"),
        ("[[:foo:]]", "invalid character class range: `[:foo:]`"),
        ("\\", "trailing backslash at end of expression: ``"),
    ] {
        assert_eq!(check(pattern), Err(format!("error parsing regexp: {want}")), "{pattern}");
    }
    for pattern in [
        "", "a*?", "a{,2}", "x{1,2}", r"[\d-z]", r"\Q(\E", "(?i)a|b", "(?P<n>a)", "[]a]", r"\pL\.",
        "{",
    ] {
        assert_eq!(check(pattern), Ok(()), "{pattern}");
    }
}

#[test]
fn patterns_match_as_in_go() {
    for (pattern, text, wanted) in [
        (r"^\d$", "1", true),
        (r"^\d$", "\u{663}", false),
        (r"^\D$", "\u{663}", true),
        (r"^\w$", "\u{e9}", false),
        (r"^[\W]$", "\u{e9}", true),
        (r"^\s$", "\u{a0}", false),
        (r"^\s$", "\u{b}", false),
        (r"\ba", "\u{e9}a", true),
        (r"\Ba", "\u{e9}a", false),
        ("^[[a]$", "[", true),
        ("^[a&&b]$", "&", true),
        ("^[a&&b]$", "a", true),
        ("^[+--]$", ",", true),
        ("^[~~]$", "~", true),
        (r"^[\x00-\x1f]$", "\u{5}", true),
        (r"^[\x00-\x1f]$", "-", false),
        (r"^[\d-z]$", "-", true),
        ("^[]a]$", "]", true),
        ("^[^[:digit:]]$", "\n", true),
        (r"^\07$", "\u{7}", true),
        (r"^\<\>$", "<>", true),
        (r"^\p{^Greek}$", "a", true),
        (r"^\P{^greek}$", "\u{3b1}", true),
        (r"^\pL\p{Lu}$", "aA", true),
        ("^a{,2}$", "a{,2}", true),
        ("^x{1, 2}$", "x{1, 2}", true),
        ("^(?P<1>a)(?ii)B$", "ab", true),
        ("^(?i:k)$", "\u{212a}", true),
        (r"^a\Q.*\E+\\Q$", r"a.**\Q", true),
        ("^#~& $", "#~& ", true),
        (r"^\x41\x{1F600}$", "A\u{1f600}", true),
        ("^(?P<n>a)(?P<n>b)$", "ab", true),
        ("a$", "a\n", false),
    ] {
        let regex = compile(pattern).expect(pattern);
        assert_eq!(regex.is_match(text), wanted, "{pattern} {text:?}");
    }
    for pattern in [r"\p{IsGreek}", r"\p{Alphabetic}", r"\p{sc=Greek}", r"[a-\d]"] {
        assert!(compile(pattern).is_err(), "{pattern}");
    }
}
