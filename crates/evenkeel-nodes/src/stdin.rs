//! Standard input of a command: raw bytes, or the lines and keys of a terminal.

use bytes::Bytes;
use evenkeel_shell::{Terminal, Typed, encoding};
use std::collections::VecDeque;
use tokio::sync::mpsc;

/// Result of reading standard input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Read {
    /// A line. Only the last line may lack its newline.
    Line(String),
    /// Ctrl-C was typed.
    Interrupt,
    /// The end of standard input.
    End,
}

/// Standard input of one command.
pub(crate) struct Stdin {
    /// Channel from the client; `None` after its end.
    receiver: Option<mpsc::Receiver<Bytes>>,
    terminal: Option<Terminal>,
    /// Received bytes that were not read yet, without a terminal.
    bytes: Vec<u8>,
    /// Typed lines and keys that were not read yet, with a terminal.
    typed: VecDeque<Typed>,
}

/// Maximum number of lines that a client may type ahead.
const MAX_TYPED_AHEAD: usize = 256;

impl Stdin {
    /// Maximum size in bytes of a command's input, and of a line.
    pub(crate) const MAX_BYTES: usize = 1024 * 1024;

    pub(crate) fn new(receiver: Option<mpsc::Receiver<Bytes>>, tty: bool) -> Self {
        let terminal = tty.then(Terminal::default);
        Self { receiver, terminal, bytes: Vec::new(), typed: VecDeque::new() }
    }

    /// Returns whether the client may still send input.
    pub(crate) fn is_open(&self) -> bool {
        self.receiver.is_some()
    }

    /// Waits for the next input while a command runs. Never returns after the end of the input, or if too many lines
    /// are waiting. Returns the echo.
    pub(crate) async fn type_ahead(&mut self) -> Vec<u8> {
        if self.receiver.is_none() || self.typed.len() > MAX_TYPED_AHEAD {
            std::future::pending::<()>().await;
        }
        self.receive().await
    }

    /// Waits for the next input or its end. Returns the echo, which is empty without a terminal.
    pub(crate) async fn receive(&mut self) -> Vec<u8> {
        let Some(receiver) = &mut self.receiver else { return Vec::new() };
        let Some(bytes) = receiver.recv().await else {
            self.receiver = None;
            return Vec::new();
        };
        let Some(terminal) = &mut self.terminal else {
            self.bytes.extend_from_slice(&bytes);
            return Vec::new();
        };
        let (echo, typed) = terminal.process(&bytes);
        self.typed.extend(typed);
        echo
    }

    /// Discards all input that was not read yet.
    pub(crate) fn discard(&mut self) {
        self.bytes.clear();
        self.typed.clear();
    }

    /// Removes the last Ctrl-C and all input before it. Returns whether the input had a Ctrl-C.
    pub(crate) fn take_interrupt(&mut self) -> bool {
        let last = self.typed.iter().rposition(|typed| *typed == Typed::Interrupt);
        if let Some(last) = last {
            self.typed.drain(..=last);
        }
        last.is_some()
    }

    /// Returns the next line, or `None` if it is not complete.
    pub(crate) fn next_line(&mut self) -> Option<Read> {
        if let Some(typed) = self.typed.pop_front() {
            return Some(typed.into());
        }
        let end = match self.bytes.iter().position(|byte| *byte == b'\n') {
            Some(newline) => newline + 1,
            None if self.bytes.len() > Self::MAX_BYTES => self.bytes.len(),
            None if self.is_open() => return None,
            None if self.bytes.is_empty() => return Some(Read::End),
            None => self.bytes.len(),
        };
        let line: Vec<u8> = self.bytes.drain(..end).collect();
        Some(Read::Line(encoding::text(&line)))
    }

    /// Returns all received bytes or the next typed line, or `None` if nothing was received.
    pub(crate) fn next_available(&mut self) -> Option<Read> {
        if self.bytes.is_empty() {
            return self.next_line();
        }
        Some(Read::Line(encoding::text(&std::mem::take(&mut self.bytes))))
    }
}

impl From<Typed> for Read {
    fn from(typed: Typed) -> Self {
        match typed {
            Typed::Line(line) => Self::Line(line),
            Typed::Interrupt => Self::Interrupt,
            Typed::EndOfInput => Self::End,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(chunks: &[&str], tty: bool) -> (Vec<Read>, String) {
        let (sender, receiver) = mpsc::channel(16);
        for chunk in chunks {
            sender.send(Bytes::copy_from_slice(chunk.as_bytes())).await.expect("room");
        }
        drop(sender);
        let mut stdin = Stdin::new(Some(receiver), tty);
        let (mut reads, mut echo) = (Vec::new(), Vec::new());
        while reads.last() != Some(&Read::End) {
            match stdin.next_line() {
                Some(read) => reads.push(read),
                None => echo.extend(stdin.receive().await),
            }
        }
        (reads, String::from_utf8(echo).expect("text"))
    }

    #[tokio::test]
    async fn lines_are_read_across_chunks() {
        let line = |text: &str| Read::Line(text.to_owned());
        let (reads, echo) = read(&["a\nb", "c\n", "d"], false).await;
        assert_eq!(reads, [line("a\n"), line("bc\n"), line("d"), Read::End]);
        assert_eq!(echo, "");
        let (reads, echo) = read(&["ls\r", "x\x03", "y\r", "\x04"], true).await;
        assert_eq!(reads, [line("ls\n"), Read::Interrupt, line("y\n"), Read::End]);
        assert_eq!(echo, "ls\nx^C\ny\n");
    }

    #[tokio::test]
    async fn interrupt_discards_earlier_input() {
        let (sender, receiver) = mpsc::channel(16);
        sender.send(Bytes::from_static(b"a\r\x03b\r")).await.expect("room");
        let mut stdin = Stdin::new(Some(receiver), true);
        stdin.type_ahead().await;
        assert!(stdin.take_interrupt() && !stdin.take_interrupt());
        assert_eq!(stdin.next_line(), Some(Read::Line("b\n".to_owned())));
    }
}
