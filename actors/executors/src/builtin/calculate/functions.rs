//! The named functions and constants.

use super::{CalculateError, number::Number};

/// Most places to round to.
const ROUND_PLACES: i32 = 28;

/// The constant of this name.
pub(super) fn constant(name: &str) -> Option<Number> {
    let value = match name {
        "pi" | "π" => std::f64::consts::PI,
        "tau" | "τ" => std::f64::consts::TAU,
        "e" => std::f64::consts::E,
        _ => return None,
    };
    Some(Number::Float(value))
}

/// How many arguments the function of this name takes.
pub(super) fn arity(name: &str) -> Option<std::ops::RangeInclusive<usize>> {
    match name {
        "abs" | "sqrt" | "cbrt" | "exp" | "ln" | "log10" | "log2" | "sin" | "cos" | "tan"
        | "asin" | "acos" | "atan" | "sinh" | "cosh" | "tanh" | "floor" | "ceil" | "trunc" => {
            Some(1..=1)
        }
        "round" => Some(1..=2),
        "log" | "atan2" | "hypot" => Some(2..=2),
        "min" | "max" | "sum" => Some(1..=usize::MAX),
        _ => None,
    }
}

/// The function's value; `args` are as many as it takes.
pub(super) fn apply(name: &str, args: &[Number]) -> Result<Number, CalculateError> {
    let (first, second) = match args {
        [] => return Err(CalculateError::NotReal),
        [one] => (*one, Number::ZERO),
        [one, two, ..] => (*one, *two),
    };
    match name {
        "min" => Ok(args.iter().copied().min_by(|a, b| a.compare(*b)).unwrap_or(first)),
        "max" => Ok(args.iter().copied().max_by(|a, b| a.compare(*b)).unwrap_or(first)),
        "sum" => args.iter().try_fold(Number::ZERO, |sum, arg| sum.add(*arg)),
        "abs" if first.compare(Number::ZERO).is_lt() => Ok(first.negate()),
        "abs" => Ok(first),
        "floor" | "ceil" | "trunc" => to_whole(name, first),
        "round" => round(first, second),
        "sqrt" => sqrt(first),
        _ => float(name, first.to_f64(), second.to_f64()),
    }
}

fn float(name: &str, x: f64, y: f64) -> Result<Number, CalculateError> {
    let positive = |x: f64| if x > 0.0 { Ok(x) } else { Err(CalculateError::NotReal) };
    Number::float(match name {
        "cbrt" => x.cbrt(),
        "exp" => x.exp(),
        "ln" => positive(x)?.ln(),
        "log10" => positive(x)?.log10(),
        "log2" => positive(x)?.log2(),
        "log" => {
            let base = positive(y)?.ln();
            if base == 0.0 {
                return Err(CalculateError::DivisionByZero);
            }
            positive(x)?.ln() / base
        }
        "sin" => x.sin(),
        "cos" => x.cos(),
        "tan" => x.tan(),
        "asin" => x.asin(),
        "acos" => x.acos(),
        "atan" => x.atan(),
        "atan2" => x.atan2(y),
        "hypot" => x.hypot(y),
        "sinh" => x.sinh(),
        "cosh" => x.cosh(),
        "tanh" => x.tanh(),
        _ => f64::NAN,
    })
}

/// Exact where the root is exact: `sqrt(6.25)` is `2.5`.
fn sqrt(x: Number) -> Result<Number, CalculateError> {
    if let Number::Exact { mantissa, places } = x
        && mantissa >= 0
    {
        let odd = places % 2 == 1;
        let even = if odd { mantissa.checked_mul(10) } else { Some(mantissa) };
        if let Some(even) = even {
            let root = even.isqrt();
            if root * root == even
                && let Some(exact) = Number::exact(root, places.div_ceil(2))
            {
                return Ok(exact);
            }
        }
    }
    Number::float(x.to_f64().sqrt())
}

fn to_whole(name: &str, x: Number) -> Result<Number, CalculateError> {
    match x {
        Number::Exact { mantissa, places } => {
            let unit = 10_i128.pow(places);
            let whole = match name {
                "floor" => mantissa.div_euclid(unit),
                // Places are none where the unit is one, so the sum cannot pass the mantissa.
                "ceil" => mantissa.div_euclid(unit) + i128::from(mantissa.rem_euclid(unit) != 0),
                _ => mantissa / unit,
            };
            Ok(Number::Exact { mantissa: whole, places: 0 })
        }
        Number::Float(value) => Number::float(match name {
            "floor" => value.floor(),
            "ceil" => value.ceil(),
            _ => value.trunc(),
        }),
    }
}

/// Half away from zero, as people round.
fn round(x: Number, places: Number) -> Result<Number, CalculateError> {
    let wanted = places.as_small().filter(|places| (0..=ROUND_PLACES).contains(places));
    let Some(wanted) = wanted.and_then(|places| u32::try_from(places).ok()) else {
        return Err(CalculateError::Syntax {
            at: 1,
            what: format!("`round` takes a whole number of places from 0 to {ROUND_PLACES}"),
        });
    };
    match x {
        Number::Exact { places, .. } if places <= wanted => Ok(x),
        Number::Exact { mantissa, places } => {
            let unit = 10_i128.pow(places - wanted);
            let (whole, rest) = (mantissa / unit, mantissa % unit);
            let up = i128::from(rest.unsigned_abs() >= unit.unsigned_abs().div_ceil(2));
            let rounded = whole + up * mantissa.signum();
            Number::exact(rounded, wanted).ok_or(CalculateError::Overflow)
        }
        Number::Float(value) => {
            // What is rounded to few places is meant as a decimal: exact again, if it fits.
            let text = format!("{value:.*}", wanted as usize);
            let (whole, part) = text.split_once('.').unwrap_or((text.as_str(), ""));
            let exact = format!("{whole}{part}").parse().ok();
            exact.and_then(|mantissa| Number::exact(mantissa, wanted)).map_or(Ok(x), Ok)
        }
    }
}
