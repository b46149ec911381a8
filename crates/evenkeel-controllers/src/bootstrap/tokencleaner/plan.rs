//! Expiration of a bootstrap token.

use crate::{
    bootstrap::token::{Life, TokenSecret, life},
    wire,
};
use evenkeel_api::time::Timestamp;
use evenkeel_runtime::plan::{Delete, Plan};

/// Deletes an expired token, or requeues it. Upstream: `evalSecret`.
pub(super) fn plan(token: &TokenSecret, now: Timestamp) -> Plan {
    let mut plan = Plan::nothing();
    match life(token, now) {
        Life::Endless => {}
        Life::Left(time) => plan.requeue_after(time),
        Life::Over => plan.push(Delete::new(wire::target(token))),
    }
    plan
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{bootstrap::token::tests::secret, fixtures::at};
    use evenkeel_api::time::seconds;
    use evenkeel_runtime::plan::Action;
    use std::time::Duration;

    #[test]
    fn token_is_deleted_at_its_expiration() {
        assert!(plan(&secret("abcdef", &[]), at(0)).is_nothing());
        let end = seconds(at(60));
        let token = secret("abcdef", &[("expiration", &end)]);
        let wait = plan(&token, at(0));
        assert_eq!((wait.actions.len(), wait.requeue), (0, Some(Duration::from_secs(60))));
        let gone = plan(&token, at(60));
        let [Action::Delete(delete)] = &*gone.actions else { panic!("{gone:?}") };
        assert_eq!(&*delete.target.uid, "abcdef");
        assert_eq!(plan(&secret("abcdef", &[("expiration", "soon")]), at(0)).actions.len(), 1);
    }
}
