//! View models of the pages: pure functions from objects and reports to the values of templates. Templates escape every string.

pub(crate) mod ago;
pub(crate) mod attention;
pub(crate) mod controller;
pub(crate) mod edit;
pub(crate) mod events;
pub(crate) mod explain;
pub(crate) mod heatmap;
pub(crate) mod layout;
pub(crate) mod list;
pub(crate) mod nodepage;
pub(crate) mod object;
pub(crate) mod overview;
pub(crate) mod pending;
pub(crate) mod plot;
pub(crate) mod podlist;
pub(crate) mod podstatus;
pub(crate) mod scheduling;
pub(crate) mod simulation;
pub(crate) mod standing;
pub(crate) mod switches;
pub(crate) mod tree;
pub(crate) mod whatif;

/// Text that links to a page. Without a page, `href` is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Link {
    /// Text of the link.
    pub(crate) text: String,
    /// Path of the page, or empty.
    pub(crate) href: String,
}

impl Link {
    /// Returns a label that links to a page.
    pub(crate) fn new(text: impl Into<String>, href: impl Into<String>) -> Self {
        Self { text: text.into(), href: href.into() }
    }
}

/// Short state with a color. The color only repeats the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chip {
    /// Text of the state.
    pub(crate) text: String,
    /// Class in the style sheet: `good`, `quiet`, `warn` or `bad`.
    pub(crate) tone: &'static str,
}

impl Chip {
    /// Returns a state with its tone.
    pub(crate) fn new(text: impl Into<String>, tone: &'static str) -> Self {
        Self { text: text.into(), tone }
    }

    /// Returns the state of an object other than a pod by its word.
    pub(crate) fn of_state(state: &str) -> Self {
        let tone = match state {
            "Running" | "Ready" | "Bound" | "Active" | "Succeeded" | "Available" | "Complete" => {
                "good"
            }
            "Pending" | "Terminating" | "Unknown" => "warn",
            "Failed" | "NotReady" | "Lost" => "bad",
            cordoned if cordoned.starts_with("NotReady,") => "bad",
            _ => "quiet",
        };
        Self::new(state, tone)
    }
}

/// Returns at most `max` characters of a string, with an ellipsis if it is longer.
pub(crate) fn shorten(text: &str, max: usize) -> String {
    if text.chars().count() <= max {
        return text.to_owned();
    }
    text.chars().take(max.saturating_sub(1)).chain(['…']).collect()
}

/// Returns an object as a cache has it.
#[cfg(test)]
pub(crate) fn decoded<V: evenkeel_api::View>(object: &serde_json::Value) -> V {
    V::decode(object.to_string().as_bytes(), evenkeel_api::Encoding::Json).expect("an object")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_between_characters() {
        assert_eq!(shorten("äöü", 3), "äöü");
        assert_eq!(shorten("äöüx", 3), "äö…");
    }
}
