//! Values with units as authors write them, and as people read them (CONTRACT 1.6, 5.2).

/// Longest span that [`parse_duration_ms`] takes: 365 days. Deadlines stay far from overflow.
pub const DURATION_MS_MAX: u64 = 365 * 24 * 60 * 60 * 1_000;

/// Largest size that [`parse_bytes`] takes: 1,024 GB.
pub const BYTES_MAX: u64 = 1 << 40;

/// Milliseconds of each unit of time.
pub(crate) const DURATIONS: [(&str, u64); 5] =
    [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// Bytes of each unit of size. `KB` and `KiB` are the same.
pub(crate) const SIZES: [(&str, u64); 7] = [
    ("B", 1),
    ("KB", 1 << 10),
    ("KiB", 1 << 10),
    ("MB", 1 << 20),
    ("MiB", 1 << 20),
    ("GB", 1 << 30),
    ("GiB", 1 << 30),
];

/// Why a value with a unit was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct UnitError {
    /// `units.missing` for a bare number, else `units.invalid`.
    pub code: &'static str,
    /// What is wrong, for the author.
    pub message: String,
}

impl UnitError {
    fn missing(text: &str, example: &str) -> UnitError {
        UnitError {
            code: "units.missing",
            message: format!("`{text}` has no unit: write it as in `{example}`"),
        }
    }

    fn invalid(message: String) -> UnitError {
        UnitError { code: "units.invalid", message }
    }
}

/// Reads a span such as `250ms`, `1.5s`, `2m`, `1h` or `7d`: whole milliseconds, from 1 to
/// [`DURATION_MS_MAX`].
///
/// # Errors
/// `units.missing` for a bare number, `units.invalid` for anything else that is no such span.
pub fn parse_duration_ms(text: &str) -> Result<u64, UnitError> {
    let kind = Kind {
        units: &DURATIONS,
        example: "10s",
        smallest: "1ms",
        most: DURATION_MS_MAX,
        largest: "365d",
        whole: "milliseconds",
    };
    kind.parse(text)
}

/// Reads a size such as `900B`, `64KB` or `1.5MiB`: whole bytes, from 1 to [`BYTES_MAX`].
///
/// # Errors
/// `units.missing` for a bare number, `units.invalid` for anything else that is no such size.
pub fn parse_bytes(text: &str) -> Result<u64, UnitError> {
    let kind = Kind {
        units: &SIZES,
        example: "64KB",
        smallest: "1B",
        most: BYTES_MAX,
        largest: "1024GB",
        whole: "bytes",
    };
    kind.parse(text)
}

/// What differs between spans and sizes.
struct Kind {
    units: &'static [(&'static str, u64)],
    example: &'static str,
    smallest: &'static str,
    most: u64,
    largest: &'static str,
    whole: &'static str,
}

impl Kind {
    fn parse(&self, text: &str) -> Result<u64, UnitError> {
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(end);
        let (whole, fraction) = match number.split_once('.') {
            Some((whole, fraction)) if !fraction.is_empty() && !fraction.contains('.') => {
                (whole, fraction)
            }
            Some(_) => return Err(self.no_value(text)),
            None => (number, ""),
        };
        if whole.is_empty() {
            return Err(self.no_value(text));
        }
        if unit.is_empty() {
            return Err(UnitError::missing(text, self.example));
        }
        let Some((_, scale)) = self.units.iter().find(|(name, _)| *name == unit) else {
            let names: Vec<&str> = self.units.iter().map(|(name, _)| *name).collect();
            return Err(UnitError::invalid(format!(
                "`{text}` has no unit that is known here: use one of {}",
                names.join(", ")
            )));
        };
        match scaled(whole, fraction, *scale) {
            Scaled::Whole(0) => Err(UnitError::invalid(format!(
                "`{text}` is below the smallest value, `{}`",
                self.smallest
            ))),
            Scaled::Whole(value) if value <= self.most => Ok(value),
            Scaled::Whole(_) | Scaled::TooLarge => Err(UnitError::invalid(format!(
                "`{text}` is above the largest value, `{}`",
                self.largest
            ))),
            Scaled::Broken => {
                Err(UnitError::invalid(format!("`{text}` is not a whole number of {}", self.whole)))
            }
        }
    }

    fn no_value(&self, text: &str) -> UnitError {
        UnitError::invalid(format!(
            "`{text}` is not a number with a unit: write it as in `{}`",
            self.example
        ))
    }
}

/// What a decimal number times a scale comes to.
enum Scaled {
    Whole(u64),
    Broken,
    TooLarge,
}

/// `whole.fraction * scale`, exactly: no floats.
fn scaled(whole: &str, fraction: &str, scale: u64) -> Scaled {
    let fraction = fraction.trim_end_matches('0');
    let Some(units) = whole.parse::<u64>().ok().and_then(|n| n.checked_mul(scale)) else {
        return Scaled::TooLarge;
    };
    // A part of a unit is whole only if ten to its digits divides digits * scale; no scale has more
    // than 30 factors of two, so more digits can never come out whole.
    if fraction.len() > 30 {
        return Scaled::Broken;
    }
    let digits = fraction.bytes().fold(0_u128, |sum, digit| sum * 10 + u128::from(digit - b'0'));
    let power = 10_u128.pow(fraction.len() as u32);
    // Divided by what both share first, so that nothing overflows.
    let shared = greatest_common_divisor(power, u128::from(scale));
    if digits % (power / shared) != 0 {
        return Scaled::Broken;
    }
    let part = digits / (power / shared) * (u128::from(scale) / shared);
    match u64::try_from(part).ok().and_then(|part| units.checked_add(part)) {
        Some(value) => Scaled::Whole(value),
        None => Scaled::TooLarge,
    }
}

/// Euclid's; `b` is not zero.
fn greatest_common_divisor(mut a: u128, mut b: u128) -> u128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// A span as error texts say it: `250 ms` below one second, else seconds without trailing zeros
/// (`10 s`, `1.5 s`).
pub fn describe_ms(span_ms: u64) -> String {
    if span_ms < 1_000 {
        return format!("{span_ms} ms");
    }
    let (seconds, rest) = (span_ms / 1_000, span_ms % 1_000);
    if rest == 0 {
        return format!("{seconds} s");
    }
    let decimals = format!("{rest:03}");
    format!("{seconds}.{} s", decimals.trim_end_matches('0'))
}

/// A number with thousands separators: `1,048,587`.
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn spans_are_read_exactly() {
        for (text, span_ms) in [
            ("10s", 10_000),
            ("1.5s", 1_500),
            ("250ms", 250),
            ("2m", 120_000),
            ("0.5m", 30_000),
            ("1h", 3_600_000),
            ("7d", 604_800_000),
            ("1ms", 1),
            ("0.001s", 1),
            ("1.500000000000000000000000000000000000s", 1_500),
            ("365d", DURATION_MS_MAX),
        ] {
            assert_eq!(parse_duration_ms(text), Ok(span_ms), "{text}");
        }
    }

    #[test]
    fn sizes_are_powers_of_two_and_whole_bytes() {
        for (text, bytes) in [
            ("1B", 1),
            ("64KB", 65_536),
            ("64KiB", 65_536),
            ("1.5KB", 1_536),
            ("2MB", 2 << 20),
            ("2MiB", 2 << 20),
            ("1GB", 1 << 30),
            ("1024GiB", BYTES_MAX),
            ("0.000000000931322574615478515625GB", 1),
            ("0.999999999068677425384521484375GB", (1 << 30) - 1),
        ] {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn a_bare_number_lacks_its_unit_and_the_rest_is_invalid() {
        for text in ["10", "1.5", "0"] {
            assert_eq!(parse_duration_ms(text).unwrap_err().code, "units.missing", "{text}");
            assert_eq!(parse_bytes(text).unwrap_err().code, "units.missing", "{text}");
        }
        for text in [
            "",
            "s",
            "10 s",
            "10S",
            "-1s",
            "+1s",
            "1.s",
            ".5s",
            "1.2.3s",
            "1e3s",
            "0s",
            "0ms",
            "0.5ms",
            "0.0001s",
            "366d",
            "99999999999999999999s",
            "10s ",
            "10KB",
            "1ſ",
        ] {
            assert_eq!(parse_duration_ms(text).unwrap_err().code, "units.invalid", "{text}");
        }
        for text in ["0KB", "0.1KB", "0B", "1.5B", "64kb", "1025GB", "1s", "-1KB", "17179869184GB"]
        {
            assert_eq!(parse_bytes(text).unwrap_err().code, "units.invalid", "{text}");
        }
    }

    #[test]
    fn spans_and_numbers_read_as_people_write_them() {
        for (span_ms, text) in [
            (0, "0 ms"),
            (250, "250 ms"),
            (999, "999 ms"),
            (1_000, "1 s"),
            (1_500, "1.5 s"),
            (1_050, "1.05 s"),
            (1_001, "1.001 s"),
            (10_000, "10 s"),
            (60_000, "60 s"),
        ] {
            assert_eq!(describe_ms(span_ms), text);
        }
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1,000"),
            (262_144, "262,144"),
            (1_048_587, "1,048,587"),
            (u64::MAX, "18,446,744,073,709,551,615"),
        ] {
            assert_eq!(thousands(number), text);
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused_within_the_bounds(text in "[0-9.]{0,40}[a-zA-Z]{0,3}|.*") {
            if let Ok(span_ms) = parse_duration_ms(&text) {
                prop_assert!((1..=DURATION_MS_MAX).contains(&span_ms));
            }
            if let Ok(bytes) = parse_bytes(&text) {
                prop_assert!((1..=BYTES_MAX).contains(&bytes));
            }
        }

        #[test]
        fn what_is_described_can_be_read_again(span_ms in 1..=DURATION_MS_MAX) {
            let text = describe_ms(span_ms).replace(' ', "");
            prop_assert_eq!(parse_duration_ms(&text), Ok(span_ms));
        }

        #[test]
        fn separators_change_no_digit(number: u64) {
            prop_assert_eq!(thousands(number).replace(',', ""), number.to_string());
        }
    }
}
