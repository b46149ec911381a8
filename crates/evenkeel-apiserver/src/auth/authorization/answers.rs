//! SubjectAccessReviews that a request sends to authorization webhooks, and the webhooks' answers.
//!
//! A decision is a function of the request and of the answers so far. If the decision needs an answer that is missing,
//! it records the review and has no opinion. The caller then sends the recorded reviews, and decides again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

use super::decision::Decision;
use super::webhook::Webhook;

/// Maximum number of reviews of one request.
const MAX_QUESTIONS: usize = 256;

/// SubjectAccessReviews of one request, and the answers of webhooks to them.
#[derive(Default)]
pub(crate) struct Answers(Mutex<State>);

/// Webhooks' decisions so far, and the reviews that are still open.
#[derive(Default)]
struct State {
    /// Decisions by webhook and the review's `spec` in JSON.
    known: HashMap<(Box<str>, String), Decision>,
    open: Vec<Question>,
}

/// Question to a webhook.
struct Question {
    webhook: Arc<Webhook>,
    spec: Value,
}

impl Answers {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a webhook's decision about a review's `spec`: the webhook's answer, or the result of its match
    /// conditions. Records the review if the answer is missing.
    pub(crate) fn get(&self, webhook: &Arc<Webhook>, spec: Value) -> Option<Decision> {
        let mut state = self.state();
        let key = (webhook.name().into(), spec.to_string());
        if let Some(known) = state.known.get(&key) {
            return Some(known.clone());
        }
        if state.open.iter().any(|open| Arc::ptr_eq(&open.webhook, webhook) && open.spec == spec) {
            return None;
        }
        if state.known.len() + state.open.len() >= MAX_QUESTIONS {
            return Some(Decision::denied_by_error("the request asks webhooks too often"));
        }
        if let Some(decision) = webhook.decide_by_conditions(&spec) {
            state.known.insert(key, decision.clone());
            return Some(decision);
        }
        state.open.push(Question { webhook: webhook.clone(), spec });
        None
    }

    /// Returns whether any answer is missing.
    pub(crate) fn are_missing(&self) -> bool {
        !self.state().open.is_empty()
    }

    /// Sends the recorded reviews to the webhooks. Returns whether any review was recorded. If so, the caller must
    /// repeat the decisions that recorded them.
    pub(crate) async fn settle(&self) -> bool {
        let open = std::mem::take(&mut self.state().open);
        let any = !open.is_empty();
        for Question { webhook, spec } in open {
            let key = (webhook.name().into(), spec.to_string());
            let decision = webhook.review(&spec, &key.1).await;
            self.state().known.insert(key, decision);
        }
        any
    }
}

/// Repeats a decision until it depends on no missing answer.
pub(crate) async fn settled<T>(answers: &Answers, decide: impl Fn() -> T) -> T {
    loop {
        let decision = decide();
        if !answers.settle().await {
            return decision;
        }
    }
}
