//! Resource limits of the process.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit of open files, and therefore of connections, to the hard limit. Go's runtime does the same
/// for upstream's programs.
pub(crate) fn raise_open_files() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return;
    }
    match setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        Ok(()) => tracing::debug!(?current, ?maximum, "raised the limit of open files"),
        Err(error) => tracing::debug!(%error, ?current, "cannot raise the limit of open files"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_of_open_files_is_raised_to_the_hard_limit() {
        let before = getrlimit(Resource::Nofile);
        let low = before.current.map_or(64, |current| current.min(64)).max(64);
        let lowered =
            Rlimit { current: Some(low.max(before.current.unwrap_or(low) / 2)), ..before };
        setrlimit(Resource::Nofile, lowered).expect("lowered");
        raise_open_files();
        let after = getrlimit(Resource::Nofile);
        assert_eq!(after.current, after.maximum);
    }
}
