//! Numbers that look random and come from one seed (SplitMix64).

/// A source of numbers.
#[derive(Clone, Debug)]
pub struct Seed(u64);

impl Seed {
    /// From a number that a report can name.
    pub fn new(seed: u64) -> Seed {
        Seed(seed)
    }

    /// A source of its own for one use: what one draws does not move the other.
    #[must_use]
    pub fn branch(&self, what: &str) -> Seed {
        let mix = |state: u64, byte: u8| (state ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        Seed(what.bytes().fold(self.0 ^ 0xcbf2_9ce4_8422_2325, mix))
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`, which is not 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.draw() % end
    }

    /// A number of a range.
    pub fn within(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True in so many of a hundred.
    pub fn percent(&mut self, of_hundred: u64) -> bool {
        self.below(100) < of_hundred
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers_and_branches_are_apart() {
        let draw = |mut seed: Seed| (0..4).map(|_| seed.below(1_000)).collect::<Vec<_>>();
        assert_eq!(draw(Seed::new(7)), draw(Seed::new(7)));
        assert_ne!(draw(Seed::new(7)), draw(Seed::new(8)));
        assert_ne!(draw(Seed::new(7).branch("a")), draw(Seed::new(7).branch("b")));
    }
}
