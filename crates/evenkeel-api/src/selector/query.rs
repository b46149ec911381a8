//! Query-string form of label selectors.

use std::collections::BTreeSet;

use super::{Operator, Requirement, Selector, SelectorError, requirement};

/// Token of a selector in a query string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token<'a> {
    /// A key, a value or a keyword.
    Word(&'a str),
    /// An operator such as `!=`, a comma or a parenthesis.
    Sign(&'a str),
    /// The end of the query string.
    End,
}

impl<'a> Token<'a> {
    fn text(self) -> &'a str {
        match self {
            Token::Word(text) | Token::Sign(text) => text,
            Token::End => "",
        }
    }

    /// Returns the operator that the token represents after a key. `in` and `notin` are keywords only after a key.
    fn as_operator(self) -> Option<Operator> {
        Some(match self {
            Token::Sign("=") => Operator::Equals,
            Token::Sign("==") => Operator::DoubleEquals,
            Token::Sign("!=") => Operator::NotEquals,
            Token::Sign(">") => Operator::GreaterThan,
            Token::Sign("<") => Operator::LessThan,
            Token::Word("in") => Operator::In,
            Token::Word("notin") => Operator::NotIn,
            _ => return None,
        })
    }
}

/// Parses a query string. Of its tokens, NUL ends the string, as in upstream's lexer.
///
/// Upstream: `Parser.parse`.
pub(super) fn parse(text: &str) -> Result<Selector, SelectorError> {
    let mut parser = Parser { rest: text };
    let mut requirements = Vec::new();
    loop {
        match parser.peek() {
            Token::Word(_) | Token::Sign("!") => {
                let requirement = parser.parse_requirement();
                requirements.push(requirement.map_err(|error| {
                    SelectorError::new(format!("unable to parse requirement: {error}"))
                })?);
            }
            Token::End => break,
            other @ Token::Sign(_) => {
                return Err(expected(other, "!, identifier, or 'end of string'"));
            }
        }
        match parser.next() {
            Token::End => break,
            Token::Sign(",") => {
                let next = parser.peek();
                if !matches!(next, Token::Word(_) | Token::Sign("!")) {
                    return Err(expected(next, "identifier after ','"));
                }
            }
            other => return Err(expected(other, "',' or 'end of string'")),
        }
    }
    requirements.sort_by(|a, b| a.key.cmp(&b.key));
    Ok(Selector::all(requirements))
}

/// Returns the error for a token that the grammar does not allow here.
fn expected(found: Token<'_>, expected: &str) -> SelectorError {
    SelectorError::new(format!("found '{}', expected: {expected}", found.text()))
}

/// Parser of a selector in a query string.
struct Parser<'a> {
    rest: &'a str,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Token<'a> {
        Parser { rest: self.rest }.next()
    }

    fn next(&mut self) -> Token<'a> {
        let is_sign = |c: char| matches!(c, '=' | '!' | '(' | ')' | ',' | '>' | '<');
        let is_space = |c: char| matches!(c, ' ' | '\t' | '\r' | '\n');
        self.rest = self.rest.trim_start_matches(is_space);
        let has_two_signs = ["==", "!="].into_iter().any(|sign| self.rest.starts_with(sign));
        let length = match self.rest.chars().next() {
            None | Some('\0') => return Token::End,
            Some(_) if has_two_signs => 2,
            Some(first) if is_sign(first) => 1,
            Some(_) => {
                let ends = |c| is_sign(c) || is_space(c) || c == '\0';
                self.rest.find(ends).unwrap_or(self.rest.len())
            }
        };
        let starts_with_sign = self.rest.starts_with(is_sign);
        let (token, rest) = self.rest.split_at(length);
        if starts_with_sign {
            self.rest = rest;
            return Token::Sign(token);
        }
        self.rest = rest.strip_prefix('\0').unwrap_or(rest);
        Token::Word(token)
    }

    /// Upstream: `Parser.parseRequirement`.
    fn parse_requirement(&mut self) -> Result<Requirement, SelectorError> {
        let mut token = self.next();
        let is_negated = token == Token::Sign("!");
        if is_negated {
            token = self.next();
        }
        let Token::Word(key) = token else { return Err(expected(token, "identifier")) };
        requirement::check_key(key)?;
        if is_negated {
            return Requirement::new(key, Operator::DoesNotExist, Box::default());
        }
        if matches!(self.peek(), Token::End | Token::Sign(",")) {
            return Requirement::new(key, Operator::Exists, Box::default());
        }
        let token = self.next();
        let operator =
            token.as_operator().ok_or_else(|| expected(token, "in, notin, =, ==, !=, gt, lt"))?;
        let values = match operator {
            Operator::In | Operator::NotIn => self.parse_values()?,
            _ => [self.parse_exact_value()?].into_iter().collect(),
        };
        Requirement::new(key, operator, values.into_iter().map(Into::into).collect())
    }

    /// Parses a value. A missing value counts as the empty string.
    fn parse_exact_value(&mut self) -> Result<&'a str, SelectorError> {
        match self.peek() {
            Token::End | Token::Sign(",") => Ok(""),
            Token::Word(value) => {
                self.next();
                Ok(value)
            }
            other @ Token::Sign(_) => Err(expected(other, "identifier")),
        }
    }

    /// Parses values in parentheses, such as `(a,b)`. A missing value, as in `(a,)`, counts as the empty string.
    ///
    /// Upstream: `Parser.parseValues`, `Parser.parseIdentifiersList`.
    fn parse_values(&mut self) -> Result<BTreeSet<&'a str>, SelectorError> {
        let open = self.next();
        if open != Token::Sign("(") {
            return Err(SelectorError::new(format!("found '{}' expected: '('", open.text())));
        }
        let mut values = BTreeSet::new();
        match self.peek() {
            Token::Word(_) | Token::Sign(",") => {}
            Token::Sign(")") => {
                self.next();
                values.insert("");
                return Ok(values);
            }
            other => return Err(expected(other, "',', ')' or identifier")),
        }
        loop {
            match self.next() {
                Token::Word(value) => {
                    values.insert(value);
                    match self.peek() {
                        Token::Sign(",") => {}
                        Token::Sign(")") => break,
                        other => return Err(expected(other, "',' or ')'")),
                    }
                }
                Token::Sign(",") => {
                    let next = self.peek();
                    if values.is_empty() || matches!(next, Token::Sign(")" | ",")) {
                        values.insert("");
                    }
                    if next == Token::Sign(")") {
                        break;
                    }
                }
                other => return Err(expected(other, "',', or identifier")),
            }
        }
        self.next();
        Ok(values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_upstreams() {
        for (text, error) in [
            ("a,", "found '', expected: identifier after ','"),
            ("a,,b", "found ',', expected: identifier after ','"),
            (",", "found ',', expected: !, identifier, or 'end of string'"),
            (
                "a b",
                "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt",
            ),
            ("a in b", "unable to parse requirement: found 'b' expected: '('"),
            ("a notin", "unable to parse requirement: found '' expected: '('"),
            ("a in (", "unable to parse requirement: found '', expected: ',', ')' or identifier"),
            ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
            ("a in (b,", "unable to parse requirement: found '', expected: ',', or identifier"),
            ("a in (b,=)", "unable to parse requirement: found '=', expected: ',', or identifier"),
            ("a=(", "unable to parse requirement: found '(', expected: identifier"),
            ("!!a", "unable to parse requirement: found '!', expected: identifier"),
            ("a=b\0c", "found 'c', expected: ',' or 'end of string'"),
        ] {
            let found = parse(text).expect_err("invalid").to_string();
            assert_eq!(found, error, "{text}");
        }
        // An invalid key is reported before an invalid operator, and all values are.
        let error = |text| parse(text).expect_err("invalid").to_string();
        assert!(
            error("-a b")
                .starts_with("unable to parse requirement: <nil>: Invalid value: \"-a\": ")
        );
        let both = error("a in (-b,c,-d)");
        assert!(
            both.starts_with("unable to parse requirement: [values[0][a]: Invalid value: \"-b\": ")
        );
        assert!(both.contains(", values[1][a]: Invalid value: \"-d\": ") && both.ends_with(']'));
    }

    #[test]
    fn missing_values_count_as_empty() {
        for (text, same) in [
            ("a in ()", "a in (,)"),
            ("a in (,,)", "a in (,)"),
            ("a in (b,)", "a in (,b)"),
            ("a=\0", "a="),
        ] {
            assert_eq!(parse(text), parse(same), "{text}");
        }
    }
}
