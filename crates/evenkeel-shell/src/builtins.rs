//! Builtins of the shell that change its own state or start commands.

use crate::{
    expand,
    interpreter::{Interpreter, Job},
    parse::is_name,
    shell::is_shell,
    shell::{Flow, Halt, Input, Shell, Variable, unsupported},
};

/// Maximum nesting of shells and commands. Beyond it, no further shell starts.
const MAX_SHELL_DEPTH: u32 = 50;

/// Folders that contain the usual commands in every image, so that `/bin/NAME` is the command `NAME`.
const COMMAND_FOLDERS: [&str; 6] =
    ["/bin", "/usr/bin", "/usr/local/bin", "/sbin", "/usr/sbin", "/busybox"];

impl Interpreter<'_> {
    /// Executes a simple command. The first of `words` is the name of the command.
    pub(crate) fn execute(&mut self, shell: &mut Shell, words: &[String]) -> Flow {
        self.step()?;
        let name = match words[0].rsplit_once('/') {
            Some((folder, name)) if COMMAND_FOLDERS.contains(&folder) => name,
            Some(_) => return self.command_not_found(shell, &words[0]),
            None => &words[0],
        };
        let arguments = &words[1..];
        let last_status = std::mem::replace(&mut shell.status, 0);
        match name {
            ":" | "true" => Ok(()),
            "false" => failed(shell),
            "exit" => Err(Halt::Exit(status(last_status, arguments))),
            "return" if shell.calls > 0 => {
                shell.status = status(last_status, arguments);
                Err(Halt::Return)
            }
            "break" | "continue" if shell.loops > 0 => {
                let all_loops = shell.loops;
                let count = arguments.first().map_or(Ok(1), |count| count.parse::<u32>());
                let count = count.map_or(all_loops, |count| count.clamp(1, all_loops));
                Err(if name == "break" { Halt::Break(count) } else { Halt::Continue(count) })
            }
            "cd" => self.change_folder(shell, arguments),
            "eval" => self.run_script(shell, &arguments.join(" ")),
            "exec" => self.replace_process(shell, arguments),
            "export" | "local" | "readonly" | "declare" | "typeset" => {
                self.declare(shell, name, arguments)
            }
            "set" => set(shell, arguments),
            "shift" => {
                let n = arguments.first().map_or(Ok(1), |n| n.parse::<usize>());
                match n {
                    Ok(n) if n <= shell.positional.len() => {
                        shell.positional.drain(..n);
                        Ok(())
                    }
                    _ => failed(shell),
                }
            }
            "trap" => trap(shell, arguments),
            "unset" => {
                unset(shell, arguments);
                Ok(())
            }
            "wait" => self.wait_for(shell, arguments),
            "kill" => self.kill(shell, arguments),
            "test" => self.test(shell, arguments),
            "[" => match arguments.split_last() {
                Some((last, words)) if last == "]" => self.test(shell, words),
                _ => unsupported("a bracket that is not closed"),
            },
            name if is_shell(name) => self.start_shell(shell, name, arguments),
            _ => self.run_tool(shell, name, arguments),
        }
    }

    /// Runs `sh` as a child process.
    fn start_shell(&mut self, shell: &mut Shell, name: &str, arguments: &[String]) -> Flow {
        let exported = shell.variables.iter().filter(|(_, variable)| variable.exported);
        let exported = exported.map(|(name, variable)| (name.clone(), variable.clone())).collect();
        let mut child = Shell::new(&shell.folder, exported);
        child.now = shell.now;
        (child.output, child.errors) = (shell.output, shell.errors);
        child.input = shell.input.clone();
        self.depth += 1;
        let flow = self.run_and_wait(shell, child, |interpreter, child| {
            interpreter.run_shell(child, name, arguments)
        });
        self.depth -= 1;
        flow
    }

    /// Runs `sh` with its command-line arguments.
    pub(crate) fn run_shell(
        &mut self,
        shell: &mut Shell,
        name: &str,
        arguments: &[String],
    ) -> Flow {
        if self.depth > MAX_SHELL_DEPTH {
            return unsupported("shells in shells too deep");
        }
        shell.bash = name == "bash";
        name.clone_into(&mut shell.name);
        let n_options = shell.apply_options(arguments)?;
        let (options, rest) = arguments.split_at(n_options);
        let has_command_string =
            options.iter().any(|word| word.starts_with('-') && word.contains('c'));
        match rest {
            [text, others @ ..] if has_command_string => {
                if let [name, positional @ ..] = others {
                    name.clone_into(&mut shell.name);
                    shell.positional = positional.to_vec();
                }
                self.run_script(shell, text)
            }
            [] if !has_command_string => {
                let text = self.read_input(shell)?;
                shell.input = Input::default();
                self.run_script(shell, &text)
            }
            [path, positional @ ..] if !has_command_string => match self.read(shell, path)? {
                Some(text) => {
                    path.clone_into(&mut shell.name);
                    shell.positional = positional.to_vec();
                    self.run_script(shell, &text)
                }
                None if self.exec.is_none() => unsupported("a script in a file"),
                None => {
                    shell.status = 2;
                    let what = format!("{name}: can't open '{path}'\n");
                    self.print(shell, shell.errors, &what)
                }
            },
            _ => unsupported("a shell without a script"),
        }
    }

    fn change_folder(&mut self, shell: &mut Shell, arguments: &[String]) -> Flow {
        let [path] = arguments else { return unsupported("the home folder") };
        if !self.is_folder(shell, path)? {
            return failed(shell);
        }
        shell.folder = super::files::normalize(&shell.folder, path);
        Ok(())
    }

    fn replace_process(&mut self, shell: &mut Shell, words: &[String]) -> Flow {
        if words.is_empty() || words[0].starts_with('-') {
            return unsupported("exec without a command");
        }
        shell.traps.clear();
        self.execute(shell, words)?;
        Err(Halt::Exit(shell.status))
    }

    fn declare(&mut self, shell: &mut Shell, builtin: &str, words: &[String]) -> Flow {
        for word in words {
            if word.starts_with('-') {
                return unsupported(format!("{builtin} {word}"));
            }
            let (name, value) = match word.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (word.as_str(), None),
            };
            if !is_name(name) {
                return unsupported(format!("the name {name}"));
            }
            if name == "IFS" && value.is_some() {
                return unsupported("changing IFS");
            }
            if builtin != "export" && builtin != "readonly" && shell.calls > 0 {
                shell.locals.push((name.to_owned(), shell.variables.get(name).cloned()));
                shell.variables.remove(name);
            }
            if let Some(value) = value {
                shell.set(name, value);
            }
            if builtin == "export" {
                let empty = Variable { value: Some(String::new()), exported: true };
                shell.variables.entry(name.to_owned()).or_insert(empty).exported = true;
            }
        }
        Ok(())
    }

    fn wait_for(&mut self, shell: &mut Shell, arguments: &[String]) -> Flow {
        if arguments.is_empty() {
            let all_jobs: Vec<usize> = (0..self.jobs.len()).collect();
            return self.wait_for_jobs(shell, &all_jobs);
        }
        let jobs: Option<Vec<usize>> =
            arguments.iter().map(|pid| expand::job_with_pid(pid)).collect();
        let Some(jobs) = jobs.filter(|jobs| jobs.iter().all(|job| *job < self.jobs.len())) else {
            shell.status = 127;
            return Ok(());
        };
        self.wait_for_jobs(shell, &jobs)?;
        if let (0, Some(Job { status, .. })) =
            (shell.status, jobs.last().and_then(|job| self.jobs.get(*job)))
        {
            shell.status = *status;
        }
        Ok(())
    }

    fn kill(&mut self, shell: &mut Shell, arguments: &[String]) -> Flow {
        let (signal, pids) = match arguments {
            [option, signal, pids @ ..] if option == "-s" => (&**signal, pids),
            [signal, pids @ ..] if signal.starts_with('-') => (&signal[1..], pids),
            pids => ("TERM", pids),
        };
        let code = match signal.strip_prefix("SIG").unwrap_or(signal) {
            "0" => 0,
            "HUP" | "1" => 1,
            "INT" | "2" => 2,
            "QUIT" | "3" => 3,
            "KILL" | "9" => 9,
            "TERM" | "15" => 15,
            other => return unsupported(format!("signal {other}")),
        };
        for pid in pids {
            let index = expand::job_with_pid(pid);
            let Some((index, job)) = index.and_then(|index| Some((index, self.jobs.get(index)?)))
            else {
                return unsupported(format!("killing {pid}"));
            };
            if job.end.is_some_and(|end| end <= shell.now) {
                shell.status = 1;
            } else if code != 0 {
                self.end_job(index, shell.now, 128 + code);
            }
        }
        Ok(())
    }
}

/// Sets the exit status to 1.
pub(crate) fn failed(shell: &mut Shell) -> Flow {
    shell.status = 1;
    Ok(())
}

/// Returns the argument of `exit` or `return` as an exit status; without an argument, the last status.
fn status(last: i32, arguments: &[String]) -> i32 {
    let Some(text) = arguments.first() else { return last };
    let status = text.trim().parse::<i64>();
    status.map_or(2, |status| i32::from(u8::try_from(status & 0xff).unwrap_or(0)))
}

fn unset(shell: &mut Shell, words: &[String]) {
    let (is_function_option, names) = match words {
        [option, names @ ..] if option == "-f" => (true, names),
        [option, names @ ..] if option == "-v" => (false, names),
        names => (false, names),
    };
    for name in names {
        // Without an option, bash removes the function if no variable has the name.
        let is_function = is_function_option
            || shell.bash && names.len() == words.len() && !shell.variables.contains_key(name);
        if is_function {
            shell.functions.remove(&**name);
        } else {
            shell.variables.remove(name);
        }
    }
}

fn set(shell: &mut Shell, words: &[String]) -> Flow {
    let n_options = shell.apply_options(words)?;
    let rest = &words[n_options..];
    match rest {
        [] => Ok(()),
        [dashes, positional @ ..] if dashes == "--" => {
            shell.positional = positional.to_vec();
            Ok(())
        }
        positional => {
            shell.positional = positional.to_vec();
            Ok(())
        }
    }
}

fn trap(shell: &mut Shell, words: &[String]) -> Flow {
    let words = if words.first().is_some_and(|word| word == "--") { &words[1..] } else { words };
    let [action, signals @ ..] = words else { return unsupported("trap without arguments") };
    if action.starts_with('-') && action.len() > 1 {
        return unsupported(format!("trap {action}"));
    }
    for signal in signals {
        let upper = signal.to_ascii_uppercase();
        let name = match upper.strip_prefix("SIG").unwrap_or(&upper) {
            "0" | "EXIT" => "EXIT",
            "15" | "TERM" => "TERM",
            "1" | "HUP" => "HUP",
            "2" | "INT" => "INT",
            "3" | "QUIT" => "QUIT",
            "USR1" | "USR2" | "ALRM" | "PIPE" | "CHLD" | "WINCH" => continue,
            other => return unsupported(format!("trap for {other}")),
        };
        if action == "-" {
            shell.traps.remove(name);
        } else {
            shell.traps.insert(name.into(), action.clone());
        }
    }
    Ok(())
}
