//! Numbers: decimals that are exact as long as they fit, and floats after that.

use std::fmt;

use super::CalculateError;

/// Most decimal places of an exact number.
const PLACES: u32 = 28;
/// Beyond this power a result is a float in any case.
const POWER_MAX: u32 = 4_096;
/// Digits of a float that are shown: what an operation or two get wrong is behind them.
const DIGITS: usize = 15;

/// A finite number.
#[derive(Clone, Copy, Debug)]
pub(super) enum Number {
    /// `mantissa / 10^places`, without zeros at its end.
    Exact { mantissa: i128, places: u32 },
    /// An approximation; finite.
    Float(f64),
}

impl Number {
    pub(super) const ZERO: Self = Self::Exact { mantissa: 0, places: 0 };

    /// An exact number, if it has few enough places.
    pub(super) fn exact(mut mantissa: i128, mut places: u32) -> Option<Self> {
        while places > 0 && mantissa % 10 == 0 {
            mantissa /= 10;
            places -= 1;
        }
        (places <= PLACES).then_some(Self::Exact { mantissa, places })
    }

    /// A float, if it is a number at all.
    pub(super) fn float(value: f64) -> Result<Self, CalculateError> {
        if value.is_nan() {
            Err(CalculateError::NotReal)
        } else if value.is_infinite() {
            Err(CalculateError::Overflow)
        } else {
            Ok(Self::Float(value))
        }
    }

    /// The nearest float.
    pub(super) fn to_f64(self) -> f64 {
        match self {
            // Through text, so that it is the nearest one: a quotient of floats may not be.
            Self::Exact { mantissa, places } => {
                format!("{mantissa}e-{places}").parse().unwrap_or(f64::NAN)
            }
            Self::Float(value) => value,
        }
    }

    /// The integer that it is, if it is a small one.
    pub(super) fn as_small(self) -> Option<i32> {
        match self {
            Self::Exact { mantissa, places: 0 } => i32::try_from(mantissa).ok(),
            Self::Exact { .. } | Self::Float(_) => None,
        }
    }

    /// Mantissa and places of an exact one.
    const fn parts(self) -> Option<(i128, u32)> {
        match self {
            Self::Exact { mantissa, places } => Some((mantissa, places)),
            Self::Float(_) => None,
        }
    }

    pub(super) fn is_zero(self) -> bool {
        matches!(self, Self::Exact { mantissa: 0, .. }) || self.to_f64() == 0.0
    }

    pub(super) fn negate(self) -> Self {
        match self {
            Self::Exact { mantissa, places } => match mantissa.checked_neg() {
                Some(mantissa) => Self::Exact { mantissa, places },
                None => Self::Float(-self.to_f64()),
            },
            Self::Float(value) => Self::Float(-value),
        }
    }

    pub(super) fn add(self, other: Self) -> Result<Self, CalculateError> {
        let exact =
            aligned(self, other).and_then(|(a, b, places)| Self::exact(a.checked_add(b)?, places));
        exact.map_or_else(|| Self::float(self.to_f64() + other.to_f64()), Ok)
    }

    pub(super) fn multiply(self, other: Self) -> Result<Self, CalculateError> {
        let exact = exact_product(self, other);
        exact.map_or_else(|| Self::float(self.to_f64() * other.to_f64()), Ok)
    }

    pub(super) fn divide(self, other: Self) -> Result<Self, CalculateError> {
        if other.is_zero() {
            return Err(CalculateError::DivisionByZero);
        }
        let exact = exact_quotient(self, other);
        exact.map_or_else(|| Self::float(self.to_f64() / other.to_f64()), Ok)
    }

    pub(super) fn remainder(self, other: Self) -> Result<Self, CalculateError> {
        if other.is_zero() {
            return Err(CalculateError::DivisionByZero);
        }
        let exact =
            aligned(self, other).and_then(|(a, b, places)| Self::exact(a.checked_rem(b)?, places));
        exact.map_or_else(|| Self::float(self.to_f64() % other.to_f64()), Ok)
    }

    pub(super) fn power(self, exponent: Self) -> Result<Self, CalculateError> {
        if self.is_zero() && exponent.to_f64() < 0.0 {
            return Err(CalculateError::DivisionByZero);
        }
        let exact = exponent.as_small().filter(|n| n.unsigned_abs() <= POWER_MAX).and_then(|n| {
            let whole = exact_power(self, n.unsigned_abs())?;
            let one = Self::Exact { mantissa: 1, places: 0 };
            if n < 0 { exact_quotient(one, whole) } else { Some(whole) }
        });
        exact.map_or_else(|| Self::float(self.to_f64().powf(exponent.to_f64())), Ok)
    }

    /// Which of the two is greater.
    pub(super) fn compare(self, other: Self) -> std::cmp::Ordering {
        match aligned(self, other) {
            Some((a, b, _)) => a.cmp(&b),
            None => self.to_f64().total_cmp(&other.to_f64()),
        }
    }
}

/// Both mantissas, and the places that they have then.
fn aligned(one: Number, other: Number) -> Option<(i128, i128, u32)> {
    let ((above, places), (below, other_places)) = (one.parts()?, other.parts()?);
    let most = places.max(other_places);
    let above = above.checked_mul(ten(most - places)?)?;
    Some((above, below.checked_mul(ten(most - other_places)?)?, most))
}

fn ten(power: u32) -> Option<i128> {
    10_i128.checked_pow(power)
}

fn exact_product(one: Number, other: Number) -> Option<Number> {
    let ((mantissa, places), (factor, factor_places)) = (one.parts()?, other.parts()?);
    Number::exact(mantissa.checked_mul(factor)?, places + factor_places)
}

/// The quotient, if it has an end.
fn exact_quotient(a: Number, b: Number) -> Option<Number> {
    let (x, y, _) = aligned(a, b)?;
    let common = gcd(x.unsigned_abs(), y.unsigned_abs());
    let common = i128::try_from(common).ok().filter(|common| *common != 0)?;
    let (mut above, mut below) = (x.checked_div(common)?, y.checked_div(common)?);
    if below < 0 {
        (above, below) = (above.checked_neg()?, below.checked_neg()?);
    }
    let mut places = 0;
    while below != 1 {
        let (factor, shift) = match (below % 10, below % 5, below % 2) {
            (0, ..) => (1, 10),
            (_, 0, _) => (2, 5),
            (.., 0) => (5, 2),
            _ => return None,
        };
        above = above.checked_mul(factor)?;
        below /= shift;
        places += 1;
    }
    Number::exact(above, places)
}

fn gcd(mut a: u128, mut b: u128) -> u128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

fn exact_power(base: Number, mut exponent: u32) -> Option<Number> {
    let mut result = Number::Exact { mantissa: 1, places: 0 };
    let mut square = base;
    loop {
        if exponent & 1 == 1 {
            result = exact_product(result, square)?;
        }
        exponent >>= 1;
        if exponent == 0 {
            return Some(result);
        }
        square = exact_product(square, square)?;
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Exact { mantissa, places: 0 } => write!(f, "{mantissa}"),
            Self::Exact { mantissa, places } => {
                let width = places as usize + 1;
                let digits = format!("{:0width$}", mantissa.unsigned_abs());
                let (whole, part) = digits.split_at(digits.len() - places as usize);
                let sign = if mantissa < 0 { "-" } else { "" };
                write!(f, "{sign}{whole}.{part}")
            }
            Self::Float(value) => {
                let rounded: f64 = format!("{value:.*e}", DIGITS - 1).parse().unwrap_or(value);
                let size = rounded.abs();
                if size != 0.0 && !(1e-6..1e21).contains(&size) {
                    write!(f, "{rounded:e} (approximate)")
                } else {
                    write!(f, "{rounded} (approximate)")
                }
            }
        }
    }
}
