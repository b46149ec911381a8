//! Common commands of Jobs and probes whose outcome can be computed without executing them.

use std::time::Duration;

use crate::{
    builtins::failed,
    encoding,
    files::base_name,
    interpreter::Interpreter,
    shell::{Flow, Halt, Shell, unsupported},
};

/// Error message for a file or folder that does not exist.
pub(crate) const NO_SUCH_FILE: &str = "No such file or directory";

impl Interpreter<'_> {
    /// Runs a command that is not a builtin of the shell.
    pub(crate) fn run_tool(&mut self, shell: &mut Shell, name: &str, words: &[String]) -> Flow {
        match name {
            "sleep" => sleep(shell, words),
            "echo" => self.echo(shell, words),
            "printf" => self.printf(shell, words),
            "cat" => self.cat(shell, words),
            "tee" => self.tee(shell, words),
            "touch" => {
                for path in operands(words, "acm")? {
                    if self.exists(shell, path)? {
                        continue;
                    }
                    if !self.write(shell, path, String::new())? {
                        self.complain(shell, &format!("touch: {path}: {NO_SUCH_FILE}"))?;
                    }
                }
                Ok(())
            }
            "mkdir" => {
                let parents = has_option(words, 'p');
                for path in operands(words, "pv")? {
                    if !self.make_folder(shell, path, parents)? {
                        let reason =
                            if self.exists(shell, path)? { "File exists" } else { NO_SUCH_FILE };
                        let text = format!("mkdir: can't create directory '{path}': {reason}");
                        self.complain(shell, &text)?;
                    }
                }
                Ok(())
            }
            "rm" => self.rm(shell, words),
            "cp" | "mv" => self.copy(shell, name == "mv", words),
            "ls" => self.ls(shell, words),
            "chmod" | "chown" => {
                for path in operands(words, "Rvf")?.iter().skip(1) {
                    if !self.exists(shell, path)? {
                        shell.status = 1;
                    }
                }
                Ok(())
            }
            "sync" | "umask" | "ulimit" => Ok(()),
            "expr" => self.expr(shell, words),
            "seq" => self.seq(shell, words),
            "date" => self.date(shell, words),
            "hostname" if words.is_empty() => {
                let name = self.value(shell, "HOSTNAME")?.unwrap_or_default();
                self.print(shell, shell.output, &(name + "\n"))
            }
            "pwd" => {
                let folder = if shell.folder.is_empty() { "/" } else { &shell.folder };
                self.print(shell, shell.output, &format!("{folder}\n"))
            }
            "basename" | "dirname" => self.part_of_path(shell, name, words),
            "env" if words.is_empty() => self.printenv(shell, words),
            "printenv" => self.printenv(shell, words),
            "head" | "tail" => self.part_of_file(shell, name == "tail", words),
            "wc" => self.count(shell, words),
            "timeout" => self.timeout(shell, words),
            "tar" => self.tar(shell, words),
            "whoami" => self.print(shell, shell.output, "root\n"),
            "id" if words.is_empty() => {
                self.print(shell, shell.output, "uid=0(root) gid=0(root) groups=0(root)\n")
            }
            _ => self.command_not_found(shell, name),
        }
    }

    /// Handles an unknown command. In a command of a client, the command does not exist. In the container's process,
    /// its outcome is unknown.
    pub(crate) fn command_not_found(&mut self, shell: &mut Shell, name: &str) -> Flow {
        let Some(exec) = &mut self.exec else { return unsupported(format!("command {name}")) };
        shell.status = 127;
        if shell.name.is_empty() {
            exec.missing.get_or_insert_with(|| name.to_owned());
            return Ok(());
        }
        let text = format!("{}: {name}: not found\n", shell.name);
        self.print(shell, shell.errors, &text)
    }

    fn echo(&mut self, shell: &Shell, words: &[String]) -> Flow {
        let is_flag = |word: &&String| matches!(&***word, "-n" | "-e" | "-en" | "-ne");
        let flags: Vec<&String> = words.iter().take_while(is_flag).collect();
        let text = words[flags.len()..].join(" ");
        let text = if flags.iter().any(|flag| flag.contains('e')) { escapes(&text) } else { text };
        let end = if flags.iter().any(|flag| flag.contains('n')) { "" } else { "\n" };
        self.print(shell, shell.output, &(text + end))
    }

    fn printf(&mut self, shell: &Shell, words: &[String]) -> Flow {
        let [format, values @ ..] = words else { return unsupported("printf without a format") };
        let (format, mut values) = (escapes(format), values.iter());
        loop {
            let n_values = values.len();
            let mut text = String::new();
            let mut chars = format.chars();
            while let Some(c) = chars.next() {
                if c != '%' {
                    text.push(c);
                    continue;
                }
                match chars.next() {
                    Some('%') => text.push('%'),
                    Some('s') => text.push_str(values.next().map_or("", |value| value)),
                    Some('b') => text.push_str(&escapes(values.next().map_or("", |value| value))),
                    Some('d' | 'i') => {
                        let value = values.next().map_or("0", |value| value);
                        let Ok(value) = value.parse::<i64>() else {
                            return unsupported("a number in printf");
                        };
                        text.push_str(&value.to_string());
                    }
                    _ => return unsupported(format!("printf {format:?}")),
                }
            }
            self.step()?;
            self.print(shell, shell.output, &text)?;
            if values.len() == 0 || values.len() == n_values {
                return Ok(());
            }
        }
    }

    fn cat(&mut self, shell: &mut Shell, words: &[String]) -> Flow {
        let paths = operands(words, "u")?;
        if paths.is_empty() {
            let input = self.read_input(shell)?;
            return self.print(shell, shell.output, &input);
        }
        for path in paths {
            match self.read(shell, path)? {
                Some(text) => self.print(shell, shell.output, &text)?,
                None => {
                    self.complain(shell, &format!("cat: can't open '{path}': {NO_SUCH_FILE}"))?;
                }
            }
        }
        Ok(())
    }

    fn tee(&mut self, shell: &mut Shell, words: &[String]) -> Flow {
        let input = self.read_input(shell)?;
        for path in operands(words, "a")? {
            let before = if has_option(words, 'a') { self.read(shell, path)? } else { None };
            let content = before.as_deref().unwrap_or_default().to_owned() + &input;
            if !self.write(shell, path, content)? {
                shell.status = 1;
            }
        }
        self.print(shell, shell.output, &input)
    }

    fn rm(&mut self, shell: &mut Shell, words: &[String]) -> Flow {
        let is_forced = has_option(words, 'f');
        let is_recursive = has_option(words, 'r') || has_option(words, 'R');
        for path in operands(words, "rRfv")? {
            let is_folder = self.is_folder(shell, path)?;
            let exists = is_folder || self.read(shell, path)?.is_some();
            if exists && (is_recursive || !is_folder) {
                self.remove(shell, path)?;
            } else if exists {
                self.complain(shell, &format!("rm: '{path}' is a directory"))?;
            } else if !is_forced {
                self.complain(shell, &format!("rm: can't remove '{path}': {NO_SUCH_FILE}"))?;
            }
        }
        Ok(())
    }

    fn copy(&mut self, shell: &mut Shell, is_move: bool, words: &[String]) -> Flow {
        let paths = operands(words, "fpa")?;
        let [from, to] = &*paths else { return unsupported("copying several files") };
        if self.is_folder(shell, from)? {
            return unsupported("copying folders");
        }
        let tool = if is_move { "mv" } else { "cp" };
        let Some(text) = self.read(shell, from)? else {
            return self.complain(shell, &format!("{tool}: can't stat '{from}': {NO_SUCH_FILE}"));
        };
        let name = base_name(from);
        let to = if self.is_folder(shell, to)? { format!("{to}/{name}") } else { (*to).clone() };
        if self.is_same_file(shell, from, &to) {
            // busybox renames the file to its own name.
            return if is_move && !shell.bash { Ok(()) } else { failed(shell) };
        }
        if !self.write(shell, &to, text.to_string())? {
            return self.complain(shell, &format!("{tool}: can't create '{to}': {NO_SUCH_FILE}"));
        }
        if is_move { self.remove(shell, from) } else { Ok(()) }
    }

    fn ls(&mut self, shell: &mut Shell, words: &[String]) -> Flow {
        let paths = operands(words, "1aA")?;
        let working_folder = ".".to_owned();
        for path in if paths.is_empty() { vec![&working_folder] } else { paths } {
            if self.read(shell, path)?.is_some() {
                self.print(shell, shell.output, &format!("{path}\n"))?;
            } else if self.is_folder(shell, path)? {
                for name in self.folder_entries(shell, path)? {
                    self.print(shell, shell.output, &format!("{name}\n"))?;
                }
            } else {
                self.complain(shell, &format!("ls: {path}: {NO_SUCH_FILE}"))?;
            }
        }
        Ok(())
    }

    /// Prints an error, and sets the exit status to 1.
    pub(crate) fn complain(&mut self, shell: &mut Shell, message: &str) -> Flow {
        shell.status = 1;
        self.print(shell, shell.errors, &format!("{message}\n"))
    }

    fn expr(&mut self, shell: &mut Shell, words: &[String]) -> Flow {
        if words.is_empty() || words.len() > 40 {
            return unsupported("expr of so many words");
        }
        let mut position = 0;
        let value = evaluate_expr(words, &mut position, 0)?;
        if position < words.len() {
            return unsupported("expr that is not understood");
        }
        shell.status = i32::from(value.is_empty() || value == "0");
        self.print(shell, shell.output, &(value + "\n"))
    }

    fn seq(&mut self, shell: &Shell, words: &[String]) -> Flow {
        let numbers: Option<Vec<i64>> = words.iter().map(|word| word.parse().ok()).collect();
        let (first, step, last) = match numbers.as_deref() {
            Some([last]) => (1, 1, *last),
            Some([first, last]) => (*first, 1, *last),
            Some([first, step, last]) if *step != 0 => (*first, *step, *last),
            _ => return unsupported("seq that is not understood"),
        };
        let mut next = first;
        while if step > 0 { next <= last } else { next >= last } {
            self.step()?;
            self.print(shell, shell.output, &format!("{next}\n"))?;
            let Some(after) = next.checked_add(step) else { return Ok(()) };
            next = after;
        }
        Ok(())
    }

    fn date(&mut self, shell: &Shell, words: &[String]) -> Flow {
        self.draws += 1;
        let words: Vec<&String> = words.iter().filter(|word| *word != "-u").collect();
        let format = match &*words {
            [] => "%a %b %e %H:%M:%S UTC %Y",
            [format] if format.starts_with('+') => &format[1..],
            _ => return unsupported("date that is not understood"),
        };
        let text = jiff::fmt::strtime::format(format, self.time(shell));
        match text {
            Ok(text) => self.print(shell, shell.output, &(text + "\n")),
            Err(_) => unsupported("a form of date that is not understood"),
        }
    }

    fn part_of_path(&mut self, shell: &Shell, tool: &str, words: &[String]) -> Flow {
        let [path, suffix @ ..] = words else { return unsupported("a path was to follow") };
        let path = path.trim_end_matches('/');
        let (folder, name) = path.rsplit_once('/').unwrap_or((".", path));
        let part = match suffix {
            _ if tool == "dirname" => {
                if folder.is_empty() {
                    "/"
                } else {
                    folder
                }
            }
            [suffix] => name.strip_suffix(&**suffix).unwrap_or(name),
            _ => name,
        };
        self.print(shell, shell.output, &format!("{part}\n"))
    }

    fn printenv(&mut self, shell: &mut Shell, words: &[String]) -> Flow {
        match words {
            [name] => match shell.variables.get(name).filter(|variable| variable.exported) {
                Some(_) => {
                    let value = self.value(shell, name)?.unwrap_or_default();
                    self.print(shell, shell.output, &(value + "\n"))
                }
                None if self.has_unknown_variables && self.exec.is_none() => {
                    unsupported(format!("whether {name} has a value"))
                }
                None => failed(shell),
            },
            _ => {
                let names = shell.variables.iter().filter(|(_, variable)| variable.exported);
                let names: Vec<String> = names.map(|(name, _)| name.clone()).collect();
                for name in names {
                    let value = self.value(shell, &name)?.unwrap_or_default();
                    self.print(shell, shell.output, &format!("{name}={value}\n"))?;
                }
                Ok(())
            }
        }
    }

    /// Runs `head`, or `tail` if `is_tail` is true.
    fn part_of_file(&mut self, shell: &mut Shell, is_tail: bool, words: &[String]) -> Flow {
        if is_tail && words.iter().any(|word| matches!(&**word, "-f" | "-F")) {
            return Err(Halt::Forever);
        }
        let (count, paths) = match words {
            [n, count, paths @ ..] if n == "-n" => (count.as_str(), paths),
            [count, paths @ ..] if count.starts_with('-') => {
                (count.trim_start_matches("-n").trim_start_matches('-'), paths)
            }
            paths => ("10", paths),
        };
        // With a plus sign, the number is the line to start from.
        let (from_first, count) = match count.strip_prefix('+').filter(|_| is_tail) {
            Some(first) => (true, first),
            None => (false, count),
        };
        let Ok(count) = count.parse::<usize>() else { return unsupported("how many lines") };
        let text = match paths {
            [] => Some(self.read_input(shell)?),
            [path] => self.read(shell, path)?,
            _ => return unsupported("parts of several files"),
        };
        let Some(text) = text else {
            let (tool, path) = (if is_tail { "tail" } else { "head" }, paths.join(" "));
            return self.complain(shell, &format!("{tool}: {path}: {NO_SUCH_FILE}"));
        };
        let lines = text.split_inclusive('\n');
        let (skipped, count) = match (is_tail, from_first) {
            (true, true) => (count.saturating_sub(1), usize::MAX),
            (true, false) => (lines.clone().count().saturating_sub(count), count),
            (false, _) => (0, count),
        };
        let part: String = lines.skip(skipped).take(count).collect();
        self.print(shell, shell.output, &part)
    }

    /// Runs `wc` with one option.
    fn count(&mut self, shell: &mut Shell, words: &[String]) -> Flow {
        let text = match words {
            [_] => self.read_input(shell)?,
            _ => return unsupported("counting that is not understood"),
        };
        let count = match &*words[0] {
            "-l" => text.matches('\n').count(),
            "-w" => text.split_whitespace().count(),
            "-c" => encoding::bytes(&text).len(),
            _ => return unsupported("counting that is not understood"),
        };
        self.print(shell, shell.output, &format!("{count}\n"))
    }

    fn timeout(&mut self, shell: &mut Shell, words: &[String]) -> Flow {
        let [limit, words @ ..] = words else { return unsupported("timeout without a limit") };
        let (Some(limit), false) = (Self::duration(limit), words.is_empty()) else {
            return unsupported("timeout with options");
        };
        let until = shell.now.saturating_add(limit);
        let (n_writes, child) = (self.n_writes, shell.fork());
        let outer = self.deadline;
        self.deadline = Some(outer.map_or(until, |outer| outer.min(until)));
        let ended = self.run_child(child, |interpreter, child| interpreter.execute(child, words));
        self.deadline = outer;
        let (end, status) = match ended {
            // The child runs for longer than the interpreter follows it, so the limit ends it.
            Err(Halt::StepLimit) if self.resume_after_child() => (None, 0),
            ended => ended?,
        };
        match end.filter(|end| *end <= until) {
            Some(end) => (shell.now, shell.status) = (end, status),
            None => {
                // Drop the writes of the child after the limit.
                self.writes.retain(|own| own.serial < n_writes || own.write.after <= until);
                // The status is 143 from busybox, and 124 from coreutils, which images with bash have.
                (shell.now, shell.status) = (until, if shell.bash { 124 } else { 143 });
            }
        }
        Ok(())
    }
}

fn sleep(shell: &mut Shell, words: &[String]) -> Flow {
    if words.iter().any(|word| matches!(&**word, "infinity" | "inf")) {
        return Err(Halt::Forever);
    }
    let durations: Option<Vec<Duration>> =
        words.iter().map(|word| Interpreter::duration(word)).collect();
    match durations.filter(|durations| !durations.is_empty()) {
        Some(durations) => {
            let total = durations.into_iter().fold(Duration::ZERO, Duration::saturating_add);
            shell.now = shell.now.saturating_add(total);
            Ok(())
        }
        None => failed(shell),
    }
}

/// Returns the arguments that are not options. Fails for options other than `letters`.
fn operands<'w>(words: &'w [String], letters: &str) -> Result<Vec<&'w String>, Halt> {
    let mut paths = Vec::new();
    for (index, word) in words.iter().enumerate() {
        if word == "--" {
            paths.extend(&words[index + 1..]);
            break;
        }
        if !word.starts_with('-') || word == "-" {
            paths.push(word);
        } else if word[1..].chars().any(|letter| !letters.contains(letter)) {
            return unsupported(format!("option {word}"));
        }
    }
    Ok(paths)
}

/// Returns whether an option with this letter is given.
fn has_option(words: &[String], letter: char) -> bool {
    let options = words.iter().take_while(|word| *word != "--");
    options.into_iter().any(|word| word.starts_with('-') && word.contains(letter))
}

/// Replaces backslash escapes as `echo -e` and `printf` do.
fn escapes(text: &str) -> String {
    let (mut replaced, mut chars) = (String::new(), text.chars());
    while let Some(c) = chars.next() {
        match (c, if c == '\\' { chars.next() } else { None }) {
            ('\\', Some('n')) => replaced.push('\n'),
            ('\\', Some('t')) => replaced.push('\t'),
            ('\\', Some('r')) => replaced.push('\r'),
            ('\\', Some('\\')) => replaced.push('\\'),
            ('\\', Some(other)) => replaced.extend(['\\', other]),
            (c, _) => replaced.push(c),
        }
    }
    replaced
}

/// Operators of `expr` by precedence, lowest first.
const EXPR_PRECEDENCE_LEVELS: [&[&str]; 5] =
    [&["|"], &["&"], &["=", "==", "!=", "<", "<=", ">", ">="], &["+", "-"], &["*", "/", "%"]];

/// Evaluates the operators of a precedence level and all higher ones.
fn evaluate_expr(words: &[String], position: &mut usize, level: usize) -> Result<String, Halt> {
    let Some(operators) = EXPR_PRECEDENCE_LEVELS.get(level) else {
        return expr_operand(words, position);
    };
    let mut left = evaluate_expr(words, position, level + 1)?;
    while let Some(operator) = words.get(*position).filter(|word| operators.contains(&&***word)) {
        *position += 1;
        let right = evaluate_expr(words, position, level + 1)?;
        left = compute_expr(&left, operator, right)?;
    }
    Ok(left)
}

/// Evaluates a word, or an expression in parentheses.
fn expr_operand(words: &[String], position: &mut usize) -> Result<String, Halt> {
    let Some(word) = words.get(*position) else {
        return unsupported("expr that is not understood");
    };
    *position += 1;
    if word != "(" {
        let is_plain = !matches!(&**word, "length" | "substr" | "index" | "match" | ":" | ")");
        return if is_plain { Ok(word.clone()) } else { unsupported("expr on texts") };
    }
    let value = evaluate_expr(words, position, 0)?;
    if words.get(*position).is_none_or(|word| word != ")") {
        return unsupported("expr that is not understood");
    }
    *position += 1;
    Ok(value)
}

fn compute_expr(left: &str, operator: &str, right: String) -> Result<String, Halt> {
    let is_null = |text: &str| text.is_empty() || text == "0";
    let numbers = left.parse::<i64>().ok().zip(right.parse::<i64>().ok());
    let order = numbers.map_or_else(|| (*left).cmp(&*right), |(a, b)| a.cmp(&b));
    let truth = match operator {
        "|" => return Ok(if is_null(left) { right } else { left.to_owned() }),
        "&" => {
            return Ok(if is_null(left) || is_null(&right) { "0".into() } else { left.to_owned() });
        }
        "=" | "==" => order.is_eq(),
        "!=" => order.is_ne(),
        "<" => order.is_lt(),
        "<=" => order.is_le(),
        ">" => order.is_gt(),
        ">=" => order.is_ge(),
        _ => {
            let value = numbers.and_then(|(a, b)| match operator {
                "+" => a.checked_add(b),
                "-" => a.checked_sub(b),
                "*" => a.checked_mul(b),
                "/" => a.checked_div(b),
                _ => a.checked_rem(b),
            });
            return value.map_or_else(
                || unsupported("expr on a value that is not a number"),
                |n| Ok(n.to_string()),
            );
        }
    };
    Ok(i32::from(truth).to_string())
}
