//! Parser of the words of shell scripts, with quotes and expansions.

use crate::{
    parse::{NOT_CLOSED, ParseError, Parser, QUOTE_NOT_CLOSED, is_name},
    syntax::{Modifier, Part, Piece, Word},
};

/// Delimiter that ends a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Delimiter {
    Blank,
    /// Closing quotation mark.
    Quote,
    /// `}`.
    Brace,
    /// `))`.
    Arithmetic,
    /// End of the text, in a here-document.
    End,
}

impl Delimiter {
    /// Returns whether quotation marks and backslashes are parsed as within double quotes.
    fn is_double_quoted(self) -> bool {
        !matches!(self, Self::Blank | Self::Brace)
    }
}

impl Word {
    pub(crate) fn text(text: &str) -> Self {
        Self(vec![Piece { quoted: false, part: Part::Text(text.to_owned()) }])
    }

    pub(crate) fn quoted(mut self) -> Self {
        for piece in &mut self.0 {
            piece.quoted = true;
        }
        self
    }

    /// Returns the text of the word, quoted or not, or `None` if it has an expansion.
    pub(crate) fn literal(&self) -> Option<String> {
        let texts = self.0.iter().map(|piece| match &piece.part {
            Part::Text(text) => Some(text.as_str()),
            _ => None,
        });
        texts.collect()
    }
}

impl Parser<'_> {
    /// Parses a word, which must not be empty.
    pub(crate) fn word(&mut self) -> Result<Word, ParseError> {
        let from = self.position;
        let word = self.pieces(Delimiter::Blank, false)?;
        if self.position == from { self.error("a word was to follow") } else { Ok(word) }
    }

    /// Parses the whole body of a here-document.
    pub(crate) fn here_text(&mut self) -> Result<Word, ParseError> {
        self.pieces(Delimiter::End, true)
    }

    fn pieces(&mut self, until: Delimiter, quoted: bool) -> Result<Word, ParseError> {
        self.nested(|parser| {
            let (mut pieces, mut text, mut open) = (Vec::new(), String::new(), 0_usize);
            while let Some(next) = parser.peek() {
                if parser.is_at_end(until, &mut open) {
                    flush(&mut pieces, &mut text, quoted);
                    return Ok(Word(pieces));
                }
                match next {
                    b'\\' => {
                        let escaped = parser.escape(until, &mut text);
                        if let Some(escaped) = escaped {
                            flush(&mut pieces, &mut text, quoted);
                            pieces.push(Piece { quoted: true, part: Part::Text(escaped) });
                        }
                    }
                    b'\'' if !until.is_double_quoted() => {
                        flush(&mut pieces, &mut text, quoted);
                        pieces.push(Piece {
                            quoted: true,
                            part: Part::Text(parser.single_quoted()?),
                        });
                    }
                    b'"' if !until.is_double_quoted() => {
                        flush(&mut pieces, &mut text, quoted);
                        parser.position += 1;
                        let inner = parser.pieces(Delimiter::Quote, true)?;
                        parser.position += 1;
                        // Empty quotes make an empty word.
                        pieces.push(Piece { quoted: true, part: Part::Text(String::new()) });
                        pieces.extend(inner.0);
                    }
                    b'$' => {
                        let part = parser.expansion(until)?;
                        match part {
                            Some(part) => {
                                flush(&mut pieces, &mut text, quoted);
                                pieces.push(Piece { quoted, part });
                            }
                            None => text.push('$'),
                        }
                    }
                    b'`' => {
                        flush(&mut pieces, &mut text, quoted);
                        pieces.push(Piece { quoted, part: parser.backquoted(until)? });
                    }
                    _ => {
                        let c = parser.rest().chars().next().unwrap_or_default();
                        text.push(c);
                        parser.position += c.len_utf8();
                    }
                }
            }
            flush(&mut pieces, &mut text, quoted);
            match until {
                Delimiter::Blank | Delimiter::End => Ok(Word(pieces)),
                _ => parser.error(NOT_CLOSED),
            }
        })
    }

    /// Returns whether the word ends at this position. In arithmetic, counts open parentheses in `open`.
    fn is_at_end(&self, until: Delimiter, open: &mut usize) -> bool {
        match (until, self.peek()) {
            (_, None) => true,
            (Delimiter::Blank, Some(next)) => b" \t\r\n;&|<>()".contains(&next),
            (Delimiter::Quote, Some(next)) => next == b'"',
            (Delimiter::Brace, Some(next)) => next == b'}',
            (Delimiter::Arithmetic, Some(b'(')) => {
                *open += 1;
                false
            }
            (Delimiter::Arithmetic, Some(b')')) => {
                let is_end = *open == 0;
                *open = open.saturating_sub(1);
                is_end
            }
            (Delimiter::Arithmetic | Delimiter::End, Some(_)) => false,
        }
    }

    /// Parses a backslash. Returns the next character if the backslash quotes it. Otherwise, appends both to
    /// `text`.
    fn escape(&mut self, until: Delimiter, text: &mut String) -> Option<String> {
        self.position += 1;
        let next = self.rest().chars().next();
        let Some(next) = next else {
            text.push('\\');
            return None;
        };
        self.position += next.len_utf8();
        if next == '\n' {
            return None;
        }
        let is_quoting = match until {
            Delimiter::Blank | Delimiter::Brace => true,
            Delimiter::Quote => "\"$`\\".contains(next),
            Delimiter::End | Delimiter::Arithmetic => "$`\\".contains(next),
        };
        if is_quoting {
            return Some(next.to_string());
        }
        text.push('\\');
        text.push(next);
        None
    }

    /// Parses a string in single quotes.
    fn single_quoted(&mut self) -> Result<String, ParseError> {
        let body = &self.rest()[1..];
        let Some(end) = body.find('\'') else { return self.error(QUOTE_NOT_CLOSED) };
        self.position += end + 2;
        Ok(body[..end].to_owned())
    }

    /// Parses a command substitution in backquotes.
    fn backquoted(&mut self, until: Delimiter) -> Result<Part, ParseError> {
        let (mut inner, mut chars) = (String::new(), self.rest().char_indices().skip(1));
        while let Some((at, c)) = chars.next() {
            match c {
                '`' => {
                    self.position += at + 1;
                    return Ok(Part::CommandSubstitution(
                        Parser::new(&inner, self.depth + 1)?.parse_all()?,
                    ));
                }
                '\\' => match chars.next() {
                    Some((_, next @ ('`' | '\\' | '$'))) => inner.push(next),
                    Some((_, '"')) if until.is_double_quoted() => inner.push('"'),
                    Some((_, next)) => inner.extend(['\\', next]),
                    None => break,
                },
                c => inner.push(c),
            }
        }
        self.error("a backquote is not closed")
    }

    /// Parses the expansion after a dollar sign. Returns `None` if the sign is literal.
    fn expansion(&mut self, until: Delimiter) -> Result<Option<Part>, ParseError> {
        self.position += 1;
        if self.consume("((") {
            let word = self.pieces(Delimiter::Arithmetic, true)?;
            if !self.consume("))") {
                return self.error("\"))\" was to follow");
            }
            return Ok(Some(Part::Arithmetic(word)));
        }
        if self.consume("(") {
            let list = self.list()?;
            if !self.consume(")") {
                return self.error("\")\" was to follow");
            }
            return Ok(Some(Part::CommandSubstitution(list)));
        }
        if self.consume("{") {
            return self.braced().map(Some);
        }
        let rest = self.rest();
        let end = match rest.chars().next() {
            Some(c) if c == '_' || c.is_ascii_alphabetic() => {
                rest.find(|c: char| c != '_' && !c.is_ascii_alphanumeric()).unwrap_or(rest.len())
            }
            Some(c) if c.is_ascii_digit() || "?#@*$!-".contains(c) => 1,
            Some('\'' | '"') if until == Delimiter::Blank => {
                return self.error("quotes after a dollar sign are not understood");
            }
            _ => return Ok(None),
        };
        self.position += end;
        Ok(Some(Part::Variable { name: rest[..end].into(), modifier: Modifier::None }))
    }

    /// Parses `${NAME…}` after the opening brace.
    fn braced(&mut self) -> Result<Part, ParseError> {
        let is_length = self.peek() == Some(b'#') && !self.rest().starts_with("#}");
        self.position += usize::from(is_length);
        let rest = self.rest();
        let end = match rest.chars().next() {
            Some(c) if "?#@*$!-".contains(c) => 1,
            _ => rest.find(|c: char| c != '_' && !c.is_ascii_alphanumeric()).unwrap_or(rest.len()),
        };
        let name = &rest[..end];
        let is_valid = is_name(name) || end == 1 || name.bytes().all(|c| c.is_ascii_digit());
        if name.is_empty() || !is_valid {
            return self.error("a name was to follow");
        }
        self.position += end;
        let modifier = if is_length { Modifier::Length } else { self.modifier()? };
        if !self.consume("}") {
            return self.error("what is made of the variable is not understood");
        }
        Ok(Part::Variable { name: name.into(), modifier })
    }

    /// Parses the operation after the name in `${NAME…}`.
    fn modifier(&mut self) -> Result<Modifier, ParseError> {
        let colon =
            self.rest().starts_with(":") && self.rest()[1..].starts_with(['-', '=', '?', '+']);
        self.position += usize::from(colon);
        match self.peek() {
            Some(operator @ (b'-' | b'=' | b'?' | b'+')) => {
                self.position += 1;
                let word = self.pieces(Delimiter::Brace, false)?;
                Ok(Modifier::Default { operator: char::from(operator), colon, word })
            }
            Some(operator @ (b'#' | b'%')) => {
                self.position += 1;
                let longest = self.peek() == Some(operator);
                self.position += usize::from(longest);
                let pattern = self.pieces(Delimiter::Brace, false)?;
                Ok(Modifier::Remove { suffix: operator == b'%', longest, pattern })
            }
            _ => Ok(Modifier::None),
        }
    }
}

/// Appends the collected text as a piece of the word.
fn flush(pieces: &mut Vec<Piece>, text: &mut String, quoted: bool) {
    if !text.is_empty() {
        pieces.push(Piece { quoted, part: Part::Text(std::mem::take(text)) });
    }
}
