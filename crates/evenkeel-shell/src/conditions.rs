//! Conditional expressions: `test`, `[` and `[[`.

use crate::{
    interpreter::Interpreter,
    parse::is_name,
    shell::{Flow, Halt, Shell, unsupported},
    syntax::Word,
};

/// Maximum nesting of parentheses and negations.
const MAX_DEPTH: usize = 30;

/// One word of a conditional expression.
struct Term<'w> {
    /// String of the word. In `[[`, only operators and unquoted words have one.
    text: String,
    /// The word in `[[`, which is expanded only when its condition is evaluated.
    word: Option<&'w Word>,
    /// Whether the word may be an operator. A quoted word in `[[` is never an operator.
    may_be_operator: bool,
}

/// Value of a conditional expression, or `None` if the expression is malformed.
type ConditionResult = Result<Option<bool>, Halt>;

const BINARY_OPERATORS: [&str; 12] =
    ["=", "==", "!=", "<", ">", "-eq", "-ne", "-lt", "-le", "-gt", "-ge", "=~"];
/// Operators that compare two files.
const FILE_OPERATORS: [&str; 3] = ["-nt", "-ot", "-ef"];

impl Interpreter<'_> {
    /// Runs `test`, or `[` with the words before the closing bracket.
    pub(crate) fn test(&mut self, shell: &mut Shell, words: &[String]) -> Flow {
        let term = |text: &String| Term { text: text.clone(), word: None, may_be_operator: true };
        let terms: Vec<Term<'_>> = words.iter().map(term).collect();
        let result = match &*terms {
            [] => Some(false),
            [only] => Some(!only.text.is_empty()),
            [negation, only] if negation.text == "!" => Some(only.text.is_empty()),
            [left, operator, right] if operator.is(&BINARY_OPERATORS) => {
                self.binary(shell, left, operator, right)?
            }
            terms => self.expression(shell, terms)?,
        };
        shell.status = exit_status(result);
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
            Term { text: text.to_owned(), word: Some(word), may_be_operator: plain.is_some() }
        };
        let terms: Vec<Term<'_>> = words.iter().map(term).collect();
        let result = self.expression(shell, &terms)?;
        shell.status = exit_status(result);
        Ok(())
    }

    fn expression(&mut self, shell: &mut Shell, terms: &[Term<'_>]) -> ConditionResult {
        let mut cursor = Cursor { position: 0, depth: 0, is_relevant: true };
        let result = self.disjunction(shell, terms, &mut cursor)?;
        Ok(result.filter(|_| cursor.position == terms.len()))
    }

    fn disjunction(
        &mut self,
        shell: &mut Shell,
        terms: &[Term<'_>],
        cursor: &mut Cursor,
    ) -> ConditionResult {
        let is_relevant = cursor.is_relevant;
        let mut result = self.conjunction(shell, terms, cursor)?;
        while terms.get(cursor.position).is_some_and(|term| term.is(&["-o"])) {
            cursor.position += 1;
            cursor.is_relevant = is_relevant && result != Some(true);
            let right = self.conjunction(shell, terms, cursor)?;
            result = result.zip(right).map(|(left, right)| left || right);
        }
        cursor.is_relevant = is_relevant;
        Ok(result)
    }

    fn conjunction(
        &mut self,
        shell: &mut Shell,
        terms: &[Term<'_>],
        cursor: &mut Cursor,
    ) -> ConditionResult {
        let is_relevant = cursor.is_relevant;
        let mut result = self.primary(shell, terms, cursor)?;
        while terms.get(cursor.position).is_some_and(|term| term.is(&["-a"])) {
            cursor.position += 1;
            cursor.is_relevant = is_relevant && result != Some(false);
            let right = self.primary(shell, terms, cursor)?;
            result = result.zip(right).map(|(left, right)| left && right);
        }
        cursor.is_relevant = is_relevant;
        Ok(result)
    }

    fn primary(
        &mut self,
        shell: &mut Shell,
        terms: &[Term<'_>],
        cursor: &mut Cursor,
    ) -> ConditionResult {
        self.step()?;
        if cursor.depth > MAX_DEPTH {
            return unsupported("a condition that is nested too deeply");
        }
        let rest = &terms[cursor.position..];
        match rest {
            [] => Ok(None),
            [left, operator, right, ..] if operator.is(&BINARY_OPERATORS) => {
                cursor.position += 3;
                if cursor.skips(&[left, right]) {
                    return Ok(Some(false));
                }
                self.binary(shell, left, operator, right)
            }
            [_, operator, _, ..] if operator.is(&FILE_OPERATORS) => unsupported("comparing files"),
            [negation, _, ..] if negation.is(&["!"]) => {
                cursor.position += 1;
                cursor.depth += 1;
                let result = self.primary(shell, terms, cursor)?.map(|holds| !holds);
                cursor.depth -= 1;
                Ok(result)
            }
            [open, _, ..] if open.is(&["("]) => {
                cursor.position += 1;
                cursor.depth += 1;
                let result = self.disjunction(shell, terms, cursor)?;
                cursor.depth -= 1;
                let closed = terms.get(cursor.position).is_some_and(|term| term.is(&[")"]));
                cursor.position += 1;
                Ok(result.filter(|_| closed))
            }
            [operator, operand, ..] if operator.is_unary() => {
                cursor.position += 2;
                if cursor.skips(&[operand]) {
                    return Ok(Some(false));
                }
                let operand = self.operand_text(shell, operand)?;
                self.unary(shell, &operator.text, &operand)
            }
            [only, ..] => {
                cursor.position += 1;
                if cursor.skips(&[only]) {
                    return Ok(Some(false));
                }
                Ok(Some(!self.operand_text(shell, only)?.is_empty()))
            }
        }
    }

    /// Returns the text of an operand, and expands it in `[[`.
    fn operand_text(&mut self, shell: &mut Shell, term: &Term<'_>) -> Result<String, Halt> {
        match term.word {
            Some(word) => self.expand_string(shell, word),
            None => Ok(term.text.clone()),
        }
    }

    fn unary(&mut self, shell: &Shell, operator: &str, operand: &str) -> ConditionResult {
        Ok(Some(match operator {
            "-n" => !operand.is_empty(),
            "-z" => operand.is_empty(),
            "-e" | "-r" | "-w" => self.exists(shell, operand)?,
            "-f" => self.read(shell, operand)?.is_some(),
            "-s" => self.read(shell, operand)?.is_some_and(|text| !text.is_empty()),
            "-d" => self.is_folder(shell, operand)?,
            "-v" if is_name(operand) => self.value(shell, operand)?.is_some(),
            "-t" => false,
            other => return unsupported(format!("condition {other}")),
        }))
    }

    fn binary(
        &mut self,
        shell: &mut Shell,
        left: &Term<'_>,
        operator: &Term<'_>,
        right: &Term<'_>,
    ) -> ConditionResult {
        self.step()?;
        let left = self.operand_text(shell, left)?;
        if let (Some(word), "=" | "==" | "!=") = (right.word, &*operator.text) {
            // In `[[`, the right side is a pattern.
            let is_match =
                self.expand_pattern(shell, word)?.matches(&left.chars().collect::<Vec<_>>());
            return Ok(Some(is_match == (operator.text != "!=")));
        }
        let right = self.operand_text(shell, right)?;
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
            other => return unsupported(format!("condition {other}")),
        })
    }
}

/// Position of the evaluation in a conditional expression.
struct Cursor {
    position: usize,
    /// Number of enclosing parentheses and negations.
    depth: usize,
    /// Whether the result still depends on the following words. Otherwise, words in `[[` are not expanded.
    is_relevant: bool,
}

impl Cursor {
    /// Returns whether a condition on these words is skipped. `test` evaluates all conditions, because its words
    /// are already expanded and their errors count.
    fn skips(&self, terms: &[&Term<'_>]) -> bool {
        !self.is_relevant && terms.iter().any(|term| term.word.is_some())
    }
}

impl Term<'_> {
    /// Returns whether the word is one of these operators.
    fn is(&self, operators: &[&str]) -> bool {
        self.may_be_operator && operators.contains(&&*self.text)
    }

    fn is_unary(&self) -> bool {
        let letter = self.text.strip_prefix('-').filter(|rest| rest.len() == 1);
        self.may_be_operator
            && letter.is_some_and(|letter| "bcdefghknoprstuvwxzLNOSG".contains(letter))
    }
}

/// Returns the exit status of `test`: 2 for a malformed expression.
fn exit_status(result: Option<bool>) -> i32 {
    result.map_or(2, |holds| i32::from(!holds))
}

fn number(text: &str) -> Option<i64> {
    text.trim().parse().ok()
}
