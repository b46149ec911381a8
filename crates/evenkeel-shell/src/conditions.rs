//! Conditional expressions: `test`, `[` and `[[`.

use crate::{
    interpreter::Interpreter,
    parse::is_name,
    shell::{Flow, Halt, Shell, unknown},
    syntax::Word,
};

/// Maximum nesting of parentheses and negations.
const MAX_DEPTH: usize = 30;

/// One word of a conditional expression.
struct Term<'w> {
    /// Text of the word. In `[[`, only operators and unquoted words have one.
    text: String,
    /// The word in `[[`, which is expanded only when its condition is evaluated.
    word: Option<&'w Word>,
    /// Whether the word may be an operator. A quoted word in `[[` is never an operator.
    operator: bool,
}

/// Value of a conditional expression, or `None` if the expression is malformed.
type Answer = Result<Option<bool>, Halt>;

const BINARY: [&str; 12] =
    ["=", "==", "!=", "<", ">", "-eq", "-ne", "-lt", "-le", "-gt", "-ge", "=~"];
/// Operators that compare two files.
const FILES: [&str; 3] = ["-nt", "-ot", "-ef"];

impl Interpreter<'_> {
    /// Runs `test`, or `[` with the words before the closing bracket.
    pub(crate) fn test(&mut self, shell: &mut Shell, words: &[String]) -> Flow {
        let term = |text: &String| Term { text: text.clone(), word: None, operator: true };
        let terms: Vec<Term<'_>> = words.iter().map(term).collect();
        let answer = match &*terms {
            [] => Some(false),
            [only] => Some(!only.text.is_empty()),
            [no, only] if no.text == "!" => Some(only.text.is_empty()),
            [left, operator, right] if operator.is(&BINARY) => {
                self.binary(shell, left, operator, right)?
            }
            terms => self.expression(shell, terms)?,
        };
        shell.status = answer.map_or(2, |yes| i32::from(!yes));
        Ok(())
    }

    /// Runs `[[ … ]]`: words are not split, and the right side of a comparison is a pattern.
    pub(crate) fn double_brackets(&mut self, shell: &mut Shell, words: &[Word]) -> Flow {
        let term = |word| {
            let plain = Word::plain(word);
            let text = match plain.unwrap_or_default() {
                "&&" => "-a",
                "||" => "-o",
                text => text,
            };
            Term { text: text.to_owned(), word: Some(word), operator: plain.is_some() }
        };
        let terms: Vec<Term<'_>> = words.iter().map(term).collect();
        let answer = self.expression(shell, &terms)?;
        shell.status = answer.map_or(2, |yes| i32::from(!yes));
        Ok(())
    }

    fn expression(&mut self, shell: &mut Shell, terms: &[Term<'_>]) -> Answer {
        let mut cursor = Cursor { at: 0, depth: 0, live: true };
        let answer = self.disjunction(shell, terms, &mut cursor)?;
        Ok(answer.filter(|_| cursor.at == terms.len()))
    }

    fn disjunction(
        &mut self,
        shell: &mut Shell,
        terms: &[Term<'_>],
        cursor: &mut Cursor,
    ) -> Answer {
        let live = cursor.live;
        let mut answer = self.conjunction(shell, terms, cursor)?;
        while terms.get(cursor.at).is_some_and(|term| term.is(&["-o"])) {
            cursor.at += 1;
            cursor.live = live && answer != Some(true);
            let right = self.conjunction(shell, terms, cursor)?;
            answer = answer.zip(right).map(|(left, right)| left || right);
        }
        cursor.live = live;
        Ok(answer)
    }

    fn conjunction(
        &mut self,
        shell: &mut Shell,
        terms: &[Term<'_>],
        cursor: &mut Cursor,
    ) -> Answer {
        let live = cursor.live;
        let mut answer = self.primary(shell, terms, cursor)?;
        while terms.get(cursor.at).is_some_and(|term| term.is(&["-a"])) {
            cursor.at += 1;
            cursor.live = live && answer != Some(false);
            let right = self.primary(shell, terms, cursor)?;
            answer = answer.zip(right).map(|(left, right)| left && right);
        }
        cursor.live = live;
        Ok(answer)
    }

    fn primary(&mut self, shell: &mut Shell, terms: &[Term<'_>], cursor: &mut Cursor) -> Answer {
        self.step()?;
        if cursor.depth > MAX_DEPTH {
            return unknown("a condition that is nested too deeply");
        }
        let rest = &terms[cursor.at..];
        match rest {
            [] => Ok(None),
            [left, operator, right, ..] if operator.is(&BINARY) => {
                cursor.at += 3;
                if cursor.skips(&[left, right]) {
                    return Ok(Some(false));
                }
                self.binary(shell, left, operator, right)
            }
            [_, operator, _, ..] if operator.is(&FILES) => unknown("comparing files"),
            [no, _, ..] if no.is(&["!"]) => {
                cursor.at += 1;
                cursor.depth += 1;
                let answer = self.primary(shell, terms, cursor)?.map(|yes| !yes);
                cursor.depth -= 1;
                Ok(answer)
            }
            [open, _, ..] if open.is(&["("]) => {
                cursor.at += 1;
                cursor.depth += 1;
                let answer = self.disjunction(shell, terms, cursor)?;
                cursor.depth -= 1;
                let closed = terms.get(cursor.at).is_some_and(|term| term.is(&[")"]));
                cursor.at += 1;
                Ok(answer.filter(|_| closed))
            }
            [operator, operand, ..] if operator.is_unary() => {
                cursor.at += 2;
                if cursor.skips(&[operand]) {
                    return Ok(Some(false));
                }
                let operand = self.text_of(shell, operand)?;
                self.unary(shell, &operator.text, &operand)
            }
            [only, ..] => {
                cursor.at += 1;
                if cursor.skips(&[only]) {
                    return Ok(Some(false));
                }
                Ok(Some(!self.text_of(shell, only)?.is_empty()))
            }
        }
    }

    /// Returns the text of an operand, and expands it in `[[`.
    fn text_of(&mut self, shell: &mut Shell, term: &Term<'_>) -> Result<String, Halt> {
        match term.word {
            Some(word) => self.string(shell, word),
            None => Ok(term.text.clone()),
        }
    }

    fn unary(&mut self, shell: &Shell, operator: &str, operand: &str) -> Answer {
        Ok(Some(match operator {
            "-n" => !operand.is_empty(),
            "-z" => operand.is_empty(),
            "-e" | "-r" | "-w" => self.exists(shell, operand)?,
            "-f" => self.read(shell, operand)?.is_some(),
            "-s" => self.read(shell, operand)?.is_some_and(|text| !text.is_empty()),
            "-d" => self.is_folder(shell, operand)?,
            "-v" if is_name(operand) => self.value(shell, operand)?.is_some(),
            "-t" => false,
            other => return unknown(format!("condition {other}")),
        }))
    }

    fn binary(
        &mut self,
        shell: &mut Shell,
        left: &Term<'_>,
        operator: &Term<'_>,
        right: &Term<'_>,
    ) -> Answer {
        self.step()?;
        let left = self.text_of(shell, left)?;
        if let (Some(word), "=" | "==" | "!=") = (right.word, &*operator.text) {
            // In `[[`, the right side is a pattern.
            let fits = self.pattern(shell, word)?.fits(&left.chars().collect::<Vec<_>>());
            return Ok(Some(fits == (operator.text != "!=")));
        }
        let right = self.text_of(shell, right)?;
        let numbers = || Some((number(&left)?, number(&right)?));
        Ok(match &*operator.text {
            "=" | "==" => Some(left == right),
            "!=" => Some(left != right),
            "<" => Some(left < right),
            ">" => Some(left > right),
            "-eq" => numbers().map(|(a, b)| a == b),
            "-ne" => numbers().map(|(a, b)| a != b),
            "-lt" => numbers().map(|(a, b)| a < b),
            "-le" => numbers().map(|(a, b)| a <= b),
            "-gt" => numbers().map(|(a, b)| a > b),
            "-ge" => numbers().map(|(a, b)| a >= b),
            other => return unknown(format!("condition {other}")),
        })
    }
}

/// Position of the evaluation in a conditional expression.
struct Cursor {
    at: usize,
    /// Number of enclosing parentheses and negations.
    depth: usize,
    /// Whether the result still depends on the following words. Otherwise, words in `[[` are not expanded.
    live: bool,
}

impl Cursor {
    /// Returns whether a condition on these words is skipped. `test` evaluates all conditions, because its words
    /// are already expanded and their errors count.
    fn skips(&self, terms: &[&Term<'_>]) -> bool {
        !self.live && terms.iter().any(|term| term.word.is_some())
    }
}

impl Term<'_> {
    fn is(&self, operators: &[&str]) -> bool {
        self.operator && operators.contains(&&*self.text)
    }

    fn is_unary(&self) -> bool {
        let letter = self.text.strip_prefix('-').filter(|rest| rest.len() == 1);
        self.operator && letter.is_some_and(|letter| "bcdefghknoprstuvwxzLNOSG".contains(letter))
    }
}

fn number(text: &str) -> Option<i64> {
    text.trim().parse().ok()
}
