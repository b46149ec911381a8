//! Causes of an object's state.

use evenkeel_runtime::introspect::Subject;
use serde::Serialize;

/// Reason why an object is not in its desired state, in one sentence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Cause {
    /// Object whose status or events state the cause: the explained one, or one of its dependents.
    pub object: Subject,
    /// Number of further objects of the same kind with the same cause.
    #[serde(skip_serializing_if = "is_zero")]
    pub others: usize,
    /// Sentence about that object, without its name.
    pub text: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(n: &usize) -> bool {
    *n == 0
}

impl Cause {
    /// Returns the cause as a line. The object is named unless it is the explained one.
    pub fn line(&self, root: &Subject) -> String {
        let Self { object, others, text } = self;
        match others {
            _ if object == root => text.clone(),
            0 => format!("{object}: {text}"),
            others => format!("{object} and {others} more: {text}"),
        }
    }
}

/// Returns the causes without repetitions: objects of one kind with the same sentence are counted in the cause of the first.
pub(super) fn grouped(causes: impl Iterator<Item = Cause>) -> Vec<Cause> {
    let mut grouped: Vec<Cause> = Vec::new();
    for cause in causes {
        let is_same = |known: &&mut Cause| {
            known.text == cause.text
                && known.object.kind == cause.object.kind
                && known.object.group == cause.object.group
        };
        match grouped.iter_mut().find(is_same) {
            Some(known) => known.others += 1,
            None => grouped.push(cause),
        }
    }
    grouped
}
