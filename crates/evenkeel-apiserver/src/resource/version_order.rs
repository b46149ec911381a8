//! Order of the versions of a group.

/// Returns the sort key of a version, greatest for the most preferred one: `v2` before `v1`, then `v1beta2`, then
/// `v1alpha1`, then all others by name. The key consists of the stability (3 for stable, 2 for beta, 1 for alpha, 0 for
/// others), the major version, the number after the stability, and the name.
///
/// Upstream: `CompareKubeAwareVersionStrings`.
pub(crate) fn version_preference(name: &str) -> (u8, u64, u64, std::cmp::Reverse<&str>) {
    let other = (0, 0, 0, std::cmp::Reverse(name));
    let Some(rest) = name.strip_prefix('v') else { return other };
    let split = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let Ok(major) = rest[..split].parse() else { return other };
    let (stability, minor) = match &rest[split..] {
        "" => return (3, major, 0, std::cmp::Reverse("")),
        stage => {
            if let Some(minor) = stage.strip_prefix("beta") {
                (2, minor)
            } else if let Some(minor) = stage.strip_prefix("alpha") {
                (1, minor)
            } else {
                return other;
            }
        }
    };
    minor.parse().map_or(other, |minor| (stability, major, minor, std::cmp::Reverse("")))
}

#[cfg(test)]
mod tests {
    use super::version_preference;

    #[test]
    fn versions_are_sorted_by_stability_and_number() {
        let mut names =
            ["foo1", "v1alpha1", "v10", "v2", "v1beta2", "v11beta1", "foo10", "v1", "vx"];
        names.sort_by(|a, b| version_preference(b).cmp(&version_preference(a)));
        let want = ["v10", "v2", "v1", "v11beta1", "v1beta2", "v1alpha1", "foo1", "foo10", "vx"];
        assert_eq!(names, want);
    }
}
