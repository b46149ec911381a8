//! Parser of the commands of shell scripts. It rejects unsupported syntax with a reason.

use std::sync::Arc;

use crate::syntax::{
    AndOrList, Assignment, Command, CommandKind, Connector, List, Pipeline, Redirect,
    RedirectTarget, Word,
};

/// Maximum length of a script in bytes.
const MAX_LENGTH: usize = 64 * 1024;
/// Maximum nesting of commands, quotes and expansions.
const MAX_DEPTH: usize = 64;

/// Message of a syntax error, or of an unsupported construct.
pub(crate) type ParseError = String;

/// Reserved words that end a list of commands.
const RESERVED: [&str; 8] = ["then", "else", "elif", "fi", "do", "done", "esac", "}"];

pub(crate) fn parse_script(text: &str) -> Result<List, ParseError> {
    Parser::new(text, 0)?.parse_all()
}

/// Returns whether further lines may complete an incomplete script.
pub(crate) fn is_incomplete(text: &str) -> bool {
    let is_joined = text.ends_with("\\\n");
    parse_script(text).err().map_or(is_joined, |message| {
        message.starts_with(AT_END)
            || message.ends_with(NOT_CLOSED)
            || message.ends_with(QUOTE_NOT_CLOSED)
    })
}

/// Start of the error for a script that ends too early.
const AT_END: &str = "at \"\":";
/// Ends of the errors for unclosed quotes and expansions.
pub(crate) const NOT_CLOSED: &str = "something is not closed";
pub(crate) const QUOTE_NOT_CLOSED: &str = "a quote is not closed";

/// Parser state. All characters with a syntactic meaning are ASCII, so a position next to one is a character
/// boundary.
pub(crate) struct Parser<'t> {
    pub(crate) text: &'t str,
    pub(crate) position: usize,
    pub(crate) depth: usize,
    /// End of a line with here-documents, and the position after their bodies.
    here_documents: Option<(usize, usize)>,
}

impl<'t> Parser<'t> {
    pub(crate) fn new(text: &'t str, depth: usize) -> Result<Self, ParseError> {
        if text.len() > MAX_LENGTH {
            return Err("the script is too long".into());
        }
        let parser = Self { text, position: 0, depth, here_documents: None };
        if depth > MAX_DEPTH { Err("nested too deeply".into()) } else { Ok(parser) }
    }

    pub(crate) fn parse_all(&mut self) -> Result<List, ParseError> {
        let list = self.list()?;
        if self.position < self.text.len() {
            return self.error("it does not fit there");
        }
        Ok(list)
    }

    pub(crate) fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.position).copied()
    }

    pub(crate) fn rest(&self) -> &'t str {
        &self.text[self.position..]
    }

    /// Advances past a token if it is next. Returns whether it is.
    pub(crate) fn consume(&mut self, token: &str) -> bool {
        let found = self.rest().starts_with(token);
        if found {
            self.position += token.len();
        }
        found
    }

    /// Returns an error with the rest of the line at this position.
    pub(crate) fn error<T>(&self, message: &str) -> Result<T, ParseError> {
        let near: String = self.rest().chars().take(20).collect();
        Err(format!("at {near:?}: {message}"))
    }

    /// Parses a nested construct with `read`, up to the maximum depth.
    pub(crate) fn nested<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, ParseError>,
    ) -> Result<T, ParseError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return self.error("nested too deeply");
        }
        let read = read(self);
        self.depth -= 1;
        read
    }

    /// Skips blanks, line continuations and comments.
    fn skip_blanks(&mut self) {
        loop {
            match self.peek() {
                Some(b' ' | b'\t' | b'\r') => self.position += 1,
                Some(b'\\') if self.rest().starts_with("\\\n") => self.position += 2,
                Some(b'#') => self.position += self.rest().find('\n').unwrap_or(self.rest().len()),
                _ => return,
            }
        }
    }

    /// Skips blanks and newlines.
    fn skip_blank_lines(&mut self) {
        self.skip_blanks();
        while self.consume_newline() {
            self.skip_blanks();
        }
    }

    /// Advances past a newline and the here-documents that follow it. Returns whether there is a newline.
    fn consume_newline(&mut self) -> bool {
        if self.peek() != Some(b'\n') {
            return false;
        }
        self.position = match self.here_documents.take() {
            Some((end, next)) if end == self.position => next,
            _ => self.position + 1,
        };
        true
    }

    /// Returns the unquoted text at this position, up to a character that ends a reserved word or a name.
    fn peek_word(&self) -> &'t str {
        let rest = self.rest();
        let end = rest.find(|c: char| " \t\r\n;&|<>()\"'$`\\".contains(c)).unwrap_or(rest.len());
        &rest[..end]
    }

    /// Advances past a reserved word, which must be next.
    fn expect(&mut self, word: &str) -> Result<(), ParseError> {
        self.skip_blank_lines();
        if self.peek_word() == word {
            self.position += word.len();
            return Ok(());
        }
        self.error(&format!("{word:?} was to follow"))
    }

    /// Parses commands up to the end of the text, a closing parenthesis, `;;`, or a reserved word that ends a
    /// construct.
    pub(crate) fn list(&mut self) -> Result<List, ParseError> {
        self.nested(|parser| {
            let mut list = Vec::new();
            loop {
                parser.skip_blank_lines();
                let is_at_end = matches!(parser.peek(), None | Some(b')'))
                    || parser.rest().starts_with(";;")
                    || RESERVED.contains(&parser.peek_word());
                if is_at_end {
                    return Ok(list);
                }
                list.push(parser.and_or_list()?);
            }
        })
    }

    fn and_or_list(&mut self) -> Result<AndOrList, ParseError> {
        let first = self.pipeline()?;
        let mut rest = Vec::new();
        loop {
            self.skip_blanks();
            let connector = if self.consume("&&") {
                Connector::And
            } else if self.consume("||") {
                Connector::Or
            } else {
                break;
            };
            self.skip_blank_lines();
            rest.push((connector, self.pipeline()?));
        }
        let background = self.peek() == Some(b'&');
        match self.peek() {
            Some(b'&') => self.position += 1,
            Some(b';') if !self.rest().starts_with(";;") => self.position += 1,
            Some(b';' | b')' | b'\n') | None => {}
            Some(_) => return self.error("it does not fit there"),
        }
        Ok(AndOrList { first, rest, background })
    }

    fn pipeline(&mut self) -> Result<Pipeline, ParseError> {
        let mut negated = false;
        while self.peek_word() == "!" {
            self.position += 1;
            self.skip_blanks();
            negated = !negated;
        }
        let mut stages = vec![self.command()?];
        loop {
            self.skip_blanks();
            if self.rest().starts_with("||") || !self.consume("|") {
                return Ok(Pipeline { negated, stages });
            }
            if self.peek() == Some(b'&') {
                return self.error("\"|&\" is not understood");
            }
            self.skip_blank_lines();
            stages.push(self.command()?);
        }
    }

    fn command(&mut self) -> Result<Command, ParseError> {
        let kind = self.nested(|parser| match parser.peek_word() {
            "if" => parser.if_command(),
            "while" => parser.loop_command(false),
            "until" => parser.loop_command(true),
            "for" => parser.for_command(),
            "case" => parser.case_command(),
            "{" => {
                parser.position += 1;
                let list = parser.list()?;
                parser.expect("}")?;
                Ok(CommandKind::Group(list))
            }
            "[[" => parser.double_brackets(),
            "function" | "select" | "coproc" | "time" => parser.error("it is not understood"),
            "" if parser.rest().starts_with("((") => parser.error("it is not understood"),
            "" if parser.consume("(") => {
                let list = parser.list()?;
                if !parser.consume(")") {
                    return parser.error("\")\" was to follow");
                }
                Ok(CommandKind::Subshell(list))
            }
            name => parser.function_or_nothing(name),
        })?;
        if matches!(kind, CommandKind::Function { .. }) {
            return Ok(Command { kind, redirects: Vec::new() });
        }
        let (mut assignments, mut words, mut redirects) = (Vec::new(), Vec::new(), Vec::new());
        let is_simple = matches!(&kind, CommandKind::Simple { .. });
        loop {
            self.skip_blanks();
            if let Some(redirect) = self.redirect()? {
                redirects.push(redirect);
            } else if matches!(self.peek(), None | Some(b'\n' | b';' | b'&' | b'|' | b')')) {
                break;
            } else if !is_simple || self.peek() == Some(b'(') {
                return self.error("it does not fit there");
            } else if let Some(assignment) = self.assignment(words.is_empty())? {
                assignments.push(assignment);
            } else {
                words.push(self.word()?);
            }
        }
        if is_simple && assignments.is_empty() && words.is_empty() && redirects.is_empty() {
            return self.error("a command was to follow");
        }
        let kind = if is_simple { CommandKind::Simple { assignments, words } } else { kind };
        Ok(Command { kind, redirects })
    }

    /// Parses `name() command`. Returns an empty simple command if the script has no function definition at this
    /// position.
    fn function_or_nothing(&mut self, name: &str) -> Result<CommandKind, ParseError> {
        let no_function = Ok(CommandKind::Simple { assignments: Vec::new(), words: Vec::new() });
        let after = self.text[self.position + name.len()..].trim_start_matches([' ', '\t']);
        if !is_name(name) || !after.starts_with('(') {
            return no_function;
        }
        self.position += name.len();
        self.skip_blanks();
        self.position += 1;
        self.skip_blanks();
        if !self.consume(")") {
            return self.error("\")\" was to follow");
        }
        self.skip_blank_lines();
        let body = Arc::new(self.command()?);
        Ok(CommandKind::Function { name: name.into(), body })
    }

    fn if_command(&mut self) -> Result<CommandKind, ParseError> {
        self.position += "if".len();
        let mut branches = Vec::new();
        loop {
            let condition = self.list()?;
            self.expect("then")?;
            branches.push((condition, self.list()?));
            self.skip_blank_lines();
            match self.peek_word() {
                "elif" => self.position += "elif".len(),
                "else" => {
                    self.position += "else".len();
                    let otherwise = self.list()?;
                    self.expect("fi")?;
                    return Ok(CommandKind::If { branches, otherwise });
                }
                _ => {
                    self.expect("fi")?;
                    return Ok(CommandKind::If { branches, otherwise: Vec::new() });
                }
            }
        }
    }

    fn loop_command(&mut self, until: bool) -> Result<CommandKind, ParseError> {
        // `until` has the same length.
        self.position += "while".len();
        let condition = self.list()?;
        Ok(CommandKind::Loop { until, condition, body: self.loop_body()? })
    }

    fn loop_body(&mut self) -> Result<List, ParseError> {
        self.expect("do")?;
        let body = self.list()?;
        self.expect("done")?;
        Ok(body)
    }

    fn for_command(&mut self) -> Result<CommandKind, ParseError> {
        self.position += "for".len();
        self.skip_blanks();
        let name = self.peek_word();
        if !is_name(name) {
            return self.error("a name was to follow");
        }
        self.position += name.len();
        self.skip_blank_lines();
        let mut over = None;
        if self.peek_word() == "in" {
            self.position += "in".len();
            let mut words = Vec::new();
            self.skip_blanks();
            while !matches!(
                self.peek(),
                None | Some(b'\n' | b';' | b'&' | b'|' | b'(' | b')' | b'<' | b'>')
            ) {
                words.push(self.word()?);
                self.skip_blanks();
            }
            over = Some(words);
        }
        self.skip_blanks();
        self.consume(";");
        Ok(CommandKind::For { name: name.into(), over, body: self.loop_body()? })
    }

    fn case_command(&mut self) -> Result<CommandKind, ParseError> {
        self.position += "case".len();
        self.skip_blanks();
        let word = self.word()?;
        self.expect("in")?;
        let mut arms = Vec::new();
        loop {
            self.skip_blank_lines();
            if self.peek_word() == "esac" {
                self.position += "esac".len();
                return Ok(CommandKind::Case { word, arms });
            }
            self.consume("(");
            let mut patterns = Vec::new();
            loop {
                self.skip_blanks();
                patterns.push(self.word()?);
                self.skip_blanks();
                if !self.consume("|") {
                    break;
                }
            }
            if !self.consume(")") {
                return self.error("\")\" was to follow");
            }
            arms.push((patterns, self.list()?));
            self.skip_blank_lines();
            if !self.consume(";;") && self.peek_word() != "esac" {
                return self.error("\";;\" was to follow");
            }
        }
    }

    /// Parses `[[ … ]]` into words. Each operator is a word.
    fn double_brackets(&mut self) -> Result<CommandKind, ParseError> {
        self.position += 2;
        let mut words = Vec::new();
        loop {
            self.skip_blank_lines();
            if self.peek_word() == "]]" {
                self.position += 2;
                return Ok(CommandKind::Test(words));
            }
            let operator = ["&&", "||", "(", ")", "<", ">"].into_iter().find(|op| self.consume(op));
            match operator {
                Some(operator) => words.push(Word::text(operator)),
                None => words.push(self.word()?),
            }
        }
    }

    fn assignment(&mut self, may_be_assignment: bool) -> Result<Option<Assignment>, ParseError> {
        let rest = self.rest();
        let end = rest.find(|c: char| c != '_' && !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        let append = after.starts_with("+=");
        if !may_be_assignment || !is_name(name) || !(append || after.starts_with('=')) {
            return Ok(None);
        }
        self.position += name.len() + 1 + usize::from(append);
        if self.peek() == Some(b'(') {
            return self.error("lists as values are not understood");
        }
        let value = match self.peek() {
            None | Some(b' ' | b'\t' | b'\r' | b'\n' | b';' | b'&' | b'|' | b')') => {
                Word::default()
            }
            Some(_) => self.word()?,
        };
        Ok(Some(Assignment { name: name.into(), append, value }))
    }

    fn redirect(&mut self) -> Result<Option<Redirect>, ParseError> {
        let rest = self.rest();
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (fd, after) = rest.split_at(digits);
        if after.starts_with("&>") && digits == 0 {
            return self.error("\"&>\" is not understood");
        }
        if !after.starts_with(['<', '>']) || digits > 1 {
            return Ok(None);
        }
        let is_input = after.starts_with('<');
        let fd = fd.parse().unwrap_or(u32::from(!is_input));
        self.position += digits;
        let operator = ["<<<", "<<-", "<<", "<&", "<>", "<(", ">>", ">&", ">|", ">(", "<", ">"]
            .into_iter()
            .find(|operator| self.consume(operator))
            .unwrap_or_default();
        self.skip_blanks();
        let to = match operator {
            ">" | ">|" => RedirectTarget::Write(self.word()?),
            ">>" => RedirectTarget::Append(self.word()?),
            "<" => RedirectTarget::Read(self.word()?),
            "<<" | "<<-" => RedirectTarget::Text(self.here_document(operator == "<<-")?),
            "<<<" => {
                let mut word = self.word()?;
                word.0.extend(Word::text("\n").quoted().0);
                RedirectTarget::Text(word)
            }
            ">&" | "<&" => {
                let word = self.word()?;
                match word.plain().and_then(|text| text.parse().ok()) {
                    Some(fd) => RedirectTarget::Duplicate(fd),
                    None => return self.error("that is not a supported stream"),
                }
            }
            _ => return self.error("it is not understood"),
        };
        Ok(Some(Redirect { fd, to }))
    }

    /// Returns the position of the newline that ends this line. A newline within quotation marks does not end it.
    fn line_end(&self) -> Option<usize> {
        let (mut quote, mut before) = (None, b' ');
        let mut bytes = self.rest().bytes().enumerate();
        while let Some((at, c)) = bytes.next() {
            match (quote, c) {
                (None, b'\n') => return Some(self.position + at),
                (None, b'#') if matches!(before, b' ' | b'\t' | b';') => {
                    let rest = &self.rest()[at..];
                    return rest.find('\n').map(|n| self.position + at + n);
                }
                (None | Some(b'"'), b'\\') => drop(bytes.next()),
                (None, b'"' | b'\'') => quote = Some(c),
                (Some(open), c) if open == c => quote = None,
                _ => {}
            }
            before = c;
        }
        None
    }

    /// Parses a here-document: its delimiter at this position, and the lines after this line up to the delimiter.
    fn here_document(&mut self, strip_tabs: bool) -> Result<Word, ParseError> {
        let delimiter = self.word()?;
        let quoted = delimiter.0.iter().any(|piece| piece.quoted);
        let Some(delimiter) = delimiter.literal() else {
            return self.error("that cannot end a text");
        };
        let line_end = self.line_end();
        let (end, start) = match (self.here_documents, line_end) {
            (Some(here), _) => here,
            (None, Some(end)) => (end, end + 1),
            (None, None) => return self.error("its text is missing"),
        };
        let (mut body, mut position) = (String::new(), start);
        for line in self.text[start.min(self.text.len())..].split_inclusive('\n') {
            position += line.len();
            let line = if strip_tabs { line.trim_start_matches('\t') } else { line };
            if line.trim_end_matches('\n') == delimiter {
                self.here_documents = Some((end, position));
                if quoted {
                    return Ok(Word::text(&body).quoted());
                }
                return Parser::new(&body, self.depth + 1)?.here_text();
            }
            body.push_str(line);
        }
        self.error("its text does not end")
    }
}

/// Returns whether `text` is a valid name of a variable or a function.
pub(crate) fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c == '_' || c.is_ascii_alphabetic())
        && text.chars().all(|c| c == '_' || c.is_ascii_alphanumeric())
}
