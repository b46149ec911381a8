//! Expansion of words: variables, `$(…)`, `$((…))`, quotes and field splitting.

use rand::Rng;

use crate::{
    arithmetic::{self, Variables},
    braces,
    interpreter::{Interpreter, MAX_LENGTH},
    pattern::Pattern,
    shell::{Flow, Halt, Shell, Variable, unknown},
    syntax::{Modifier, Part, Piece, Word},
};

impl Interpreter<'_> {
    /// Expands words to fields. Each word yields any number of fields.
    pub(crate) fn fields(
        &mut self,
        shell: &mut Shell,
        words: &[Word],
    ) -> Result<Vec<String>, Halt> {
        let mut fields = Vec::new();
        for word in words {
            let braces = word.plain().filter(|text| shell.bash && text.contains('{'));
            let Some(text) = braces else {
                self.split(shell, word, &mut fields)?;
                continue;
            };
            let Some(words) = braces::expand(text) else {
                return unknown("so many words in braces");
            };
            for word in words.into_iter().filter(|word| !word.is_empty()) {
                self.split(shell, &Word::text(&word), &mut fields)?;
            }
        }
        Ok(fields)
    }

    fn split(&mut self, shell: &mut Shell, word: &Word, fields: &mut Vec<String>) -> Flow {
        let mut current: Option<String> = None;
        for (n, piece) in word.0.iter().enumerate() {
            if let (true, Part::Variable { name, with: Modifier::Itself }) =
                (piece.quoted, &piece.part)
                && &**name == "@"
            {
                // Each argument is a field. The first joins the text before "$@", the last the text after it.
                for (n, value) in shell.positional.clone().into_iter().enumerate() {
                    if n > 0 {
                        fields.extend(current.take());
                    }
                    current.get_or_insert_default().push_str(&value);
                }
                continue;
            }
            let value = self.piece(shell, piece)?;
            if piece.quoted {
                // Quotes around nothing but "$@" make no field if there are no arguments.
                let only_quotes = value.is_empty()
                    && matches!(word.0.get(n + 1),
                    Some(Piece { part: Part::Variable { name, .. }, .. }) if &**name == "@");
                if !only_quotes {
                    current.get_or_insert_default().push_str(&value);
                }
                continue;
            }
            if globs(&value) {
                return unknown("names of files by pattern");
            }
            if let Part::Text(_) = piece.part {
                if current.is_none() && value.starts_with('~') {
                    return unknown("home folders");
                }
                current.get_or_insert_default().push_str(&value);
                continue;
            }
            let blank = |c: char| matches!(c, ' ' | '\t' | '\n');
            for (n, part) in value.split(blank).enumerate() {
                if n > 0 {
                    fields.extend(current.take());
                }
                if !part.is_empty() {
                    current.get_or_insert_default().push_str(part);
                }
            }
        }
        fields.extend(current);
        Ok(())
    }

    /// Expands a word without splitting it into fields.
    pub(crate) fn string(&mut self, shell: &mut Shell, word: &Word) -> Result<String, Halt> {
        let mut all = String::new();
        for piece in &word.0 {
            all.push_str(&self.piece(shell, piece)?);
            if all.len() > MAX_LENGTH {
                return unknown("a value that is too long");
            }
        }
        Ok(all)
    }

    pub(crate) fn pattern(&mut self, shell: &mut Shell, word: &Word) -> Result<Pattern, Halt> {
        let mut pattern = Pattern::default();
        for piece in &word.0 {
            let text = self.piece(shell, piece)?;
            pattern.push(&text, piece.quoted);
        }
        Ok(pattern)
    }

    fn piece(&mut self, shell: &mut Shell, piece: &Piece) -> Result<String, Halt> {
        self.step()?;
        match &piece.part {
            Part::Text(text) => Ok(text.clone()),
            Part::Variable { name, with } => self.variable(shell, name, with),
            Part::Output(list) => {
                self.output_of(shell, |interpreter, child| interpreter.list(child, list))
            }
            Part::Arithmetic(word) => {
                let text = self.string(shell, word)?;
                arithmetic::evaluate(&text, &mut ShellVariables { interpreter: self, shell })
                    .map(|value| value.to_string())
                    .or_else(unknown)
            }
        }
    }

    /// Returns the output of a command substitution, without trailing newlines.
    pub(crate) fn output_of(
        &mut self,
        shell: &mut Shell,
        run: impl FnOnce(&mut Self, &mut Shell) -> Flow,
    ) -> Result<String, Halt> {
        let mut child = shell.fork();
        let stream = self.outputs.len();
        self.outputs.push(String::new());
        child.output = Some(stream);
        // bash does not pass `set -e` on to command substitutions.
        child.errexit &= !shell.bash;
        let (end, status) = self.child(child, run)?;
        shell.now = end.ok_or(Halt::Forever)?;
        self.inner_status = Some(status);
        let text = self.outputs.drain(stream..).next().unwrap_or_default();
        Ok(text.trim_end_matches('\n').to_owned())
    }

    fn variable(&mut self, shell: &mut Shell, name: &str, with: &Modifier) -> Result<String, Halt> {
        let value = self.value(shell, name)?;
        match with {
            Modifier::Itself | Modifier::Length | Modifier::Remove { .. }
                if value.is_none() && shell.nounset && !matches!(name, "@" | "*") =>
            {
                Err(Halt::Exit(if shell.bash { 127 } else { 2 }))
            }
            Modifier::Itself => Ok(value.unwrap_or_default()),
            Modifier::Length if matches!(name, "@" | "*") => Ok(shell.positional.len().to_string()),
            Modifier::Length => Ok(value.unwrap_or_default().chars().count().to_string()),
            Modifier::Default { how, colon, word } => {
                let present = value.as_ref().is_some_and(|value| !(*colon && value.is_empty()));
                match (how, present) {
                    ('+', true) => self.string(shell, word),
                    ('+', false) => Ok(String::new()),
                    (_, true) => Ok(value.unwrap_or_default()),
                    ('?', false) => Err(Halt::Exit(if shell.bash { 127 } else { 2 })),
                    (how, false) => {
                        let value = self.string(shell, word)?;
                        if *how == '=' {
                            shell.set(name, value.clone());
                        }
                        Ok(value)
                    }
                }
            }
            Modifier::Remove { suffix, longest, pattern } => {
                let pattern = self.pattern(shell, pattern)?;
                let text: Vec<char> = value.unwrap_or_default().chars().collect();
                Ok(without(&text, &pattern, *suffix, *longest))
            }
        }
    }

    /// Returns the value of a variable or of a special parameter, or `None` if it is unset. Fails if the value is
    /// unknown.
    pub(crate) fn value(&mut self, shell: &Shell, name: &str) -> Result<Option<String>, Halt> {
        Ok(Some(match name {
            "?" => shell.status.to_string(),
            "$" => "1".into(),
            "#" => shell.positional.len().to_string(),
            "@" | "*" => shell.positional.join(" "),
            "0" => shell.name.clone(),
            "!" => return Ok(shell.last_job.map(pid)),
            "-" => return unknown("the options as a value"),
            "RANDOM" => {
                self.draws += 1;
                self.random.random_range(0..32768).to_string()
            }
            "SECONDS" | "EPOCHSECONDS" if shell.bash => {
                self.draws += 1;
                let since = if name == "SECONDS" { self.context.start.as_second() } else { 0 };
                (self.time(shell).as_second() - since).to_string()
            }
            "PWD" if shell.folder.is_empty() => "/".into(),
            "PWD" => shell.folder.clone(),
            digits if digits.bytes().all(|c| c.is_ascii_digit()) => {
                let n: usize = digits.parse().unwrap_or(usize::MAX);
                return Ok(n.checked_sub(1).and_then(|n| shell.positional.get(n)).cloned());
            }
            name => match shell.variables.get(name) {
                Some(Variable { value: Some(value), .. }) => value.clone(),
                Some(Variable { value: None, .. }) if self.exec.is_none() => {
                    return unknown(format!("the value of {name}"));
                }
                None if self.exec.is_none() && (self.open || is_service_variable(name)) => {
                    return unknown(format!("whether {name} has a value"));
                }
                Some(Variable { value: None, .. }) | None => return Ok(None),
            },
        }))
    }
}

/// Variables of a shell, for an arithmetic expression.
struct ShellVariables<'r, 'a> {
    interpreter: &'r mut Interpreter<'a>,
    shell: &'r mut Shell,
}

impl Variables for ShellVariables<'_, '_> {
    fn get(&mut self, name: &str) -> Result<String, String> {
        match self.interpreter.value(self.shell, name) {
            Ok(value) => Ok(value.unwrap_or_default()),
            Err(Halt::Unknown(why)) => Err(why),
            Err(_) => Err(format!("variable {name} has no value")),
        }
    }

    fn set(&mut self, name: &str, value: i64) {
        self.shell.set(name, value.to_string());
    }
}

/// Returns the process ID of a background job.
pub(crate) fn pid(job: usize) -> String {
    (job + 7).to_string()
}

/// Returns the background job with this process ID.
pub(crate) fn job(pid: &str) -> Option<usize> {
    pid.parse::<usize>().ok()?.checked_sub(7)
}

/// Returns whether the kubelet may set a variable of this name for a Service.
pub(crate) fn is_service_variable(name: &str) -> bool {
    name.ends_with("_SERVICE_HOST") || name.contains("_SERVICE_PORT") || name.ends_with("_PORT")
}

/// Returns whether the shell would expand the text to file names.
fn globs(text: &str) -> bool {
    text.contains(['*', '?']) || text.find('[').is_some_and(|index| text[index..].contains(']'))
}

fn without(text: &[char], pattern: &Pattern, suffix: bool, longest: bool) -> String {
    // Only the first 1,024 lengths are tried, to bound the work on long values.
    let limit = text.len().min(1024);
    let cut = |length: usize| {
        if suffix { &text[text.len() - length..] } else { &text[..length] }
    };
    let mut lengths: Box<dyn Iterator<Item = usize>> =
        if longest { Box::new((0..=limit).rev()) } else { Box::new(0..=limit) };
    let length = lengths.find(|length| pattern.fits(cut(*length))).unwrap_or(0);
    let rest = if suffix { &text[..text.len() - length] } else { &text[length..] };
    rest.iter().collect()
}
