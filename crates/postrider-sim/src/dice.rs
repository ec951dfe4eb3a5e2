//! The only source of chance in a world: streams of numbers, each from the seed and a name.
//!
//! Every actor draws from a stream of its own, so one that draws once more or less does not change
//! what the others do. That is what lets a failing run be made smaller.

/// A stream of numbers (splitmix64).
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// The stream of a seed and a name.
    pub fn new(seed: u64, name: &str) -> Dice {
        let mut dice = Dice(seed ^ fold(name));
        dice.bits();
        dice
    }

    /// A stream that depends on this one's place and a name.
    pub fn fork(&mut self, name: &str) -> Dice {
        Dice::new(self.bits(), name)
    }

    /// 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below the bound; 0 for a bound of 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.bits() % bound }
    }

    /// A number of the range, both ends included.
    pub fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most.saturating_sub(least) + 1)
    }

    /// True so many times in ten thousand.
    pub fn chance(&mut self, per_ten_thousand: u32) -> bool {
        self.below(10_000) < u64::from(per_ten_thousand)
    }

    /// One of several.
    ///
    /// # Panics
    /// If there are none.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        let index = usize::try_from(self.below(of.len() as u64)).expect("invariant: below a usize");
        &of[index]
    }
}

/// FNV-1a of a name.
fn fold(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_its_seed_and_its_name() {
        let draw = |seed, name| {
            (0..4).map(move |_| 0).scan(Dice::new(seed, name), |d, _: i32| Some(d.bits()))
        };
        assert!(draw(1, "a").eq(draw(1, "a")));
        assert!(draw(1, "a").ne(draw(1, "b")));
        assert!(draw(1, "a").ne(draw(2, "a")));
    }
}
