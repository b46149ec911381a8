//! `tar` with the options that `kubectl cp` uses: archives on standard output and input.

use std::io::Read as _;

use evenkeel_api::time::Timestamp;
use tar::{Archive, Builder, EntryType, Header};

use crate::{
    encoding,
    files::normalize,
    interpreter::{Interpreter, MAX_COMMAND_FILE},
    shell::{Flow, Halt, Shell, unsupported},
    tools::NO_SUCH_FILE,
};

/// Maximum nesting of folders in an archive.
const MAX_DEPTH: usize = 32;

/// Parsed command line of `tar`.
#[derive(Debug, Default, PartialEq, Eq)]
struct Options {
    create: bool,
    extract: bool,
    /// File of the archive. Only `-` is supported: standard output or input.
    file: String,
    /// Folder to work in.
    folder: String,
    paths: Vec<String>,
}

impl Options {
    fn parse(words: &[String]) -> Option<Self> {
        let mut options = Self::default();
        let mut words = words.iter();
        let first = words.next()?;
        let mut letters = Some(first.strip_prefix('-').unwrap_or(first));
        let mut is_long = first.starts_with("--");
        loop {
            if let Some(word) = letters.filter(|_| !is_long) {
                for letter in word.chars() {
                    match letter {
                        'c' => options.create = true,
                        'x' => options.extract = true,
                        'f' => words.next()?.clone_into(&mut options.file),
                        'C' => words.next()?.clone_into(&mut options.folder),
                        // Accepted without effect: files have no times, modes and owners, and no names are printed.
                        'm' | 'o' | 'p' | 'v' => {}
                        _ => return None,
                    }
                }
            }
            let Some(word) = words.next() else { break };
            is_long = word.starts_with("--");
            letters = word.strip_prefix('-').filter(|letters| !letters.is_empty());
            match word.as_str() {
                "--no-same-permissions" | "--no-same-owner" => {}
                _ if is_long => return None,
                _ if letters.is_none() => options.paths.push(word.clone()),
                _ => {}
            }
        }
        let has_one_mode = options.create != options.extract;
        (has_one_mode && options.file == "-").then_some(options)
    }
}

impl Interpreter<'_> {
    pub(crate) fn tar(&mut self, shell: &mut Shell, words: &[String]) -> Flow {
        let Some(options) = Options::parse(words) else {
            return unsupported(format!("tar {}", words.join(" ")));
        };
        if !options.folder.is_empty() {
            if !self.is_folder(shell, &options.folder)? {
                let text =
                    format!("tar: can't change directory to '{}': {NO_SUCH_FILE}", options.folder);
                return self.complain(shell, &text);
            }
            let mut inner_shell = shell.clone();
            inner_shell.folder = normalize(&shell.folder, &options.folder);
            let flow = self.archive(&mut inner_shell, &options);
            shell.status = inner_shell.status;
            return flow;
        }
        self.archive(shell, &options)
    }

    fn archive(&mut self, shell: &mut Shell, options: &Options) -> Flow {
        if options.extract { self.extract(shell) } else { self.create(shell, &options.paths) }
    }

    fn create(&mut self, shell: &mut Shell, paths: &[String]) -> Flow {
        let mut archive = Builder::new(Vec::new());
        let time = self.time(shell);
        for path in paths {
            let absolute = normalize(&shell.folder, path);
            let name = path.trim_matches('/');
            if name.is_empty() || !self.exists(shell, path)? {
                self.complain(shell, &format!("tar: {path}: {NO_SUCH_FILE}"))?;
                continue;
            }
            self.add(shell, &mut archive, &absolute, name, time, 0)?;
        }
        match archive.into_inner() {
            Ok(bytes) => self.print(shell, shell.output, &encoding::text(&bytes)),
            Err(_) => unsupported("tar of these files"),
        }
    }

    /// Adds a file, or a folder with all its contents, to the archive.
    fn add(
        &mut self,
        shell: &Shell,
        archive: &mut Builder<Vec<u8>>,
        path: &str,
        name: &str,
        time: Timestamp,
        depth: usize,
    ) -> Flow {
        self.step()?;
        if depth > MAX_DEPTH || archive.get_ref().len() > MAX_COMMAND_FILE {
            return Err(Halt::StepLimit);
        }
        let mut header = Header::new_gnu();
        header.set_mtime(u64::try_from(time.as_second()).unwrap_or_default());
        let content = self.read(shell, path)?.map(|text| encoding::bytes(&text));
        let is_folder = content.is_none();
        let (kind, mode, suffix) = if is_folder {
            (EntryType::Directory, 0o755, "/")
        } else {
            (EntryType::Regular, 0o644, "")
        };
        header.set_entry_type(kind);
        header.set_mode(mode);
        let content = content.unwrap_or_default();
        header.set_size(content.len() as u64);
        if archive.append_data(&mut header, format!("{name}{suffix}"), &*content).is_err() {
            return unsupported("a name in tar");
        }
        if is_folder {
            for inner in self.folder_entries(shell, path)? {
                let (path, name) = (format!("{path}/{inner}"), format!("{name}/{inner}"));
                self.add(shell, archive, &path, &name, time, depth + 1)?;
            }
        }
        Ok(())
    }

    fn extract(&mut self, shell: &mut Shell) -> Flow {
        let input = encoding::bytes(&self.read_input(shell)?);
        let mut archive = Archive::new(&*input);
        let Ok(entries) = archive.entries() else { return unsupported("the archive") };
        for entry in entries {
            self.step()?;
            let Ok(mut entry) = entry else {
                return self.complain(shell, "tar: short read");
            };
            let name = encoding::text(&entry.path_bytes());
            // As with GNU tar, no entry is extracted outside of the folder.
            let path = format!("{}{}", shell.folder, normalize("", &name));
            let succeeded = match entry.header().entry_type() {
                EntryType::Directory => self.make_folder(shell, &path, true)?,
                EntryType::Regular | EntryType::Continuous => {
                    let mut content = Vec::new();
                    let read = entry.by_ref().take(MAX_COMMAND_FILE as u64 + 1);
                    if { read }.read_to_end(&mut content).is_err() {
                        return self.complain(shell, "tar: short read");
                    }
                    let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
                    self.make_folder(shell, parent, true)?
                        && self.write(shell, &path, encoding::text(&content))?
                }
                _ => false,
            };
            if !succeeded {
                self.complain(shell, &format!("tar: can't create '{name}'"))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(line: &str) -> Option<Options> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        Options::parse(&words)
    }

    #[test]
    fn only_command_lines_of_kubectl_cp_are_accepted() {
        let paths = |paths: &[&str]| paths.iter().map(ToString::to_string).collect();
        let create = Options { create: true, file: "-".to_owned(), ..Options::default() };
        let extract = Options { extract: true, file: "-".to_owned(), ..Options::default() };
        for (line, expected) in [
            ("cf - /tmp/a", Some(Options { paths: paths(&["/tmp/a"]), ..create })),
            ("-xmf - -C /tmp", Some(Options { folder: "/tmp".to_owned(), ..extract })),
            (
                "--no-same-permissions --no-same-owner -xmf -",
                Some(Options { extract: true, file: "-".to_owned(), ..Options::default() }),
            ),
            ("czf - a", None),
            ("cf a.tar a", None),
            ("xcf - a", None),
            ("-C", None),
            ("--delete", None),
        ] {
            assert_eq!(options(line), expected, "{line}");
        }
    }
}
