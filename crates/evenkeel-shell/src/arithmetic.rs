//! Arithmetic expansion `$((…))`: evaluates integer expressions of the shell.

use crate::parse::is_name;

/// Maximum nesting of parentheses and operators.
const MAX_DEPTH: u32 = 40;

/// Variables that an expression reads and assigns.
pub(crate) trait Variables {
    /// Returns the value of a variable, which is empty if the variable is unset. Fails if the interpreter cannot know
    /// the value, such as that of a variable for a Service.
    fn get(&mut self, name: &str) -> Result<String, String>;
    fn set(&mut self, name: &str, value: i64);
}

/// Evaluates an expression whose `$` expansions have been done. Fails if the expression is invalid or divides by
/// zero.
pub(crate) fn evaluate(text: &str, variables: &mut dyn Variables) -> Result<i64, String> {
    let mut evaluator = Evaluator { text, position: 0, depth: 0, variables, skip_depth: 0 };
    if text.trim().is_empty() {
        return Ok(0);
    }
    let value = evaluator.assignment()?;
    evaluator.skip_blanks();
    if evaluator.position < text.len() { evaluator.syntax_error() } else { Ok(value) }
}

/// State of the evaluation of an expression. The evaluator parses and evaluates at the same time.
struct Evaluator<'r> {
    text: &'r str,
    position: usize,
    depth: u32,
    variables: &'r mut dyn Variables,
    /// Number of enclosing operands that are only parsed, not evaluated. Such an operand is the branch that a
    /// conditional expression does not take, or the right side of `&&` or `||` if the left side decides the result.
    skip_depth: u32,
}

/// Binary operators by precedence, lowest first.
const PRECEDENCE_LEVELS: [&[&str]; 10] = [
    &["||"],
    &["&&"],
    &["|"],
    &["^"],
    &["&"],
    &["==", "!="],
    &["<=", ">=", "<", ">"],
    &["<<", ">>"],
    &["+", "-"],
    &["*", "/", "%"],
];

impl<'r> Evaluator<'r> {
    fn syntax_error<T>(&self) -> Result<T, String> {
        Err(format!("arithmetic {:?} is not understood", self.text))
    }

    fn skip_blanks(&mut self) {
        let rest = &self.text[self.position..];
        self.position += rest.len() - rest.trim_start().len();
    }

    fn consume(&mut self, token: &str) -> bool {
        self.skip_blanks();
        let found = self.text[self.position..].starts_with(token);
        self.position += if found { token.len() } else { 0 };
        found
    }

    /// Parses a nested expression. Fails if the nesting exceeds [`MAX_DEPTH`].
    fn nested(
        &mut self,
        parse: impl FnOnce(&mut Self) -> Result<i64, String>,
    ) -> Result<i64, String> {
        self.depth += 1;
        let value = if self.depth > MAX_DEPTH { self.syntax_error() } else { parse(self) };
        self.depth -= 1;
        value
    }

    /// Evaluates an assignment such as `NAME = …` or `NAME += …`, or else a conditional expression.
    fn assignment(&mut self) -> Result<i64, String> {
        self.skip_blanks();
        let from = self.position;
        let name = self.name();
        if let Some(name) = name {
            self.skip_blanks();
            let rest = &self.text[self.position..];
            // The last operator is that of a plain assignment.
            let operator = ["+", "-", "*", "/", "%", ""].into_iter().find(|operator| {
                rest.strip_prefix(operator)
                    .is_some_and(|after| after.starts_with('=') && !after.starts_with("=="))
            });
            if let Some(operator) = operator {
                self.position += operator.len() + 1;
                let value = self.nested(Self::assignment)?;
                let value = if operator.is_empty() {
                    value
                } else {
                    let before = self.variable_value(name)?;
                    self.compute(operator, before, value)?
                };
                return Ok(self.set_variable(name, value));
            }
        }
        self.position = from;
        self.conditional()
    }

    fn conditional(&mut self) -> Result<i64, String> {
        let condition = self.binary(0)?;
        if !self.consume("?") {
            return Ok(condition);
        }
        let yes = self.evaluate_if(condition != 0, Self::assignment)?;
        if !self.consume(":") {
            return self.syntax_error();
        }
        let no = self.evaluate_if(condition == 0, Self::assignment)?;
        Ok(if condition != 0 { yes } else { no })
    }

    /// Parses an operand. Only evaluates it if `is_evaluated` is true.
    fn evaluate_if(
        &mut self,
        is_evaluated: bool,
        parse: impl FnOnce(&mut Self) -> Result<i64, String>,
    ) -> Result<i64, String> {
        self.skip_depth += u32::from(!is_evaluated);
        let value = self.nested(parse);
        self.skip_depth -= u32::from(!is_evaluated);
        value
    }

    fn binary(&mut self, level: usize) -> Result<i64, String> {
        let Some(operators) = PRECEDENCE_LEVELS.get(level) else { return self.unary() };
        let mut left = self.binary(level + 1)?;
        while let Some(operator) = self.operator(operators) {
            let is_decided = match operator {
                "||" => left != 0,
                "&&" => left == 0,
                _ => false,
            };
            let right = self.evaluate_if(!is_decided, |evaluator| evaluator.binary(level + 1))?;
            left = self.compute(operator, left, right)?;
        }
        Ok(left)
    }

    fn operator(&mut self, operators: &[&'static str]) -> Option<&'static str> {
        self.skip_blanks();
        let rest = &self.text[self.position..];
        let found = operators.iter().copied().find(|operator| rest.starts_with(operator))?;
        let after = &rest[found.len()..];
        // In `a || b`, `|` is the start of a longer operator.
        let is_longer = matches!(found, "|" | "&" | "<" | ">" | "*") && after.starts_with(found);
        // In `a += b`, `+` is the start of an assignment. A comparison already ends in its own `=`.
        let is_assignment = !matches!(found, "==" | "!=" | "<=" | ">=")
            && after.starts_with('=')
            && !after.starts_with("==");
        if is_longer || is_assignment {
            return None;
        }
        self.position += found.len();
        Some(found)
    }

    fn compute(&self, operator: &str, left: i64, right: i64) -> Result<i64, String> {
        if right == 0 && matches!(operator, "/" | "%") {
            return if self.skip_depth > 0 { Ok(0) } else { Err("division by zero".into()) };
        }
        // As in C on most processors, only the lowest six bits count.
        let shift = u32::try_from(right & 63).unwrap_or(0);
        Ok(match operator {
            "||" => i64::from(left != 0 || right != 0),
            "&&" => i64::from(left != 0 && right != 0),
            "|" => left | right,
            "^" => left ^ right,
            "&" => left & right,
            "==" => i64::from(left == right),
            "!=" => i64::from(left != right),
            "<=" => i64::from(left <= right),
            ">=" => i64::from(left >= right),
            "<" => i64::from(left < right),
            ">" => i64::from(left > right),
            "<<" => left.wrapping_shl(shift),
            ">>" => left.wrapping_shr(shift),
            "+" => left.wrapping_add(right),
            "-" => left.wrapping_sub(right),
            "*" => left.wrapping_mul(right),
            "/" => left.wrapping_div(right),
            "%" => left.wrapping_rem(right),
            _ => return self.syntax_error(),
        })
    }

    fn unary(&mut self) -> Result<i64, String> {
        self.skip_blanks();
        for (sign, step) in [("++", 1), ("--", -1)] {
            if self.consume(sign) {
                self.skip_blanks();
                let Some(name) = self.name() else { return self.syntax_error() };
                let value = self.variable_value(name)?.wrapping_add(step);
                return Ok(self.set_variable(name, value));
            }
        }
        if self.consume("-") {
            return self.nested(Self::unary).map(i64::wrapping_neg);
        }
        if self.consume("+") {
            return self.nested(Self::unary);
        }
        if self.consume("!") {
            return self.nested(Self::unary).map(|value| i64::from(value == 0));
        }
        if self.consume("~") {
            return self.nested(Self::unary).map(|value| !value);
        }
        self.operand()
    }

    fn operand(&mut self) -> Result<i64, String> {
        if self.consume("(") {
            let value = self.nested(Self::assignment)?;
            return if self.consume(")") { Ok(value) } else { self.syntax_error() };
        }
        if let Some(name) = self.name() {
            let value = self.variable_value(name)?;
            // `consume` would skip blanks, but `x ++1` is the sum of `x` and `+1`.
            for (sign, step) in [("++", 1), ("--", -1)] {
                if self.text[self.position..].starts_with(sign) {
                    self.position += sign.len();
                    self.set_variable(name, value.wrapping_add(step));
                    let rest = &self.text[self.position..];
                    // The value of `x++` is not a variable, so neither operator can follow.
                    return match rest.starts_with("++") || rest.starts_with("--") {
                        true => self.syntax_error(),
                        false => Ok(value),
                    };
                }
            }
            return Ok(value);
        }
        let rest = &self.text[self.position..];
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
        self.position += end;
        number(&rest[..end]).map_or_else(|| self.syntax_error(), Ok)
    }

    fn name(&mut self) -> Option<&'r str> {
        let rest = &self.text[self.position..];
        let end = rest.find(|c: char| c != '_' && !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
        let name = &rest[..end];
        if !is_name(name) {
            return None;
        }
        self.position += end;
        Some(name)
    }

    fn variable_value(&mut self, name: &str) -> Result<i64, String> {
        let text = self.variables.get(name)?;
        let text = text.trim();
        if text.is_empty() {
            return Ok(0);
        }
        let value = match text.strip_prefix('-') {
            Some(digits) => number(digits).map(i64::wrapping_neg),
            None => number(text),
        };
        value.ok_or_else(|| format!("variable {name} is not a number"))
    }

    fn set_variable(&mut self, name: &str, value: i64) -> i64 {
        if self.skip_depth == 0 {
            self.variables.set(name, value);
        }
        value
    }
}

/// Parses a decimal number, an octal one after `0`, or a hexadecimal one after `0x`.
fn number(text: &str) -> Option<i64> {
    if let Some(digits) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        return i64::from_str_radix(digits, 16).ok();
    }
    let is_octal = text.len() > 1 && text.starts_with('0');
    if !text.bytes().all(|c| c.is_ascii_digit()) {
        return None;
    }
    i64::from_str_radix(text, if is_octal { 8 } else { 10 }).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[derive(Default)]
    struct Map(BTreeMap<String, i64>);

    impl Variables for Map {
        fn get(&mut self, name: &str) -> Result<String, String> {
            Ok(self.0.get(name).map_or_else(String::new, i64::to_string))
        }

        fn set(&mut self, name: &str, value: i64) {
            self.0.insert(name.to_owned(), value);
        }
    }

    #[test]
    fn expressions_evaluate_as_in_a_shell() {
        for (text, want) in [
            ("", Some(0)),
            ("1 + 2 * 3", Some(7)),
            ("(1+2)*3", Some(9)),
            ("7/2 - 7%2", Some(2)),
            ("-7/2", Some(-3)),
            ("0x1f + 010", Some(39)),
            ("1 << 4 | 1", Some(17)),
            ("3 > 2 && 2 >= 2", Some(1)),
            ("1 == 2 || 0", Some(0)),
            ("1 ? 2 : 3", Some(2)),
            ("0 ? 1/0 : 4", Some(4)),
            ("!5 + ~0", Some(-1)),
            ("x = 5, 1", None),
            ("x + 1", Some(1)),
            ("x += 3", Some(3)),
            ("- - 2", Some(2)),
            ("2 - -2", Some(4)),
            ("5 & 6 ^ 1", Some(5)),
            ("1/0", None),
            ("1 +", None),
            ("08", None),
            ("2 ** 3", None),
            ("x++--", None),
            ("x--++1", None),
            ("x++ - --x", Some(0)),
            ("9223372036854775807 + 1", Some(i64::MIN)),
        ] {
            assert_eq!(evaluate(text, &mut Map::default()).ok(), want, "{text:?}");
        }
    }

    #[test]
    fn assignments_and_increments_change_variables_unless_skipped() {
        let mut map = Map::default();
        for (text, value, x) in [
            ("x = 2", 2, 2),
            ("x++ + 1", 3, 3),
            ("--x * 2", 4, 2),
            ("0 && (x = 9)", 0, 2),
            ("x -= 5", -3, -3),
        ] {
            assert_eq!(evaluate(text, &mut map), Ok(value), "{text}");
            assert_eq!(map.0["x"], x, "{text}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]
        #[test]
        fn any_text_is_evaluated_or_rejected_without_a_panic(text in "[-+*/%()<>=&|^!~?: x0-9]{0,60}", any in ".{0,30}") {
            let _ = evaluate(&text, &mut Map::default());
            let _ = evaluate(&any, &mut Map::default());
            let _ = evaluate(&"(".repeat(100_000), &mut Map::default());
        }
    }
}
