//! Unified diffs of strings, for messages. Finds unchanged lines as Python's `difflib` does: first the longest block of
//! lines that is in both strings, then the blocks before and after it. The result is not always the smallest diff.
//!
//! Upstream: `k8s.io/apimachinery/pkg/util/diff`, which calls `github.com/pmezard/go-difflib`.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;

/// Number of unchanged lines before and after a change.
const CONTEXT: usize = 3;

/// Minimum number of lines of the new string at which frequent lines ("popular" in difflib) cannot start a block.
const MIN_LINES_FOR_POPULAR: usize = 200;

/// Maximum number of matching pairs of lines to examine. The remaining lines count as changed.
const MAX_PAIRS: usize = 4_000_000;

/// Returns the hunks of a unified diff; empty if the strings are equal.
pub fn unified(old: &str, new: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.split('\n').collect(), new.split('\n').collect());
    let changes = Matcher::new(&old, &new).changes();
    let mut out = String::new();
    for hunk in hunks(&changes) {
        let (Some(first), Some(last)) = (hunk.first(), hunk.last()) else { continue };
        let before = first.old.start.min(first.new.start).min(CONTEXT);
        let after = (old.len() - last.old.end).min(new.len() - last.new.end).min(CONTEXT);
        let old_range = first.old.start - before..last.old.end + after;
        let new_range = first.new.start - before..last.new.end + after;
        out.push_str(&format!(
            "@@ -{} +{} @@\n",
            header_range(&old_range),
            header_range(&new_range)
        ));
        let mut at = old_range.start;
        let mut put = |sign: char, lines: &[&str]| {
            for line in lines {
                out.push(sign);
                out.push_str(line);
                out.push('\n');
            }
        };
        for change in hunk {
            put(' ', &old[at..change.old.start]);
            put('-', &old[change.old.clone()]);
            put('+', &new[change.new.clone()]);
            at = change.old.end;
        }
        put(' ', &old[at..old_range.end]);
    }
    out
}

/// Old lines and the new lines that replace them. One of the ranges may be empty.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Change {
    old: Range<usize>,
    new: Range<usize>,
}

/// Groups changes whose context lines touch or overlap.
fn hunks(changes: &[Change]) -> impl Iterator<Item = &[Change]> {
    changes.chunk_by(|a, b| b.old.start - a.old.end <= 2 * CONTEXT)
}

/// Formats a range of a hunk header: the number of the first line, and the count of lines unless it is one.
fn header_range(range: &Range<usize>) -> String {
    match range.len() {
        0 => format!("{},0", range.start),
        1 => (range.start + 1).to_string(),
        n_lines => format!("{},{n_lines}", range.start + 1),
    }
}

/// Lines that are in both strings: the index of the first line in each, and the number of lines.
struct Block {
    old: usize,
    new: usize,
    n_lines: usize,
}

/// Finds the longest blocks of lines that two strings have in common.
///
/// Upstream: `SequenceMatcher`.
struct Matcher<'t> {
    old: &'t [&'t str],
    new: &'t [&'t str],
    /// Indices of each line in the new string, without popular lines.
    indices_in_new: HashMap<&'t str, Vec<usize>>,
    /// Number of matching pairs of lines examined so far.
    pairs: usize,
}

impl<'t> Matcher<'t> {
    fn new(old: &'t [&'t str], new: &'t [&'t str]) -> Self {
        let mut indices_in_new: HashMap<&str, Vec<usize>> = HashMap::new();
        for (index, line) in new.iter().enumerate() {
            indices_in_new.entry(line).or_default().push(index);
        }
        if new.len() >= MIN_LINES_FOR_POPULAR {
            indices_in_new.retain(|_, indices| indices.len() <= new.len() / 100 + 1);
        }
        Self { old, new, indices_in_new, pairs: 0 }
    }

    fn changes(mut self) -> Vec<Change> {
        let mut blocks = Vec::new();
        // Ranges of old and new lines that are not searched for blocks yet.
        let mut unmatched = VecDeque::from([(0..self.old.len(), 0..self.new.len())]);
        while let Some((old, new)) = unmatched.pop_front() {
            let block = self.longest_block(&old, &new);
            if block.n_lines > 0 {
                let (old_end, new_end) = (block.old + block.n_lines, block.new + block.n_lines);
                if old.start < block.old && new.start < block.new {
                    unmatched.push_back((old.start..block.old, new.start..block.new));
                }
                if old_end < old.end && new_end < new.end {
                    unmatched.push_back((old_end..old.end, new_end..new.end));
                }
                blocks.push(block);
            }
        }
        blocks.sort_by_key(|block| block.old);
        blocks.push(Block { old: self.old.len(), new: self.new.len(), n_lines: 0 });
        let (mut old, mut new) = (0, 0);
        let mut changes = Vec::new();
        for block in blocks {
            if old < block.old || new < block.new {
                changes.push(Change { old: old..block.old, new: new..block.new });
            }
            (old, new) = (block.old + block.n_lines, block.new + block.n_lines);
        }
        changes
    }

    /// Returns the longest block within the ranges. Of equally long blocks, returns the first one in the old string,
    /// then the first one in the new string.
    ///
    /// Upstream: `findLongestMatch`.
    fn longest_block(&mut self, old: &Range<usize>, new: &Range<usize>) -> Block {
        let mut best = Block { old: old.start, new: new.start, n_lines: 0 };
        // Lengths of the blocks that end at the previous old line, by the index of their last line in the new string.
        let mut lengths: HashMap<usize, usize> = HashMap::new();
        for index in old.clone() {
            let matches =
                self.indices_in_new.get(self.old[index]).map(Vec::as_slice).unwrap_or_default();
            let mut lengths_here = HashMap::new();
            for new_index in matches.iter().copied().filter(|index| new.contains(index)) {
                self.pairs += 1;
                let before = new_index.checked_sub(1).and_then(|before| lengths.get(&before));
                let n_lines = before.copied().unwrap_or_default() + 1;
                lengths_here.insert(new_index, n_lines);
                if n_lines > best.n_lines {
                    let (old, new) = (index + 1 - n_lines, new_index + 1 - n_lines);
                    best = Block { old, new, n_lines };
                }
            }
            lengths = lengths_here;
            if self.pairs > MAX_PAIRS {
                break;
            }
        }
        // Popular lines may extend a block.
        while best.old > old.start
            && best.new > new.start
            && self.old[best.old - 1] == self.new[best.new - 1]
        {
            best = Block { old: best.old - 1, new: best.new - 1, n_lines: best.n_lines + 1 };
        }
        while best.old + best.n_lines < old.end
            && best.new + best.n_lines < new.end
            && self.old[best.old + best.n_lines] == self.new[best.new + best.n_lines]
        {
            best.n_lines += 1;
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hunks_have_context_lines_and_line_numbers() {
        for (old, new, want) in [
            ("a", "a", ""),
            ("a\nb", "a\nc", "@@ -1,2 +1,2 @@\n a\n-b\n+c\n"),
            ("a", "", "@@ -1 +1 @@\n-a\n+\n"),
            ("1\n2\n3\n4\n5\n6", "1\n2\n3\n4\n5\n6\n7", "@@ -4,3 +4,4 @@\n 4\n 5\n 6\n+7\n"),
            // The longest block is kept, although the diff is then not the smallest.
            ("a\nb", "a\nc\na\nb", "@@ -1,2 +1,4 @@\n+a\n+c\n a\n b\n"),
            (
                "x\n1\n2\n3\n4\n5\n6\n7\ny",
                "X\n1\n2\n3\n4\n5\n6\n7\nY",
                "@@ -1,4 +1,4 @@\n-x\n+X\n 1\n 2\n 3\n@@ -6,4 +6,4 @@\n 5\n 6\n 7\n-y\n+Y\n",
            ),
            (
                "x\n1\n2\n3\n4\n5\n6\ny",
                "X\n1\n2\n3\n4\n5\n6\nY",
                "@@ -1,8 +1,8 @@\n-x\n+X\n 1\n 2\n 3\n 4\n 5\n 6\n-y\n+Y\n",
            ),
        ] {
            assert_eq!(unified(old, new), want, "{old:?} {new:?}");
        }
    }

    #[test]
    fn popular_lines_do_not_start_a_block() {
        // A line with more than 1 % of the occurrences only counts as unchanged next to another unchanged line.
        let line = |index: usize| {
            if index.is_multiple_of(20) { "}".to_owned() } else { index.to_string() }
        };
        let old: Vec<String> = (0..200).map(line).collect();
        let new = ["{".to_owned()]
            .into_iter()
            .chain((0..200).map(|i| line(i + 1000)))
            .chain(["]".to_owned()]);
        let diff = unified(&old.join("\n"), &new.collect::<Vec<_>>().join("\n"));
        assert!(!diff.contains("\n }"), "{diff}");
    }
}
