//! Assignment of shards to members.

use std::collections::BTreeMap;

/// Returns the member that should hold each shard. `held` has the current holder of each shard, or `None` for a free one.
///
/// Each member gets its share, rounded up or down. As few shards as possible move: a member keeps its shards up to its share,
/// and the members with the most shards get the rounded-up shares. Every member computes the same result from the same input.
/// Without members, the result has no holders.
pub(super) fn assign<'a>(members: &[&'a str], held: &[Option<&str>]) -> Vec<Option<&'a str>> {
    let mut counts: BTreeMap<&'a str, usize> = members.iter().map(|member| (*member, 0)).collect();
    let n_members = counts.len();
    if n_members == 0 {
        return vec![None; held.len()];
    }
    for holder in held.iter().flatten() {
        if let Some(count) = counts.get_mut(*holder) {
            *count += 1;
        }
    }
    let (share, n_larger) = (held.len() / n_members, held.len() % n_members);
    let mut by_count: Vec<(&'a str, usize)> = counts.into_iter().collect();
    // Members above the rounded-up share lose the same number of shards in either order. The sort is stable, so they stay
    // sorted by name, and the result does not change while they release their shards one after the other.
    by_count.sort_by_key(|(_, count)| std::cmp::Reverse((*count).min(share + 1)));
    let mut left: BTreeMap<&'a str, usize> = by_count
        .into_iter()
        .enumerate()
        .map(|(rank, (member, _))| (member, share + usize::from(rank < n_larger)))
        .collect();
    let mut wanted = Vec::with_capacity(held.len());
    for holder in held {
        let kept = holder.and_then(|holder| take(&mut left, holder));
        wanted.push(kept);
    }
    for shard in wanted.iter_mut().filter(|shard| shard.is_none()) {
        let next = left.iter().find(|(_, left)| **left > 0).map(|(member, _)| *member);
        *shard = next.and_then(|member| take(&mut left, member));
    }
    wanted
}

/// Takes one shard from a member's remaining share. Returns the member, or `None` if no share remains.
fn take<'a>(left: &mut BTreeMap<&'a str, usize>, member: &str) -> Option<&'a str> {
    let name = *left.get_key_value(member)?.0;
    let remaining = left.get_mut(member)?;
    *remaining = remaining.checked_sub(1)?;
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sizes(wanted: &[Option<&str>], members: &[&str]) -> Vec<usize> {
        let count =
            |member: &&str| wanted.iter().filter(|holder| **holder == Some(*member)).count();
        members.iter().map(count).collect()
    }

    #[test]
    fn members_that_come_and_go_move_few_shards() {
        let none = vec![None; 16];
        let alone = assign(&["a"], &none);
        assert_eq!(alone, vec![Some("a"); 16]);
        let two = assign(&["a", "b"], &alone);
        assert_eq!(sizes(&two, &["a", "b"]), [8, 8]);
        let three = assign(&["a", "b", "c"], &two);
        assert_eq!(sizes(&three, &["a", "b", "c"]), [6, 5, 5]);
        let moved = (0..16).filter(|n| two[*n] != three[*n]).count();
        assert_eq!(moved, 5, "only what the new one gets");
        let without = assign(&["a", "c"], &three);
        assert_eq!(sizes(&without, &["a", "c"]), [8, 8]);
        assert!((0..16).all(|n| three[n] == Some("b") || three[n] == without[n]));
        assert_eq!(assign(&[], &none), none);
        let many = ["a", "b", "c"];
        assert_eq!(sizes(&assign(&many, &[None, None]), &many), [1, 1, 0]);
    }

    #[test]
    fn a_half_finished_move_goes_on_in_the_same_direction() {
        let held: Vec<Option<&str>> =
            (0..16).map(|n| Some(if n < 8 { "a" } else { "b" })).collect();
        let wanted = assign(&["a", "b", "c"], &held);
        for released in 0..16 {
            let mut held = held.clone();
            // Each member releases the shards that it should not hold, in any order.
            (0..16)
                .filter(|n| held[*n] != wanted[*n])
                .take(released)
                .collect::<Vec<_>>()
                .into_iter()
                .for_each(|n| held[n] = None);
            assert_eq!(assign(&["a", "b", "c"], &held), wanted, "{released}");
        }
    }

    proptest! {
        #[test]
        fn assignments_are_balanced_and_move_as_little_as_possible(
            n_members in 1_usize..8,
            held in prop::collection::vec(0_usize..10, 0..40),
        ) {
            let names = ["a", "b", "c", "d", "e", "f", "g", "h", "gone", "free"];
            let members = &names[..n_members];
            let held: Vec<Option<&str>> =
                held.into_iter().map(|n| Some(names[n]).filter(|name| *name != "free")).collect();
            let wanted = assign(members, &held);
            let after = sizes(&wanted, members);
            let (least, most) = (after.iter().min().unwrap(), after.iter().max().unwrap());
            prop_assert_eq!(after.iter().sum::<usize>(), held.len());
            prop_assert!(most - least <= 1);
            prop_assert_eq!(&assign(members, &wanted), &wanted, "settled");
            // At least the excess over the rounded-up shares must move, so no balanced result keeps more shards.
            let before = sizes(&held, members);
            let (share, mut larger) = (held.len() / n_members, held.len() % n_members);
            let mut sorted = before.clone();
            sorted.sort_unstable_by(|a, b| b.cmp(a));
            let kept: usize = sorted.iter().map(|count| {
                let limit = share + usize::from(larger > 0);
                larger = larger.saturating_sub(1);
                *count.min(&limit)
            }).sum();
            let same = held.iter().zip(&wanted).filter(|(old, new)| old.is_some() && old == new);
            prop_assert_eq!(same.count(), kept);
        }
    }
}
