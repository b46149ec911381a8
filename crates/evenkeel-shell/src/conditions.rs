//! Conditional expressions: `test`, `[` and `[[`.

use crate::{
    interpreter::Interpreter,
    parse::is_name,
    pattern::Pattern,
    shell::{Flow, Halt, Shell, unknown},
    syntax::Word,
};

/// Maximum nesting of parentheses and negations.
const MAX_DEPTH: usize = 30;

/// One word of a conditional expression.
struct Term {
    text: String,
    /// The word as a pattern, in `[[`.
    pattern: Option<Pattern>,
    /// Whether the word may be an operator; a quoted word in `[[` may not.
    operator: bool,
}

/// Value of a conditional expression; `None` if it is malformed.
type Answer = Result<Option<bool>, Halt>;

const BINARY: [&str; 12] =
    ["=", "==", "!=", "<", ">", "-eq", "-ne", "-lt", "-le", "-gt", "-ge", "=~"];
const FILES: [&str; 3] = ["-nt", "-ot", "-ef"];

impl Interpreter<'_> {
    /// Runs `test` and `[`, without the closing bracket.
    pub(crate) fn test(&mut self, shell: &mut Shell, words: &[String]) -> Flow {
        let term = |text: &String| Term { text: text.clone(), pattern: None, operator: true };
        let terms: Vec<Term> = words.iter().map(term).collect();
        let answer = match &*terms {
            [] => Some(false),
            [only] => Some(!only.text.is_empty()),
            [no, only] if no.text == "!" => Some(only.text.is_empty()),
            [left, operator, right] if operator.is(&BINARY) => {
                self.binary(left, operator, right)?
            }
            terms => self.all_of(shell, terms)?,
        };
        shell.status = answer.map_or(2, |yes| i32::from(!yes));
        Ok(())
    }

    /// Runs `[[ … ]]`: words are not split, and the right side of a comparison is a pattern.
    pub(crate) fn double_brackets(&mut self, shell: &mut Shell, words: &[Word]) -> Flow {
        let mut terms = Vec::new();
        for word in words {
            let pattern = Some(self.pattern(shell, word)?);
            let text = self.string(shell, word)?;
            let operator = word.plain().is_some();
            let text = match text.as_str() {
                "&&" if operator => "-a".to_owned(),
                "||" if operator => "-o".to_owned(),
                _ => text,
            };
            terms.push(Term { text, pattern, operator });
        }
        let answer = self.all_of(shell, &terms)?;
        shell.status = answer.map_or(2, |yes| i32::from(!yes));
        Ok(())
    }

    fn all_of(&mut self, shell: &Shell, terms: &[Term]) -> Answer {
        let mut at = 0;
        let answer = self.either(shell, terms, &mut at, 0)?;
        Ok(answer.filter(|_| at == terms.len()))
    }

    fn either(&mut self, shell: &Shell, terms: &[Term], at: &mut usize, depth: usize) -> Answer {
        let mut answer = self.both(shell, terms, at, depth)?;
        while terms.get(*at).is_some_and(|term| term.is(&["-o"])) {
            *at += 1;
            let right = self.both(shell, terms, at, depth)?;
            answer = answer.zip(right).map(|(left, right)| left || right);
        }
        Ok(answer)
    }

    fn both(&mut self, shell: &Shell, terms: &[Term], at: &mut usize, depth: usize) -> Answer {
        let mut answer = self.one(shell, terms, at, depth)?;
        while terms.get(*at).is_some_and(|term| term.is(&["-a"])) {
            *at += 1;
            let right = self.one(shell, terms, at, depth)?;
            answer = answer.zip(right).map(|(left, right)| left && right);
        }
        Ok(answer)
    }

    fn one(&mut self, shell: &Shell, terms: &[Term], at: &mut usize, depth: usize) -> Answer {
        self.step()?;
        if depth > MAX_DEPTH {
            return unknown("a condition that is nested too deeply");
        }
        let rest = &terms[*at..];
        match rest {
            [] => Ok(None),
            [left, operator, right, ..] if operator.is(&BINARY) => {
                *at += 3;
                self.binary(left, operator, right)
            }
            [_, operator, _, ..] if operator.is(&FILES) => unknown("comparing files"),
            [no, _, ..] if no.is(&["!"]) => {
                *at += 1;
                Ok(self.one(shell, terms, at, depth + 1)?.map(|yes| !yes))
            }
            [open, _, ..] if open.is(&["("]) => {
                *at += 1;
                let answer = self.either(shell, terms, at, depth + 1)?;
                let closed = terms.get(*at).is_some_and(|term| term.is(&[")"]));
                *at += 1;
                Ok(answer.filter(|_| closed))
            }
            [operator, operand, ..] if operator.unary() => {
                *at += 2;
                self.unary(shell, &operator.text, &operand.text)
            }
            [only, ..] => {
                *at += 1;
                Ok(Some(!only.text.is_empty()))
            }
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

    fn binary(&mut self, left: &Term, operator: &Term, right: &Term) -> Answer {
        self.step()?;
        let equal = || match &right.pattern {
            Some(pattern) => pattern.fits(&left.text.chars().collect::<Vec<_>>()),
            None => left.text == right.text,
        };
        let numbers = || Some((number(&left.text)?, number(&right.text)?));
        Ok(match &*operator.text {
            "=" | "==" => Some(equal()),
            "!=" => Some(!equal()),
            "<" => Some(left.text < right.text),
            ">" => Some(left.text > right.text),
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

impl Term {
    fn is(&self, operators: &[&str]) -> bool {
        self.operator && operators.contains(&&*self.text)
    }

    fn unary(&self) -> bool {
        let letter = self.text.strip_prefix('-').filter(|rest| rest.len() == 1);
        self.operator && letter.is_some_and(|letter| "bcdefghknoprstuvwxzLNOSG".contains(letter))
    }
}

fn number(text: &str) -> Option<i64> {
    text.trim().parse().ok()
}
