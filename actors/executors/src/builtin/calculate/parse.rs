//! Reads an expression and computes it in one pass, by recursive descent.
//!
//! ```text
//! sum     = product { ("+" | "-") product }
//! product = signed { ("*" | "/" | "%") signed }
//! signed  = ("-" | "+") signed | power
//! power   = atom [ ("^" | "**") signed ]
//! atom    = number | name | name "(" sum { "," sum } ")" | "(" sum ")"
//! ```

use super::{
    CalculateError,
    functions::{apply, arity, constant},
    number::Number,
};

pub(in super::super) const EXPRESSION_BYTES: usize = 2_000;
/// How deep parentheses, signs and powers may be nested.
const DEPTH: usize = 64;
/// Digits of an exponent in a number: more is out of range anyway.
const EXPONENT_DIGITS: usize = 5;

/// The value of `expression`, as text.
pub(in super::super) fn calculate(expression: &str) -> Result<String, CalculateError> {
    if expression.len() > EXPRESSION_BYTES {
        return Err(CalculateError::TooLong);
    }
    let mut reader = ExpressionReader { text: expression.chars().collect(), at: 0, depth: 0 };
    let value = reader.sum()?;
    match reader.peek() {
        None => Ok(value.to_string()),
        Some(found) => Err(reader.wrong(format!("`{found}` is not expected here"))),
    }
}

struct ExpressionReader {
    text: Vec<char>,
    at: usize,
    depth: usize,
}

impl ExpressionReader {
    fn wrong(&self, what: impl Into<String>) -> CalculateError {
        CalculateError::Syntax { at: self.at + 1, what: what.into() }
    }

    /// The next character that is no white space.
    fn peek(&mut self) -> Option<char> {
        while self.text.get(self.at).is_some_and(|c| c.is_whitespace()) {
            self.at += 1;
        }
        self.text.get(self.at).copied()
    }

    fn eat(&mut self, wanted: char) -> bool {
        let found = self.peek() == Some(wanted);
        self.at += usize::from(found);
        found
    }

    /// One level deeper while `read` is at it.
    fn deeper(
        &mut self,
        read: fn(&mut Self) -> Result<Number, CalculateError>,
    ) -> Result<Number, CalculateError> {
        if self.depth == DEPTH {
            return Err(self.wrong(format!("nested more than {DEPTH} deep")));
        }
        self.depth += 1;
        let value = read(self);
        self.depth -= 1;
        value
    }

    fn sum(&mut self) -> Result<Number, CalculateError> {
        let mut value = self.product()?;
        loop {
            match self.peek() {
                Some('+') => {
                    self.at += 1;
                    value = value.add(self.product()?)?;
                }
                Some('-' | '\u{2212}') => {
                    self.at += 1;
                    value = value.add(self.product()?.negate())?;
                }
                _ => return Ok(value),
            }
        }
    }

    fn product(&mut self) -> Result<Number, CalculateError> {
        let mut value = self.signed()?;
        loop {
            match self.peek() {
                Some('*' | '×' | '·') => {
                    self.at += 1;
                    value = value.multiply(self.signed()?)?;
                }
                Some('/' | '÷') => {
                    self.at += 1;
                    value = value.divide(self.signed()?)?;
                }
                Some('%') => {
                    self.at += 1;
                    value = value.remainder(self.signed()?)?;
                }
                _ => return Ok(value),
            }
        }
    }

    fn signed(&mut self) -> Result<Number, CalculateError> {
        match self.peek() {
            Some('-' | '\u{2212}') => {
                self.at += 1;
                Ok(self.deeper(Self::signed)?.negate())
            }
            Some('+') => {
                self.at += 1;
                self.deeper(Self::signed)
            }
            _ => self.power(),
        }
    }

    fn power(&mut self) -> Result<Number, CalculateError> {
        let base = self.atom()?;
        let begin = self.at;
        let is_power = self.eat('^') || self.eat('*') && self.text.get(self.at) == Some(&'*');
        if !is_power {
            self.at = begin;
            return Ok(base);
        }
        self.at += usize::from(self.text.get(self.at) == Some(&'*'));
        base.power(self.deeper(Self::signed)?)
    }

    fn atom(&mut self) -> Result<Number, CalculateError> {
        match self.peek() {
            None => Err(self.wrong("the expression ends where a number is expected")),
            Some('(') => {
                self.at += 1;
                let value = self.deeper(Self::sum)?;
                self.close()?;
                Ok(value)
            }
            Some(c) if c.is_ascii_digit() || c == '.' => self.number(),
            Some(c) if c.is_alphabetic() => self.named(),
            Some(c) => Err(self.wrong(format!("a number is expected, not `{c}`"))),
        }
    }

    fn close(&mut self) -> Result<(), CalculateError> {
        if self.eat(')') { Ok(()) } else { Err(self.wrong("a `)` is missing")) }
    }

    fn digits(&mut self, into: &mut String) -> usize {
        let begin = into.len();
        while let Some(digit) = self.text.get(self.at).filter(|c| c.is_ascii_digit()) {
            into.push(*digit);
            self.at += 1;
        }
        into.len() - begin
    }

    fn number(&mut self) -> Result<Number, CalculateError> {
        let mut digits = String::new();
        let mut count = self.digits(&mut digits);
        let mut places = 0;
        if self.text.get(self.at) == Some(&'.') {
            self.at += 1;
            places = self.digits(&mut digits);
            count += places;
        }
        if count == 0 {
            return Err(self.wrong("a digit is expected"));
        }
        let exponent = self.exponent()?;
        let places = i64::try_from(places).unwrap_or(i64::MAX) - i64::from(exponent);
        let exact = digits.parse::<i128>().ok().and_then(|mantissa| match u32::try_from(places) {
            Ok(places) => Number::exact(mantissa, places),
            Err(_negative) => {
                let shift = u32::try_from(places.unsigned_abs()).ok()?;
                Number::exact(mantissa.checked_mul(10_i128.checked_pow(shift)?)?, 0)
            }
        });
        match exact {
            Some(exact) => Ok(exact),
            None => Number::float(format!("{digits}e{}", -places).parse().unwrap_or(f64::NAN)),
        }
    }

    /// The power of ten after `e`, if the number has one.
    fn exponent(&mut self) -> Result<i32, CalculateError> {
        let begin = self.at;
        if !matches!(self.text.get(self.at), Some('e' | 'E')) {
            return Ok(0);
        }
        self.at += 1;
        let mut text = String::new();
        if let Some(sign @ ('+' | '-')) = self.text.get(self.at) {
            text.push(*sign);
            self.at += 1;
        }
        match self.digits(&mut text) {
            // `2e` is two tokens, and the error names the second at its place.
            0 => {
                self.at = begin;
                Ok(0)
            }
            1..=EXPONENT_DIGITS => Ok(text.parse().unwrap_or(0)),
            _ => Err(self.wrong("the exponent is too long")),
        }
    }

    fn named(&mut self) -> Result<Number, CalculateError> {
        let begin = self.at;
        let is_part = |c: &char| c.is_alphanumeric() || *c == '_';
        while self.text.get(self.at).is_some_and(is_part) {
            self.at += 1;
        }
        let name: String = self.text.iter().skip(begin).take(self.at - begin).collect();
        let name = name.to_lowercase();
        let unknown = |what: &str| CalculateError::Syntax {
            at: begin + 1,
            what: format!("there is no {what} `{}`", name.chars().take(40).collect::<String>()),
        };
        if !self.eat('(') {
            return constant(&name).ok_or_else(|| unknown("constant"));
        }
        let takes = arity(&name).ok_or_else(|| unknown("function"))?;
        let mut args = Vec::new();
        if self.peek() != Some(')') {
            args.push(self.deeper(Self::sum)?);
            while self.eat(',') {
                args.push(self.deeper(Self::sum)?);
            }
        }
        self.close()?;
        if !takes.contains(&args.len()) {
            let what = format!("`{name}` does not take {} arguments", args.len());
            return Err(CalculateError::Syntax { at: begin + 1, what });
        }
        apply(&name, &args)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn expressions_have_the_value_that_people_expect() {
        for (expression, value) in [
            ("1+2*3", "7"),
            ("(1+2)*3", "9"),
            ("0.1 + 0.2", "0.3"),
            ("(19.99 * 3 + 4.50) * 1.19", "76.7193"),
            ("2^3^2", "512"),
            ("-2^2", "-4"),
            ("2**-1", "0.5"),
            ("2 ** 3 * 2", "16"),
            ("10 / 4", "2.5"),
            ("1/3", "0.333333333333333 (approximate)"),
            ("1/3*3", "1 (approximate)"),
            ("7 % 3", "1"),
            ("-7 % 3", "-1"),
            ("5.5 % 2", "1.5"),
            ("--5", "5"),
            ("1e3", "1000"),
            (".5 + 5.", "5.5"),
            ("1e-3", "0.001"),
            ("2e", "there is no"),
            ("123456789012345678 * 10", "1234567890123456780"),
            ("2^126", "85070591730234615865843651857942052864"),
            ("2^200", "1.60693804425899e60 (approximate)"),
            ("sqrt(6.25)", "2.5"),
            ("sqrt(2)", "1.4142135623731 (approximate)"),
            ("sqrt(0.1)^2", "0.1 (approximate)"),
            ("round(2.5)", "3"),
            ("round(-2.675, 2)", "-2.68"),
            ("round(pi, 4)", "3.1416"),
            ("floor(-1.5) + ceil(1.2) + trunc(-1.9)", "-1"),
            ("max(1, 2.5, -3) - min(4, 2)", "0.5"),
            ("sum(0.1, 0.2, 0.3)", "0.6"),
            ("SIN(0) + cos(0)", "1 (approximate)"),
            ("log(8, 2)", "3 (approximate)"),
            ("atan2(1, 1) * 4 - pi", "0 (approximate)"),
            ("5 × 3 ÷ 2 − 1", "6.5"),
            ("1e-7 * 1.0", "0.0000001"),
            ("exp(-20)", "2.06115362243856e-9 (approximate)"),
        ] {
            let told = calculate(expression).unwrap_or_else(|error| error.to_string());
            if value == "there is no" {
                assert!(told.contains("`e`"), "{told}");
            } else {
                assert_eq!(told, value, "{expression}");
            }
        }
    }

    #[test]
    fn what_has_no_value_says_why() {
        let deep = format!("{}1{}", "(".repeat(65), ")".repeat(65));
        let long = "1+".repeat(1_500);
        for (expression, why) in [
            ("", "ends where a number"),
            ("1 +", "ends where a number"),
            ("1 2", "`2` is not expected here"),
            ("(1", "a `)` is missing"),
            ("1)", "`)` is not expected"),
            ("1/0", "division by zero"),
            ("1 % 0.0", "division by zero"),
            ("0^-1", "division by zero"),
            ("log(2,1)", "division by zero"),
            ("1e308*10", "too large"),
            ("1e99999", "too large"),
            ("1e999999", "exponent is too long"),
            ("9^9^9^9", "too large"),
            ("exp(1000)", "too large"),
            ("sqrt(-1)", "not a real number"),
            ("ln(0)", "not a real number"),
            ("(-8)^0.5", "not a real number"),
            ("asin(2)", "not a real number"),
            ("x + 1", "at character 1: there is no constant `x`"),
            ("system(1)", "there is no function `system`"),
            ("sin()", "does not take 0 arguments"),
            ("sin(1,2)", "does not take 2 arguments"),
            ("1,000", "`,` is not expected"),
            ("$5", "not `$`"),
            ("round(1, 99)", "`round` takes"),
            (&deep, "nested more than 64 deep"),
            (&"-".repeat(1_000), "nested more than 64 deep"),
            (&"2^".repeat(900), "nested more than 64 deep"),
            (&long, "longer than 2000 bytes"),
        ] {
            let told = calculate(expression).unwrap_err().to_string();
            assert!(told.contains(why), "{expression}: {told}");
        }
    }

    #[test]
    fn exact_numbers_reach_their_ends() {
        let max = i128::MAX.to_string();
        let half = i128::MAX / 2;
        for expression in [
            format!("{max}+1"),
            format!("-{max}-1-1"),
            format!("{max}*{max}/{max}"),
            format!("abs(-{max}-1)"),
            format!("round({half}.5, 0)"),
            format!("ceil({max})+floor(-{max})"),
            format!("sqrt({max})"),
            format!("{max}%-1"),
            format!("(-{max}-1)%-1"),
            format!("(-{max}-1)/-1"),
            format!("1/{max}"),
            "0.0000000000000000000000000001/10".to_owned(),
            "0.5^4096".to_owned(),
        ] {
            calculate(&expression).unwrap();
        }
    }

    proptest! {
        #[test]
        fn nothing_panics(expression in "[0-9.+*/%^()e, -]{0,40}|[ -~π]{0,30}|(max|round|sqrt|log)\\([0-9.,e-]{0,30}\\)") {
            if let Ok(value) = calculate(&expression) {
                prop_assert!(!value.contains("inf") && !value.contains("NaN"), "{}", value);
            }
        }

        #[test]
        fn sums_of_cents_are_exact(cents in proptest::collection::vec(-1_000_000_i64..1_000_000, 1..40)) {
            let terms: Vec<String> = cents
                .iter()
                .map(|c| format!("({}{}.{:02})", if *c < 0 { "-" } else { "" }, c.abs() / 100, c.abs() % 100))
                .collect();
            let sum: i64 = cents.iter().sum();
            let told = calculate(&format!("({}) * 100", terms.join("+"))).unwrap();
            prop_assert_eq!(told, sum.to_string());
        }
    }
}
