//! Random numbers from a seed.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::id::Entropy;

/// A random number generator from a seed (splitmix64).
#[derive(Debug)]
pub(super) struct Seeded(AtomicU64);

impl Seeded {
    pub(super) const fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }

    /// A number below `n`; 0 if `n` is 0.
    pub(super) fn below(&self, n: u32) -> u32 {
        u32::try_from(self.bits() % u64::from(n.max(1))).unwrap_or(0)
    }

    /// A random element of an array.
    pub(super) fn one_of<T: Copy, const N: usize>(&self, all: [T; N]) -> T {
        const { assert!(0 < N && N <= u32::MAX as usize) };
        all[self.below(u32::try_from(N).unwrap_or(1)) as usize]
    }
}

impl Entropy for Seeded {
    fn bits(&self) -> u64 {
        let x =
            self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed).wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }
}
