//! Shuffle sharding: deals each flow a hand of queues, so that two flows rarely share all their queues.

/// Maximum number of hash bits that a deal may use. More bits would make the last cards less uniform.
const MAX_HASH_BITS: f64 = 60.0;
/// Maximum size of a hand that fits in [`MAX_HASH_BITS`].
const MAX_HAND: usize = 15;
/// Maximum number of queues. Upstream has the same limit.
const MAX_DECK: usize = 1 << 26;

/// Dealer of hands of queues by a flow's hash.
///
/// Upstream: `Dealer`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Dealer {
    /// Number of queues of the level.
    deck_size: u64,
    /// Number of queues that a flow may use.
    hand_size: usize,
}

/// Hand of distinct queues.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hand {
    /// Indices of the queues; only the first `size` are valid.
    cards: [usize; MAX_HAND],
    size: usize,
}

impl Hand {
    /// Returns the queues of the hand, in the order of the deal.
    pub(super) fn cards(&self) -> &[usize] {
        &self.cards[..self.size]
    }
}

impl Dealer {
    /// Creates a dealer. Returns `None` if a size is out of range, or if the deal needs more than [`MAX_HASH_BITS`].
    ///
    /// Upstream: `NewDealer`.
    pub(super) fn new(deck_size: usize, hand_size: usize) -> Option<Self> {
        let bits = ((deck_size as f64).log2() * hand_size as f64).ceil();
        let fits = (1..=deck_size.min(MAX_HAND)).contains(&hand_size)
            && deck_size <= MAX_DECK
            && bits <= MAX_HASH_BITS;
        fits.then_some(Self { deck_size: deck_size as u64, hand_size })
    }

    /// Deals a hand of distinct queues.
    ///
    /// Upstream: `Deal`.
    pub(super) fn deal(&self, mut hash: u64) -> Hand {
        let mut cards = [0; MAX_HAND];
        for (dealt, card) in cards.iter_mut().enumerate().take(self.hand_size) {
            let remaining = self.deck_size - dealt as u64;
            *card = (hash % remaining) as usize;
            hash /= remaining;
        }
        // Each remainder is an index into the cards that remained at its deal. To convert it to an index in the whole
        // deck, undo the earlier deals, the latest first. Each deal removed a card, so every index that is not lower
        // than the index of the removed card increases by one.
        let remainders = cards;
        for (dealt, card) in cards.iter_mut().enumerate().take(self.hand_size) {
            for earlier in remainders[..dealt].iter().rev() {
                if *card >= *earlier {
                    *card += 1;
                }
            }
        }
        Hand { cards, size: self.hand_size }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dealer_needs_sizes_in_range() {
        for (deck, hand, good) in [
            (128, 8, true),
            (64, 6, true),
            (1, 1, true),
            (0, 0, false),
            (4, 5, false),
            (8, 0, false),
            (128, 9, false),
            (1 << 27, 1, false),
        ] {
            assert_eq!(Dealer::new(deck, hand).is_some(), good, "{hand} of {deck}");
        }
    }

    #[test]
    fn hands_are_distinct_and_cover_the_deck() {
        let dealer = Dealer::new(9, 3).expect("a dealer");
        let mut seen = [0_u32; 9];
        // Each ordered hand of three out of nine occurs once.
        for hash in 0..9 * 8 * 7 {
            let hand = dealer.deal(hash);
            let mut cards = hand.cards().to_vec();
            cards.iter().for_each(|card| seen[*card] += 1);
            cards.sort_unstable();
            cards.dedup();
            assert_eq!(cards.len(), 3, "{hash}");
        }
        assert_eq!(seen, [168; 9]);
    }

    #[test]
    fn hands_equal_upstreams() {
        // Values from upstream's `TestDealIntoHand`, and from its algorithm.
        assert_eq!(Dealer::new(6, 6).expect("a dealer").deal(0).cards(), [0, 1, 2, 3, 4, 5]);
        assert_eq!(Dealer::new(5, 3).expect("a dealer").deal(3).cards(), [3, 0, 1]);
        assert_eq!(
            Dealer::new(128, 3).expect("a dealer").deal(128 * 127 * 126 - 1).cards(),
            [127, 126, 125]
        );
    }
}
