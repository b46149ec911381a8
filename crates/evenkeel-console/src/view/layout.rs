//! The frame around every page.

use askama::Template;

/// A whole page.
#[derive(Debug, Clone, Template)]
#[template(path = "layout.html")]
pub(crate) struct Layout<'a> {
    /// Title of the page.
    pub(crate) title: &'a str,
    /// Name of the cluster.
    pub(crate) cluster: &'a str,
    /// Path in the navigation that the page belongs to.
    pub(crate) section: &'a str,
    /// Path and query of the page, if the server says when it changes. Empty for others.
    pub(crate) live: &'a str,
    /// Content, rendered by a template.
    pub(crate) content: &'a str,
}

/// A page that says why there is no other.
#[derive(Debug, Clone, Template)]
#[template(path = "error.html")]
pub(crate) struct ErrorPage<'a> {
    /// What is wrong, in a few words.
    pub(crate) title: &'a str,
    /// The reason, and what to do.
    pub(crate) message: &'a str,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_and_messages_are_escaped() {
        let message = "</p><script>alert(1)</script>";
        let content = ErrorPage { title: "No", message }.render().expect("rendered");
        let page = Layout {
            title: "\"><svg",
            cluster: "<a>",
            section: "/",
            live: "/x?a=\"",
            content: &content,
        };
        let html = page.render().expect("rendered");
        assert_eq!(html.matches("<script").count(), 1, "the console's own: {html}");
        assert!(
            !html.contains("<svg") && !html.contains("<a>") && !html.contains("a=\"\""),
            "{html}"
        );
    }
}
