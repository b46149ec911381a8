//! Query-string form of label selectors.

use std::collections::BTreeSet;

use super::{Operator, Requirement, Selector, SelectorError};

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
            Token::End if requirements.is_empty() => break,
            Token::End => return Err(expected(Token::End, "identifier after ','")),
            other @ Token::Sign(_) => {
                return Err(expected(other, "!, identifier, or 'end of string'"));
            }
        }
        match parser.next() {
            Token::End => break,
            Token::Sign(",") => {}
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
            None => return Token::End,
            Some(_) if has_two_signs => 2,
            Some(first) if is_sign(first) => 1,
            Some(_) => self.rest.find(|c| is_sign(c) || is_space(c)).unwrap_or(self.rest.len()),
        };
        let starts_with_sign = self.rest.starts_with(is_sign);
        let (token, rest) = self.rest.split_at(length);
        self.rest = rest;
        if starts_with_sign { Token::Sign(token) } else { Token::Word(token) }
    }

    fn parse_requirement(&mut self) -> Result<Requirement, SelectorError> {
        let mut token = self.next();
        let is_negated = token == Token::Sign("!");
        if is_negated {
            token = self.next();
        }
        let Token::Word(key) = token else { return Err(expected(token, "identifier")) };
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
    fn parse_values(&mut self) -> Result<BTreeSet<&'a str>, SelectorError> {
        let open = self.next();
        if open != Token::Sign("(") {
            return Err(expected(open, "'('"));
        }
        let mut values = BTreeSet::new();
        loop {
            let token = self.next();
            let (value, separator) = match token {
                Token::Word(value) => (value, self.next()),
                Token::Sign("," | ")") => ("", token),
                other => return Err(expected(other, "',', ')' or identifier")),
            };
            values.insert(value);
            match separator {
                Token::Sign(",") => {}
                Token::Sign(")") => return Ok(values),
                other => return Err(expected(other, "',' or ')'")),
            }
        }
    }
}
