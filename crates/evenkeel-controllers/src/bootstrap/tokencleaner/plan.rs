//! Expiration of a bootstrap token.

use crate::{
    bootstrap::token::{Lifetime, TokenSecret, remaining_lifetime},
    wire,
};
use evenkeel_api::time::Timestamp;
use evenkeel_runtime::plan::{Delete, Plan};

/// Deletes an expired token, or requeues the token for its expiration. Upstream: `evalSecret`.
pub(super) fn plan(token: &TokenSecret, now: Timestamp) -> Plan {
    let mut plan = Plan::nothing();
    match remaining_lifetime(token, now) {
        Lifetime::Unlimited => {}
        Lifetime::Remaining(remaining) => plan.requeue_after(remaining),
        Lifetime::Expired => plan.push(Delete::new(wire::target(token))),
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
        let expiration = seconds(at(60));
        let token = secret("abcdef", &[("expiration", &expiration)]);
        let before = plan(&token, at(0));
        assert_eq!((before.actions.len(), before.requeue), (0, Some(Duration::from_secs(60))));
        let after = plan(&token, at(60));
        let [Action::Delete(delete)] = &*after.actions else { panic!("{after:?}") };
        assert_eq!(&*delete.target.uid, "abcdef");
        assert_eq!(plan(&secret("abcdef", &[("expiration", "soon")]), at(0)).actions.len(), 1);
    }
}
