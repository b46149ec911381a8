//! Mutations of inputs, from a fixed seed.

/// Tokens that occur in the formats of the targets.
const TOKENS: [&[u8]; 36] = [
    b"{",
    b"}",
    b"[",
    b"]",
    b"\"",
    b":",
    b",",
    b"null",
    b"true",
    b"-1",
    b"1e400",
    b"0x7f",
    b"9223372036854775808",
    b"\\u0000",
    b"\xff",
    b"\n---\n",
    b"$patch",
    b"$retainKeys",
    b"$deleteFromPrimitiveList/a",
    b"$setElementOrder/a",
    b"metadata",
    b"spec",
    b"name",
    b"&a ",
    b"*a",
    b"<<: ",
    b"- ",
    b"/",
    b"~1",
    b"-",
    b"..",
    b"[*]",
    b".map(x, x)",
    b"'",
    b"k:{\"name\":1}",
    b"\n  ",
];

/// A generator of mutated inputs (xorshift).
pub(crate) struct Mutator(u64);

impl Mutator {
    /// Creates a mutator whose seed is derived from a name.
    pub(crate) fn new(name: &str) -> Self {
        Self(name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        }))
    }

    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % (end.max(1) as u64)).expect("less than a usize")
    }

    fn range(&mut self, data: &[u8]) -> (usize, usize) {
        let start = self.below(data.len() + 1);
        let most = (data.len() - start).min(64);
        (start, start + self.below(most + 1))
    }

    /// Returns a mutation of one of `seeds`, of at most `longest` bytes.
    pub(crate) fn mutate(&mut self, seeds: &[Vec<u8>], longest: usize) -> Vec<u8> {
        let pick = self.below(seeds.len());
        let mut data = seeds.get(pick).cloned().unwrap_or_default();
        for _ in 0..=self.below(4) {
            let (start, end) = self.range(&data);
            match self.below(7) {
                0 => drop(data.drain(start..end)),
                1 => {
                    let token = TOKENS[self.below(TOKENS.len())];
                    data.splice(start..start, token.iter().copied());
                }
                2 => {
                    let token = TOKENS[self.below(TOKENS.len())];
                    data.splice(start..end, token.iter().copied());
                }
                3 => {
                    let piece = data[start..end].repeat(1 + self.below(8));
                    data.splice(start..start, piece);
                }
                4 => {
                    let other = self.below(seeds.len());
                    let other = seeds.get(other).cloned().unwrap_or_default();
                    let (from, to) = self.range(&other);
                    data.splice(start..end, other[from..to].iter().copied());
                }
                5 => {
                    if let Some(byte) = data.get_mut(start) {
                        *byte ^= 1 << self.below(8);
                    }
                }
                _ => {
                    let byte = u8::try_from(self.below(256)).expect("a byte");
                    data.insert(start, byte);
                }
            }
        }
        data.truncate(longest);
        data
    }
}

mod tests {
    #[test]
    fn one_seed_gives_the_same_mutations() {
        let seeds = [b"abc".to_vec(), b"{\"a\":1}".to_vec()];
        let all = |name| {
            let mut mutator = super::Mutator::new(name);
            (0..50).map(|_| mutator.mutate(&seeds, 64)).collect::<Vec<_>>()
        };
        assert_eq!(all("a"), all("a"));
        assert_ne!(all("a"), all("b"));
        assert!(all("a").iter().all(|data| data.len() <= 64));
    }
}
