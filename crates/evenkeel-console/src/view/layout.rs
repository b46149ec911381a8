//! The frame around every page.

use askama::Template;

/// A whole page.
#[derive(Debug, Clone, Template)]
#[template(path = "layout.html")]
pub(crate) struct Layout<'a> {
    /// Title of the page.
    pub(crate) title: &'a str,
    /// Name of the cluster, or of the program.
    pub(crate) cluster: &'a str,
    /// Whether the console shows a single program instead of a whole cluster.
    pub(crate) is_program: bool,
    /// Whether there is a page of the pods that wait for a node.
    pub(crate) has_pending: bool,
    /// Whether there are pages of what-ifs.
    pub(crate) has_what_if: bool,
    /// Path in the navigation that the page belongs to.
    pub(crate) section: &'a str,
    /// Path and query of the page, if the server streams its changes. Empty for others.
    pub(crate) live: &'a str,
    /// Viewer of the page.
    pub(crate) viewer: Viewer<'a>,
    /// Content, rendered by a template.
    pub(crate) content: &'a str,
}

/// Viewer of a page.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Viewer<'a> {
    /// Viewer who is not logged in.
    Stranger,
    /// The administrator, by the URL's token, or a user of the API.
    Known {
        /// Name of the user. Empty for the administrator.
        user: &'a str,
        /// Token of forms.
        form_token: &'a str,
    },
}

/// The log-in page.
#[derive(Debug, Clone, Template)]
#[template(path = "login.html")]
pub(crate) struct LoginPage<'a> {
    /// Error of the last attempt. Empty before the first one.
    pub(crate) message: &'a str,
}

/// Page with an error.
#[derive(Debug, Clone, Template)]
#[template(path = "error.html")]
pub(crate) struct ErrorPage<'a> {
    /// Whether a log-in would help.
    pub(crate) wants_login: bool,
    /// Resource of a list that the user may be allowed to see in a single namespace. Empty for others.
    pub(crate) resource: &'a str,
    /// Title of the error.
    pub(crate) title: &'a str,
    /// Reason, with the next step.
    pub(crate) message: &'a str,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_and_messages_are_escaped() {
        let message = "</p><script>alert(1)</script>";
        let content = ErrorPage { title: "No", message, wants_login: true, resource: "\"><i>" };
        let content = content.render().expect("rendered");
        let page = Layout {
            title: "\"><svg",
            cluster: "<a>",
            is_program: false,
            has_pending: false,
            has_what_if: true,
            section: "/",
            live: "/x?a=\"",
            viewer: Viewer::Known { user: "<b>", form_token: "t" },
            content: &content,
        };
        let html = page.render().expect("rendered");
        assert_eq!(html.matches("<script").count(), 1, "the console's own: {html}");
        assert!(
            !html.contains("<b>")
                && !html.contains("<i>")
                && !html.contains("<svg")
                && !html.contains("<a>")
                && !html.contains("a=\"\""),
            "{html}"
        );
    }
}
