//! Exact amounts (CONTRACT 7.1): decimal texts outside, whole nano-units of a currency inside. No
//! floats anywhere.

use serde::{Deserialize, Serialize};

/// Nano-units of one unit of a currency.
pub const NANO_PER_UNIT: i64 = 1_000_000_000;

/// Decimals that a nano-unit can hold.
const DECIMALS: usize = 9;

/// An amount of one currency.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Money {
    /// Whole nano-units (a thousand-millionth of the currency's unit). Parsed amounts are never
    /// negative.
    pub nano: i64,
    /// Three capital letters, as in ISO 4217. The list of currencies is not checked.
    pub currency: String,
}

impl std::fmt::Display for Money {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", describe_nano(self.nano), self.currency)
    }
}

/// Why a text is no amount.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MoneyError {
    /// Not digits with at most one decimal point between them.
    #[error("`{0}` is not a decimal amount: write it as in `0.05`")]
    Invalid(String),
    /// Below zero.
    #[error("`{0}` is negative: an amount starts from 0")]
    Negative(String),
    /// More than an `i64` of nano-units holds: about 9.2 thousand million units.
    #[error("`{0}` is too large an amount")]
    TooLarge(String),
    /// A number without its currency.
    #[error("`{0}` has no currency: write it as in `0.05 USD`")]
    CurrencyMissing(String),
    /// A currency that is not three capital letters.
    #[error("`{0}` has no currency of three capital letters: write it as in `0.05 USD`")]
    CurrencyInvalid(String),
}

impl MoneyError {
    /// The stable code that callers match on.
    pub const fn code(&self) -> &'static str {
        match self {
            MoneyError::CurrencyMissing(_) => "units.missing",
            MoneyError::CurrencyInvalid(_) => "units.invalid",
            MoneyError::Invalid(_) | MoneyError::Negative(_) | MoneyError::TooLarge(_) => {
                "money.invalid"
            }
        }
    }
}

/// Reads a decimal text (`12`, `0.05`) as nano-units of its currency.
///
/// The tenth decimal decides the ninth, half up: `0.0000000005` is 1 nano-unit, `0.0000000004` is
/// none. Further decimals cannot change that.
///
/// # Errors
/// A text that is no plain decimal (exponents, signs, separators), is negative, or does not fit.
pub fn parse_nano(text: &str) -> Result<i64, MoneyError> {
    let (whole, fraction) = match text.split_once('.') {
        Some((_, "")) => return Err(MoneyError::Invalid(text.into())),
        Some(parts) => parts,
        None => (text, ""),
    };
    let is_digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    if let Some(rest) = whole.strip_prefix('-')
        && !rest.is_empty()
        && is_digits(rest)
        && is_digits(fraction)
    {
        return Err(MoneyError::Negative(text.into()));
    }
    if whole.is_empty() || !is_digits(whole) || !is_digits(fraction) {
        return Err(MoneyError::Invalid(text.into()));
    }
    let too_large = || MoneyError::TooLarge(text.into());
    let units: i64 = whole.parse().map_err(|_| too_large())?;
    let mut nano = 0_i64;
    for place in 0..DECIMALS {
        let digit = fraction.as_bytes().get(place).map_or(0, |b| b - b'0');
        nano = nano * 10 + i64::from(digit);
    }
    if fraction.as_bytes().get(DECIMALS).is_some_and(|b| *b >= b'5') {
        nano += 1;
    }
    units.checked_mul(NANO_PER_UNIT).and_then(|sum| sum.checked_add(nano)).ok_or_else(too_large)
}

/// Nano-units as a decimal text without trailing zeros: `50_000_000` is `0.05`.
pub fn describe_nano(nano: i64) -> String {
    let sign = if nano < 0 { "-" } else { "" };
    let size = nano.unsigned_abs();
    let per_unit = NANO_PER_UNIT.unsigned_abs();
    let (units, rest) = (size / per_unit, size % per_unit);
    if rest == 0 {
        return format!("{sign}{units}");
    }
    let decimals = format!("{rest:09}");
    format!("{sign}{units}.{}", decimals.trim_end_matches('0'))
}

/// Reads an amount with its currency, one space between: `0.05 USD`.
///
/// # Errors
/// Those of [`parse_nano`], and a currency that is missing or not three capital letters.
pub fn parse_money(text: &str) -> Result<Money, MoneyError> {
    let Some((amount, currency)) = text.split_once(' ') else {
        return Err(match parse_nano(text) {
            Ok(_) => MoneyError::CurrencyMissing(text.into()),
            Err(error) => error,
        });
    };
    let nano = parse_nano(amount)?;
    if currency.len() != 3 || !currency.bytes().all(|b| b.is_ascii_uppercase()) {
        return Err(MoneyError::CurrencyInvalid(text.into()));
    }
    Ok(Money { nano, currency: currency.into() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn decimals_become_nano_units_exactly() {
        for (text, nano) in [
            ("0", 0),
            ("0.05", 50_000_000),
            ("0.1", 100_000_000),
            ("12", 12_000_000_000),
            ("007.50", 7_500_000_000),
            ("0.000000001", 1),
            ("9223372036.854775807", i64::MAX),
        ] {
            assert_eq!(parse_nano(text), Ok(nano), "{text}");
        }
    }

    #[test]
    fn the_tenth_decimal_rounds_half_up() {
        for (text, nano) in [
            ("0.0000000005", 1),
            ("0.0000000004999", 0),
            ("0.9999999995", NANO_PER_UNIT),
            ("1.0000000014", 1_000_000_001),
        ] {
            assert_eq!(parse_nano(text), Ok(nano), "{text}");
        }
        assert_eq!(parse_nano("9223372036.8547758065"), Ok(i64::MAX));
        assert!(matches!(parse_nano("9223372036.8547758075"), Err(MoneyError::TooLarge(_))));
    }

    #[test]
    fn what_is_no_amount_is_refused_by_kind() {
        for text in ["", ".", "1.", ".5", "+1", "1e3", "1,5", "1_0", "1.2.3", " 1", "-", "٣", "NaN"]
        {
            assert!(matches!(parse_nano(text), Err(MoneyError::Invalid(_))), "{text}");
        }
        assert!(matches!(parse_nano("-0.01"), Err(MoneyError::Negative(_))));
        assert!(matches!(parse_nano("9223372037"), Err(MoneyError::TooLarge(_))));
        assert!(matches!(parse_nano("99999999999999999999"), Err(MoneyError::TooLarge(_))));
    }

    #[test]
    fn an_amount_has_a_currency() {
        let money = Money { nano: 50_000_000, currency: "USD".into() };
        assert_eq!(parse_money("0.05 USD"), Ok(money.clone()));
        assert_eq!(money.to_string(), "0.05 USD");
        assert_eq!(parse_money("0.05").unwrap_err().code(), "units.missing");
        for text in ["0.05 usd", "0.05 US", "0.05  USD", "0.05 USD ", "0.05 "] {
            assert_eq!(parse_money(text).unwrap_err().code(), "units.invalid", "{text}");
        }
        for text in ["USD", "x USD", "-1 USD"] {
            assert_eq!(parse_money(text).unwrap_err().code(), "money.invalid", "{text}");
        }
    }

    proptest! {
        #[test]
        fn an_amount_survives_its_text(nano in 0..=i64::MAX) {
            prop_assert_eq!(parse_nano(&describe_nano(nano)), Ok(nano));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[-0-9.]{0,30}|.*") {
            if let Ok(nano) = parse_nano(&text) {
                prop_assert!(nano >= 0);
            }
        }
    }

    #[test]
    fn a_negative_balance_can_be_shown() {
        assert_eq!(describe_nano(-1_500_000_000), "-1.5");
        assert_eq!(describe_nano(i64::MIN), "-9223372036.854775808");
    }
}
