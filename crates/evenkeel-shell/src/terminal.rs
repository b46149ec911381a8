//! Line discipline of a terminal: echoes typed bytes and collects them into lines.

/// Maximum length of a line in bytes. Further typed bytes are ignored.
const MAX_LINE: usize = 4096;

// Control bytes: Ctrl-C, Ctrl-D, backspace and delete, Ctrl-U.
const INTERRUPT: u8 = 0x03;
const END_OF_INPUT: u8 = 0x04;
const ERASE: [u8; 2] = [0x08, 0x7f];
const ERASE_LINE: u8 = 0x15;

/// Typed line or control key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Typed {
    /// A line, with its newline.
    Line(String),
    /// Ctrl-C, which interrupts the command.
    Interrupt,
    /// Ctrl-D on an empty line.
    EndOfInput,
}

/// Terminal in the mode that edits lines, as with Linux's flags `ICANON`, `ECHO` and `ISIG`.
#[derive(Debug, Clone, Default)]
pub struct Terminal {
    /// Bytes of the current line.
    line: Vec<u8>,
    /// Whether the last byte was a carriage return. A newline directly after it ends the same line.
    returned: bool,
}

impl Terminal {
    /// Processes typed bytes. Returns the echo, which the caller converts with [`with_carriage_returns`], and the
    /// complete lines and keys.
    pub fn process(&mut self, bytes: &[u8]) -> (Vec<u8>, Vec<Typed>) {
        let (mut echo, mut typed) = (Vec::new(), Vec::new());
        for byte in bytes {
            let returned = std::mem::replace(&mut self.returned, *byte == b'\r');
            match *byte {
                b'\n' if returned => {}
                b'\r' | b'\n' => {
                    echo.push(b'\n');
                    self.line.push(b'\n');
                    typed.push(Typed::Line(crate::encoding::text(&std::mem::take(&mut self.line))));
                }
                INTERRUPT => {
                    echo.extend_from_slice(b"^C\n");
                    self.line.clear();
                    typed.push(Typed::Interrupt);
                }
                END_OF_INPUT if self.line.is_empty() => typed.push(Typed::EndOfInput),
                END_OF_INPUT => {}
                ERASE_LINE => {
                    while self.erase() {
                        echo.extend_from_slice(b"\x08 \x08");
                    }
                }
                byte if ERASE.contains(&byte) && self.erase() => {
                    echo.extend_from_slice(b"\x08 \x08");
                }
                byte if ERASE.contains(&byte) => {}
                // Ignore keys such as arrows, which only programs with their own line editor use.
                byte if byte < b' ' && byte != b'\t' => {}
                byte if self.line.len() < MAX_LINE => {
                    self.line.push(byte);
                    echo.push(byte);
                }
                _ => {}
            }
        }
        (echo, typed)
    }

    /// Removes the last character of the line. Returns whether the line had one.
    fn erase(&mut self) -> bool {
        while let Some(byte) = self.line.pop() {
            // The bytes of a character in UTF-8 begin with 10 in binary, except for the first.
            if byte & 0xc0 != 0x80 {
                return true;
            }
        }
        false
    }
}

/// Returns the output as a terminal shows it: with a carriage return before each newline (`ONLCR`).
pub fn with_carriage_returns(bytes: &[u8]) -> Vec<u8> {
    let mut output = Vec::with_capacity(bytes.len());
    for byte in bytes {
        if *byte == b'\n' {
            output.push(b'\r');
        }
        output.push(*byte);
    }
    output
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typed_bytes_are_echoed_and_collected_into_lines() {
        let line = |text: &str| Typed::Line(text.to_owned());
        let table: [(&[u8], &[u8], &[Typed]); 8] = [
            (b"ls\r", b"ls\n", &[line("ls\n")]),
            (b"a\r\nb\n", b"a\nb\n", &[line("a\n"), line("b\n")]),
            (b"lx\x7fs\n", b"lx\x08 \x08s\n", &[line("ls\n")]),
            ("ä\x7f\x7fb\n".as_bytes(), "ä\x08 \x08b\n".as_bytes(), &[line("b\n")]),
            (b"abc\x15d\n", b"abc\x08 \x08\x08 \x08\x08 \x08d\n", &[line("d\n")]),
            (b"abc\x03", b"abc^C\n", &[Typed::Interrupt]),
            (b"\x04", b"", &[Typed::EndOfInput]),
            (b"a\x04\x1b\n", b"a\n", &[line("a\n")]),
        ];
        for (typed, echo, read) in table {
            assert_eq!(
                Terminal::default().process(typed),
                (echo.to_vec(), read.to_vec()),
                "{typed:?}"
            );
        }
        let mut terminal = Terminal::default();
        terminal.process(&vec![b'a'; 3 * MAX_LINE]);
        assert_eq!(terminal.process(b"\n").1, [line(&("a".repeat(MAX_LINE) + "\n"))]);
    }

    #[test]
    fn shown_lines_end_in_carriage_return_and_newline() {
        assert_eq!(with_carriage_returns(b"a\nb\n"), b"a\r\nb\r\n");
    }
}
