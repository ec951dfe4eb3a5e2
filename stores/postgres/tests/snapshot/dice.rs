//! Chances that a printed seed repeats, as far as a server's timing lets it.

/// The generator "splitmix64".
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Dice {
        Dice(seed)
    }

    /// One below a number that is not 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }

    pub(crate) fn one_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }

    /// From 1 to 1,000, small ones as often as large ones.
    pub(crate) fn page(&mut self) -> u32 {
        let top = [1, 3, 10, 50, 200, 1_000][usize::try_from(self.below(6)).unwrap()];
        u32::try_from(1 + self.below(top)).unwrap()
    }
}
