//! Transactions of a batch that are refused alone, because their records cannot be encoded.

use std::collections::HashSet;
use std::sync::Arc;

use super::queued::QueuedTransaction;
use crate::resource::ResourcePrefix;

/// Refused transactions, with those that depend on them: their checks read the state that a refused one would have left.
#[derive(Default)]
pub(super) struct Refused {
    /// Refused transactions, each with its reason.
    pub(super) transactions: Vec<(QueuedTransaction, Arc<str>)>,
    /// Written objects, by resource prefix and key.
    objects: HashSet<(ResourcePrefix, Arc<str>)>,
    /// Resources of the written objects.
    resources: HashSet<ResourcePrefix>,
    /// Reason of the last refusal, for the transactions that depend on one.
    why: Option<Arc<str>>,
}

impl Refused {
    /// Refuses a transaction.
    pub(super) fn add(&mut self, transaction: QueuedTransaction, why: Arc<str>) {
        for staged in &transaction.writes {
            let key = staged.event.entry.key.clone();
            self.objects.insert((staged.resource_prefix.clone(), key));
            self.resources.insert(staged.resource_prefix.clone());
        }
        self.why = Some(why.clone());
        self.transactions.push((transaction, why));
    }

    /// Returns why a later transaction must be refused as well: it writes an object that a refused one wrote, or requires
    /// a unique value of a resource that a refused one changed. `None` if it depends on none.
    pub(super) fn reason_for(&self, later: &QueuedTransaction) -> Option<Arc<str>> {
        let writes_same = later.writes.iter().any(|staged| {
            let object = (staged.resource_prefix.clone(), staged.event.entry.key.clone());
            self.objects.contains(&object)
        });
        let requires = later.unique_in.iter().any(|resource| self.resources.contains(resource));
        if writes_same || requires { self.why.clone() } else { None }
    }

    /// Removes the transactions that depend on a refused one from later ones, and refuses them.
    pub(super) fn take_dependents(
        &mut self,
        later: Vec<QueuedTransaction>,
    ) -> Vec<QueuedTransaction> {
        let mut independent = Vec::with_capacity(later.len());
        for transaction in later {
            match self.reason_for(&transaction) {
                Some(why) => self.add(transaction, why),
                None => independent.push(transaction),
            }
        }
        independent
    }
}
