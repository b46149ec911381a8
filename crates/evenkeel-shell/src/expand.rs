//! Expansion of words: variables, `$(…)`, `$((…))`, quotes and field splitting.

use rand::Rng;

use crate::{
    arithmetic::{self, Variables},
    braces,
    interpreter::{Interpreter, MAX_LENGTH},
    pattern::Pattern,
    shell::{Flow, Halt, Shell, Variable, unsupported},
    syntax::{Modifier, Part, Piece, Word},
};

impl Interpreter<'_> {
    /// Expands words to fields. Each word yields any number of fields.
    pub(crate) fn expand_fields(
        &mut self,
        shell: &mut Shell,
        words: &[Word],
    ) -> Result<Vec<String>, Halt> {
        let mut fields = Vec::new();
        for word in words {
            let braces = word.plain().filter(|text| shell.bash && text.contains('{'));
            let Some(text) = braces else {
                self.split_fields(shell, word, &mut fields)?;
                continue;
            };
            let Some(words) = braces::expand(text) else {
                return unsupported("so many words in braces");
            };
            for word in words.into_iter().filter(|word| !word.is_empty()) {
                self.split_fields(shell, &Word::text(&word), &mut fields)?;
            }
        }
        Ok(fields)
    }

    /// Expands a word and appends its fields.
    fn split_fields(&mut self, shell: &mut Shell, word: &Word, fields: &mut Vec<String>) -> Flow {
        let mut current: Option<String> = None;
        for (n, piece) in word.0.iter().enumerate() {
            if let (true, Part::Variable { name, modifier: Modifier::None }) =
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
            let value = self.expand_piece(shell, piece)?;
            if piece.quoted {
                // Without arguments, quotes around only "$@" make no field.
                let is_empty_before_arguments = value.is_empty()
                    && matches!(word.0.get(n + 1),
                    Some(Piece { part: Part::Variable { name, .. }, .. }) if &**name == "@");
                if !is_empty_before_arguments {
                    current.get_or_insert_default().push_str(&value);
                }
                continue;
            }
            if has_glob(&value) {
                return unsupported("names of files by pattern");
            }
            if let Part::Text(_) = piece.part {
                if current.is_none() && value.starts_with('~') {
                    return unsupported("home folders");
                }
                current.get_or_insert_default().push_str(&value);
                continue;
            }
            let is_blank = |c: char| matches!(c, ' ' | '\t' | '\n');
            for (n, part) in value.split(is_blank).enumerate() {
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
    pub(crate) fn expand_string(&mut self, shell: &mut Shell, word: &Word) -> Result<String, Halt> {
        let mut all = String::new();
        for piece in &word.0 {
            all.push_str(&self.expand_piece(shell, piece)?);
            if all.len() > MAX_LENGTH {
                return unsupported("a value that is too long");
            }
        }
        Ok(all)
    }

    pub(crate) fn expand_pattern(
        &mut self,
        shell: &mut Shell,
        word: &Word,
    ) -> Result<Pattern, Halt> {
        let mut pattern = Pattern::default();
        for piece in &word.0 {
            let text = self.expand_piece(shell, piece)?;
            pattern.push(&text, piece.quoted);
        }
        Ok(pattern)
    }

    fn expand_piece(&mut self, shell: &mut Shell, piece: &Piece) -> Result<String, Halt> {
        self.step()?;
        match &piece.part {
            Part::Text(text) => Ok(text.clone()),
            Part::Variable { name, modifier } => self.expand_variable(shell, name, modifier),
            Part::CommandSubstitution(list) => {
                self.run_substitution(shell, |interpreter, child| interpreter.run_list(child, list))
            }
            Part::Arithmetic(word) => {
                let text = self.expand_string(shell, word)?;
                arithmetic::evaluate(&text, &mut ShellVariables { interpreter: self, shell })
                    .map(|value| value.to_string())
                    .or_else(unsupported)
            }
        }
    }

    /// Returns the output of a command substitution, without trailing newlines.
    pub(crate) fn run_substitution(
        &mut self,
        shell: &mut Shell,
        run: impl FnOnce(&mut Self, &mut Shell) -> Flow,
    ) -> Result<String, Halt> {
        let mut child = shell.fork();
        let stream = self.outputs.len();
        self.outputs.push(String::new());
        child.output = Some(stream);
        // In bash, command substitutions do not inherit `set -e`.
        child.errexit &= !shell.bash;
        let (end, status) = self.run_child(child, run)?;
        shell.now = end.ok_or(Halt::Forever)?;
        self.inner_status = Some(status);
        let text = self.outputs.drain(stream..).next().unwrap_or_default();
        Ok(text.trim_end_matches('\n').to_owned())
    }

    fn expand_variable(
        &mut self,
        shell: &mut Shell,
        name: &str,
        modifier: &Modifier,
    ) -> Result<String, Halt> {
        let value = self.value(shell, name)?;
        match modifier {
            Modifier::None | Modifier::Length | Modifier::Remove { .. }
                if value.is_none() && shell.nounset && !matches!(name, "@" | "*") =>
            {
                Err(Halt::Exit(if shell.bash { 127 } else { 2 }))
            }
            Modifier::None => Ok(value.unwrap_or_default()),
            Modifier::Length if matches!(name, "@" | "*") => Ok(shell.positional.len().to_string()),
            Modifier::Length => Ok(value.unwrap_or_default().chars().count().to_string()),
            Modifier::Default { operator, colon, word } => {
                let is_set = value.as_ref().is_some_and(|value| !(*colon && value.is_empty()));
                match (operator, is_set) {
                    ('+', true) => self.expand_string(shell, word),
                    ('+', false) => Ok(String::new()),
                    (_, true) => Ok(value.unwrap_or_default()),
                    ('?', false) => Err(Halt::Exit(if shell.bash { 127 } else { 2 })),
                    (operator, false) => {
                        let value = self.expand_string(shell, word)?;
                        if *operator == '=' {
                            shell.set(name, value.clone());
                        }
                        Ok(value)
                    }
                }
            }
            Modifier::Remove { suffix, longest, pattern } => {
                let pattern = self.expand_pattern(shell, pattern)?;
                let text: Vec<char> = value.unwrap_or_default().chars().collect();
                Ok(without_match(&text, &pattern, *suffix, *longest))
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
            "-" => return unsupported("the options as a value"),
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
                    return unsupported(format!("the value of {name}"));
                }
                None if self.exec.is_none()
                    && (self.has_unknown_variables || is_service_variable(name)) =>
                {
                    return unsupported(format!("whether {name} has a value"));
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
            Err(Halt::Unsupported(reason)) => Err(reason),
            Err(_) => Err(format!("variable {name} has no value")),
        }
    }

    fn set(&mut self, name: &str, value: i64) {
        self.shell.set(name, value.to_string());
    }
}

/// Process ID of the first background job.
const FIRST_JOB_PID: usize = 7;

/// Returns the process ID of a background job by its index.
pub(crate) fn pid(job: usize) -> String {
    (job + FIRST_JOB_PID).to_string()
}

/// Returns the index of the background job with this process ID.
pub(crate) fn job_with_pid(pid: &str) -> Option<usize> {
    pid.parse::<usize>().ok()?.checked_sub(FIRST_JOB_PID)
}

/// Returns whether the kubelet may set a variable of this name for a Service.
pub(crate) fn is_service_variable(name: &str) -> bool {
    name.ends_with("_SERVICE_HOST") || name.contains("_SERVICE_PORT") || name.ends_with("_PORT")
}

/// Returns whether the shell would expand `text` to file names.
fn has_glob(text: &str) -> bool {
    text.contains(['*', '?']) || text.find('[').is_some_and(|index| text[index..].contains(']'))
}

/// Returns `text` without the prefix or suffix that matches a pattern.
fn without_match(text: &[char], pattern: &Pattern, suffix: bool, longest: bool) -> String {
    // Only the first 1,024 lengths are tried, to bound the work on long values.
    let limit = text.len().min(1024);
    let candidate = |length: usize| {
        if suffix { &text[text.len() - length..] } else { &text[..length] }
    };
    let mut lengths: Box<dyn Iterator<Item = usize>> =
        if longest { Box::new((0..=limit).rev()) } else { Box::new(0..=limit) };
    let length = lengths.find(|length| pattern.matches(candidate(*length))).unwrap_or(0);
    let rest = if suffix { &text[..text.len() - length] } else { &text[length..] };
    rest.iter().collect()
}
