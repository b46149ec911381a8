//! Whether a program is active or on standby.

/// Holder of the Lease of a leader election.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Holder {
    /// This process, which leads.
    This,
    /// Another process, with its identity.
    Other(String),
    /// Another process, whose identity the user may not see.
    Hidden,
    /// No holder was observed.
    Unknown,
}

/// State of a program in its leader election.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Standing {
    /// Namespace and name of the Lease.
    pub(crate) lease: String,
    /// Holder of the Lease.
    pub(crate) holder: Holder,
}

impl Standing {
    /// Returns the sentence about a standby process, or an empty string for the leader.
    pub(crate) fn standby(&self) -> String {
        let lease = &self.lease;
        let holder = match &self.holder {
            Holder::This => return String::new(),
            Holder::Other(identity) => format!("{identity} holds the lease {lease}."),
            Holder::Hidden => format!(
                "Another process holds the lease {lease}; a user who may get this Lease sees which one."
            ),
            Holder::Unknown => format!("No process is known to hold the lease {lease}."),
        };
        format!(
            "This process is on standby: it does no work, and its caches may be empty. {holder}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_standby_says_so_and_who_leads() {
        let standby = |holder| Standing { lease: "ns/l".to_owned(), holder }.standby();
        assert_eq!(standby(Holder::This), "");
        let other = standby(Holder::Other("a_1".to_owned()));
        assert!(other.contains("on standby") && other.ends_with("a_1 holds the lease ns/l."));
        assert!(standby(Holder::Hidden).contains("may get this Lease"));
        assert!(standby(Holder::Unknown).ends_with("No process is known to hold the lease ns/l."));
    }
}
