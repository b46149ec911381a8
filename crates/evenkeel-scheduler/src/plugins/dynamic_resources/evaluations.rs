//! Results of CEL selectors, each evaluated once for a device of an inventory. Functions are pure: the plugin keeps the
//! results between attempts.

use evenkeel_api::views::ResourceSlice;
use std::{collections::HashMap, sync::Arc};

use super::{
    inventory::{Inventory, Offer},
    selectors::{EvaluationError, Selector},
};

/// Maximum number of selectors whose results are kept for a slice.
const MAX_ENTRIES: usize = 64;

/// Result of a selector for a device.
pub(super) type Evaluation = Result<bool, EvaluationError>;

/// Function that returns the result of a selector for the slice's device with this index.
pub(super) type Evaluate<'a> = dyn Fn(&Offer, &Selector, usize) -> Evaluation + 'a;

/// Results of each selector for the devices of one slice, by the selector's expression. `None` means not evaluated yet.
type SliceResults = HashMap<Box<str>, Box<[Option<Evaluation>]>>;

/// Results of selectors, indexed like the inventory's slices.
#[derive(Default)]
pub(super) struct Evaluations(Vec<SliceResults>);

impl Evaluations {
    /// Returns whether the selector matches the device. Evaluates it on the first call and returns the same result
    /// later.
    pub(super) fn evaluate(
        &mut self,
        offer: &Offer,
        selector: &Selector,
        device: usize,
    ) -> Evaluation {
        if self.0.len() <= offer.index {
            self.0.resize_with(offer.index + 1, SliceResults::new);
        }
        let results_by_text = &mut self.0[offer.index];
        if results_by_text.len() >= MAX_ENTRIES && !results_by_text.contains_key(selector.text()) {
            results_by_text.clear();
        }
        let results = results_by_text
            .entry(selector.text().into())
            .or_insert_with(|| vec![None; offer.devices().len()].into());
        results[device]
            .get_or_insert_with(|| selector.selects(offer.driver(), &offer.devices()[device]))
            .clone()
    }

    /// Moves the results of unchanged slices to a newer inventory. Attempts that still read the older one evaluate
    /// again.
    pub(super) fn move_to(&mut self, old: &Inventory, new: &Inventory) -> Self {
        let slices = old.offers().iter().map(|offer| Arc::as_ptr(&offer.slice));
        let mut results: HashMap<*const ResourceSlice, SliceResults> =
            slices.zip(std::mem::take(&mut self.0)).collect();
        let moved = new.offers().iter().map(|offer| results.remove(&Arc::as_ptr(&offer.slice)));
        Self(moved.map(Option::unwrap_or_default).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugins::dynamic_resources::{
        selectors::SelectorCache,
        tests::{devices_of_sizes, slice},
    };
    use serde_json::json;

    #[test]
    fn results_follow_their_slices_to_a_newer_inventory() {
        let spec = json!({});
        let (a, b) = (
            slice("a", devices_of_sizes(&[1, 2]), &spec),
            slice("b", devices_of_sizes(&[3]), &spec),
        );
        let before = Inventory::new(vec![Arc::clone(&b)], Vec::new(), None);
        let selector = SelectorCache::default().get_or_compile("device.driver == 'gpu.example'");
        let mut evaluations = Evaluations::default();
        assert_eq!(evaluations.evaluate(&before.offers()[0], &selector, 0), Ok(true));
        let next = Inventory::new(vec![b, a], Vec::new(), Some(&before));
        let moved = evaluations.move_to(&before, &next);
        let evaluated: Vec<usize> = moved.0.iter().map(HashMap::len).collect();
        assert_eq!(
            evaluated,
            [0, 1],
            "slices are ordered by name, so the unchanged slice is now the second"
        );
        // An attempt may still use the older inventory.
        assert_eq!(evaluations.evaluate(&before.offers()[0], &selector, 0), Ok(true));
    }

    #[test]
    fn the_results_of_a_slice_are_bounded() {
        let inventory =
            Inventory::new(vec![slice("a", devices_of_sizes(&[1]), &json!({}))], vec![], None);
        let (mut selectors, mut evaluations) = (SelectorCache::default(), Evaluations::default());
        for n in 0..=MAX_ENTRIES {
            let selector = selectors.get_or_compile(&format!("{n} == 0"));
            assert_eq!(evaluations.evaluate(&inventory.offers()[0], &selector, 0), Ok(n == 0));
        }
        assert_eq!(evaluations.0[0].len(), 1);
    }
}
