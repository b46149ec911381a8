//! Limits of an expression before it is parsed: length and depth.
//!
//! Parser, checker and evaluator recurse at least once per operator of a chain such as `a.b.c` or `1 + 1 + 1`. The
//! parser's own limit counts only brackets.

/// Maximum length of an expression in characters. Upstream: cel-go's `expressionSizeCodePointLimit`.
const MAX_SIZE: usize = 100_000;

/// Maximum depth of an expression. Upstream: cel-go's `maxRecursionDepth`, which counts almost the same.
const MAX_DEPTH: usize = 250;

/// Maximum nesting of brackets and calls for the parser. It is lower than [`MAX_DEPTH`], because each level has several
/// nodes of the syntax tree, and macros have more.
pub(super) const MAX_NESTED: u16 = 48;

/// Checks that an expression is neither too long nor too deep; the error has cel-go's message.
pub(crate) fn check(source: &str) -> Result<(), String> {
    let size = source.chars().count();
    if size > MAX_SIZE {
        return Err(format!(
            "expression code point size exceeds limit: size: {size}, limit {MAX_SIZE}"
        ));
    }
    if Scan::new(source).is_deeper(MAX_DEPTH) {
        return Err(format!("expression recursion limit exceeded: {MAX_DEPTH}"));
    }
    Ok(())
}

/// Scanner that estimates the depth of an expression from its tokens.
///
/// Each open bracket has a chain of operators; the depth is the sum of the lengths of all open chains. An operand of
/// `&&` or `||` begins a new chain, because the parser balances these operators. So does an element after a comma.
struct Scan<'a> {
    rest: &'a [u8],
    /// Number of operators in the current chain of each open bracket; the first is that of the whole expression.
    chains: Vec<usize>,
    depth: usize,
}

impl<'a> Scan<'a> {
    fn new(source: &'a str) -> Self {
        Self { rest: source.as_bytes(), chains: vec![0], depth: 0 }
    }

    /// Scans the expression until its depth exceeds the limit. Returns whether it does.
    fn is_deeper(&mut self, limit: usize) -> bool {
        while let [byte, after @ ..] = self.rest {
            let is_raw = matches!(byte, b'r' | b'R');
            match byte {
                b'"' | b'\'' => self.rest = after_string(self.rest, false),
                b'r' | b'R' | b'b' | b'B' if matches!(after, [b'"' | b'\'', ..]) => {
                    self.rest = after_string(after, is_raw);
                }
                b'/' if after.starts_with(b"/") => self.rest = after_line(after),
                b'_' | b'a'..=b'z' | b'A'..=b'Z' => self.skip_identifier(),
                _ => {
                    self.count_operator(*byte, after.first().copied());
                    self.rest = &self.rest[1..];
                }
            }
            if self.depth > limit {
                return true;
            }
        }
        false
    }

    /// Updates the chains for a byte that belongs to no identifier or string. `next` is the byte after it.
    fn count_operator(&mut self, byte: u8, next: Option<u8>) {
        match (byte, next) {
            (b'(' | b'[' | b'{', _) => {
                self.extend_chain();
                self.chains.push(0);
            }
            (b')' | b']' | b'}', _) if self.chains.len() > 1 => {
                self.depth -= self.chains.pop().unwrap_or_default();
            }
            (b',', _) | (b'&', Some(b'&')) | (b'|', Some(b'|')) => self.begin_chain(),
            (b'.' | b'+' | b'-' | b'*' | b'/' | b'%' | b'<' | b'>' | b'=' | b'!' | b'?', _) => {
                self.extend_chain();
            }
            _ => {}
        }
    }

    /// Skips an identifier or a keyword. `in` counts as an operator.
    fn skip_identifier(&mut self) {
        let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        let length = self.rest.iter().take_while(|byte| is_part(byte)).count();
        if &self.rest[..length] == b"in" {
            self.extend_chain();
        }
        self.rest = &self.rest[length..];
    }

    /// Adds an operator to the current chain.
    fn extend_chain(&mut self) {
        self.depth += 1;
        if let Some(chain) = self.chains.last_mut() {
            *chain += 1;
        }
    }

    /// Begins a new chain in place of the current one.
    fn begin_chain(&mut self) {
        if let Some(chain) = self.chains.last_mut() {
            self.depth -= std::mem::take(chain);
        }
    }
}

/// Returns the rest of `text` after the string literal at its beginning. In a raw string, a backslash escapes nothing.
pub(super) fn after_string(text: &[u8], is_raw: bool) -> &[u8] {
    let Some(quote) = text.first() else { return text };
    let triple = [*quote; 3];
    let end: &[u8] = if text.starts_with(&triple) { &triple } else { &triple[..1] };
    let mut rest = &text[end.len()..];
    while !rest.is_empty() && !rest.starts_with(end) {
        let step = if rest[0] == b'\\' && !is_raw { 2 } else { 1 };
        rest = rest.get(step..).unwrap_or_default();
    }
    rest.get(end.len()..).unwrap_or_default()
}

/// Returns the rest of `text` from the end of its first line.
pub(super) fn after_line(text: &[u8]) -> &[u8] {
    let end = text.iter().position(|byte| *byte == b'\n').unwrap_or(text.len());
    &text[end..]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Program, Scope};

    const NESTED: usize = MAX_NESTED as usize;

    #[test]
    fn hostile_expressions_are_refused() {
        for source in [
            "a".to_owned() + &".b".repeat(40_000),
            "1".to_owned() + &" + 1".repeat(20_000),
            "1".to_owned() + &" in [1]".repeat(10_000),
            "a".to_owned() + &"[0]".repeat(30_000),
            "a".to_owned() + &" == a".repeat(15_000),
            "!".repeat(50_000) + "a",
            "-".repeat(50_000) + "1",
            "(".repeat(40_000) + "1" + &")".repeat(40_000),
            "[".repeat(40_000) + &"]".repeat(40_000),
            "{1:".repeat(20_000) + "1" + &"}".repeat(20_000),
            "a ? b : ".repeat(10_000) + "c",
            "a".to_owned() + &".map(x, x".repeat(5_000) + &")".repeat(5_000),
            "f(".repeat(20_000) + &")".repeat(20_000),
            "a".repeat(100_001),
            "'\\'' + \"".to_owned() + &".b".repeat(300) + "\" + a" + &".b".repeat(300),
        ] {
            let error = Program::parse(&source).expect_err("too much");
            assert!(error.contains("exceed"), "{}: {error}", &source[..20]);
        }
    }

    #[test]
    fn long_expressions_that_are_not_deep_are_read() {
        for source in [
            "a.b == 'x'".to_owned() + &" || a.b == 'x'".repeat(1_000),
            "a.b == 'x'".to_owned() + &" && a.b in ['x', 'y']".repeat(1_000),
            "[".to_owned() + &"a.b.c, ".repeat(2_000) + "1]",
            format!("'{}' == \"{}\"", "((((".repeat(1_000), "....".repeat(1_000)),
            format!("r'\\' + '''{}'''", "'(.".repeat(1_000)),
            "a".to_owned() + &" + a".repeat(200),
        ] {
            assert_eq!(check(&source), Ok(()), "{}", &source[..20]);
        }
    }

    /// The worker's stack suffices to parse, evaluate and drop every accepted expression.
    #[test]
    fn the_deepest_expressions_are_read() {
        let run = || {
            for source in [
                "a".to_owned() + &".b".repeat(250),
                "1".to_owned() + &" + 1".repeat(250),
                "a".to_owned() + &"[0]".repeat(250),
                "(".repeat(NESTED) + "1" + &")".repeat(NESTED),
                "[".repeat(NESTED) + &"]".repeat(NESTED),
                "[[1]]".to_owned() + &".map(x, x".repeat(NESTED) + &")".repeat(NESTED),
                "[1]".to_owned() + &".map(x, [x])".repeat(100),
                "true ? 1 : ".repeat(NESTED) + "2",
            ] {
                let program = Program::parse(&source).expect(&source);
                let _ = program.run(&Scope::default(), &mut { crate::PER_CALL_LIMIT });
                assert!(!program.uses("z"));
            }
            assert!(Program::parse(&("(".repeat(200) + "1" + &")".repeat(200))).is_err());
        };
        let thread = std::thread::Builder::new().stack_size(2 * 1024 * 1024);
        thread.spawn(run).expect("a thread").join().expect("parsed");
    }
}
