//! Decides whether to engage, replace or keep a cluster that its provider adds.

/// Step for one cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// The cluster is already engaged with this connection.
    Keep,
    /// The cluster is new.
    Engage,
    /// The connection changed: the cluster is disengaged, and then engaged again.
    Replace,
}

/// Returns the step for a cluster that its provider names with the connection `desired`. `current` is the connection with which
/// it is engaged; `None` if it is not engaged.
pub(super) fn step(current: Option<&[u8]>, desired: &[u8]) -> Step {
    match current {
        None => Step::Engage,
        Some(current) if current == desired => Step::Keep,
        Some(_) => Step::Replace,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_is_engaged_once_for_each_connection() {
        let table = [
            (None, &b"a"[..], Step::Engage),
            (Some(&b"a"[..]), b"a", Step::Keep),
            (Some(b"a"), b"b", Step::Replace),
            (Some(b""), b"b", Step::Replace),
        ];
        for (current, desired, wanted) in table {
            assert_eq!(step(current, desired), wanted, "{current:?} {desired:?}");
        }
    }
}
