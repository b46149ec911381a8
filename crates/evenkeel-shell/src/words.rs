//! Parser of the words of shell scripts, with quotes and expansions.

use crate::{
    parse::{NOT_CLOSED, Parser, QUOTE_NOT_CLOSED, Refused, is_name},
    syntax::{Modifier, Part, Piece, Word},
};

/// Delimiter at which a word ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Until {
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

impl Until {
    /// Returns whether quotation marks and backslashes are parsed as within double quotes.
    fn quotes(self) -> bool {
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
    pub(crate) fn word(&mut self) -> Result<Word, Refused> {
        let from = self.position;
        let word = self.pieces(Until::Blank, false)?;
        if self.position == from { self.refuse("a word was to follow") } else { Ok(word) }
    }

    /// Parses the whole text of a here-document.
    pub(crate) fn here_text(&mut self) -> Result<Word, Refused> {
        self.pieces(Until::End, true)
    }

    fn pieces(&mut self, until: Until, quoted: bool) -> Result<Word, Refused> {
        self.deeper(|parser| {
            let (mut pieces, mut text, mut open) = (Vec::new(), String::new(), 0_usize);
            while let Some(next) = parser.peek() {
                if parser.ends(until, &mut open) {
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
                    b'\'' if !until.quotes() => {
                        flush(&mut pieces, &mut text, quoted);
                        pieces.push(Piece { quoted: true, part: Part::Text(parser.single()?) });
                    }
                    b'"' if !until.quotes() => {
                        flush(&mut pieces, &mut text, quoted);
                        parser.position += 1;
                        let inner = parser.pieces(Until::Quote, true)?;
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
                Until::Blank | Until::End => Ok(Word(pieces)),
                _ => parser.refuse(NOT_CLOSED),
            }
        })
    }

    /// Returns whether the word ends at this position. In arithmetic, counts open parentheses in `open`.
    fn ends(&self, until: Until, open: &mut usize) -> bool {
        match (until, self.peek()) {
            (_, None) => true,
            (Until::Blank, Some(next)) => b" \t\r\n;&|<>()".contains(&next),
            (Until::Quote, Some(next)) => next == b'"',
            (Until::Brace, Some(next)) => next == b'}',
            (Until::Arithmetic, Some(b'(')) => {
                *open += 1;
                false
            }
            (Until::Arithmetic, Some(b')')) => {
                let over = *open == 0;
                *open = open.saturating_sub(1);
                over
            }
            (Until::Arithmetic | Until::End, Some(_)) => false,
        }
    }

    /// Parses a backslash. Returns the next character if the backslash quotes it. Otherwise, appends both to
    /// `text`.
    fn escape(&mut self, until: Until, text: &mut String) -> Option<String> {
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
        let plain = match until {
            Until::Blank | Until::Brace => true,
            Until::Quote => "\"$`\\".contains(next),
            Until::End | Until::Arithmetic => "$`\\".contains(next),
        };
        if plain {
            return Some(next.to_string());
        }
        text.push('\\');
        text.push(next);
        None
    }

    fn single(&mut self) -> Result<String, Refused> {
        let body = &self.rest()[1..];
        let Some(end) = body.find('\'') else { return self.refuse(QUOTE_NOT_CLOSED) };
        self.position += end + 2;
        Ok(body[..end].to_owned())
    }

    fn backquoted(&mut self, until: Until) -> Result<Part, Refused> {
        let (mut inner, mut chars) = (String::new(), self.rest().char_indices().skip(1));
        while let Some((at, c)) = chars.next() {
            match c {
                '`' => {
                    self.position += at + 1;
                    return Ok(Part::Output(Parser::new(&inner, self.depth + 1)?.whole()?));
                }
                '\\' => match chars.next() {
                    Some((_, next @ ('`' | '\\' | '$'))) => inner.push(next),
                    Some((_, '"')) if until.quotes() => inner.push('"'),
                    Some((_, next)) => inner.extend(['\\', next]),
                    None => break,
                },
                c => inner.push(c),
            }
        }
        self.refuse("a backquote is not closed")
    }

    /// Parses the expansion after a dollar sign. Returns `None` if the sign is literal.
    fn expansion(&mut self, until: Until) -> Result<Option<Part>, Refused> {
        self.position += 1;
        if self.eat("((") {
            let word = self.pieces(Until::Arithmetic, true)?;
            if !self.eat("))") {
                return self.refuse("\"))\" was to follow");
            }
            return Ok(Some(Part::Arithmetic(word)));
        }
        if self.eat("(") {
            let list = self.list()?;
            if !self.eat(")") {
                return self.refuse("\")\" was to follow");
            }
            return Ok(Some(Part::Output(list)));
        }
        if self.eat("{") {
            return self.braced().map(Some);
        }
        let rest = self.rest();
        let end = match rest.chars().next() {
            Some(c) if c == '_' || c.is_ascii_alphabetic() => {
                rest.find(|c: char| c != '_' && !c.is_ascii_alphanumeric()).unwrap_or(rest.len())
            }
            Some(c) if c.is_ascii_digit() || "?#@*$!-".contains(c) => 1,
            Some('\'' | '"') if until == Until::Blank => {
                return self.refuse("quotes after a dollar sign are not understood");
            }
            _ => return Ok(None),
        };
        self.position += end;
        Ok(Some(Part::Variable { name: rest[..end].into(), with: Modifier::Itself }))
    }

    fn braced(&mut self) -> Result<Part, Refused> {
        let length = self.peek() == Some(b'#') && !self.rest().starts_with("#}");
        self.position += usize::from(length);
        let rest = self.rest();
        let end = match rest.chars().next() {
            Some(c) if "?#@*$!-".contains(c) => 1,
            _ => rest.find(|c: char| c != '_' && !c.is_ascii_alphanumeric()).unwrap_or(rest.len()),
        };
        let name = &rest[..end];
        let known = is_name(name) || end == 1 || name.bytes().all(|c| c.is_ascii_digit());
        if name.is_empty() || !known {
            return self.refuse("a name was to follow");
        }
        self.position += end;
        let with = if length { Modifier::Length } else { self.with()? };
        if !self.eat("}") {
            return self.refuse("what is made of the variable is not understood");
        }
        Ok(Part::Variable { name: name.into(), with })
    }

    fn with(&mut self) -> Result<Modifier, Refused> {
        let colon =
            self.rest().starts_with(":") && self.rest()[1..].starts_with(['-', '=', '?', '+']);
        self.position += usize::from(colon);
        match self.peek() {
            Some(how @ (b'-' | b'=' | b'?' | b'+')) => {
                self.position += 1;
                let word = self.pieces(Until::Brace, false)?;
                Ok(Modifier::Default { how: char::from(how), colon, word })
            }
            Some(how @ (b'#' | b'%')) => {
                self.position += 1;
                let longest = self.peek() == Some(how);
                self.position += usize::from(longest);
                let pattern = self.pieces(Until::Brace, false)?;
                Ok(Modifier::Remove { suffix: how == b'%', longest, pattern })
            }
            _ => Ok(Modifier::Itself),
        }
    }
}

fn flush(pieces: &mut Vec<Piece>, text: &mut String, quoted: bool) {
    if !text.is_empty() {
        pieces.push(Piece { quoted, part: Part::Text(std::mem::take(text)) });
    }
}
