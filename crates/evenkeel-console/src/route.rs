//! Paths of the console's pages.
//!
//! | path | page |
//! |---|---|
//! | `/` | nodes, controllers, plots |
//! | `/objects`, `/objects?kind=pods&namespace=…` | kinds; objects of a kind |
//! | `/object/GROUP/VERSION/RESOURCE/NAMESPACE/NAME` | an object; `core` and `-` stand for no group and no namespace |
//! | `/edit/GROUP/VERSION/RESOURCE/NAMESPACE/NAME` | preview of an edit of an object |
//! | `/pod/NAMESPACE/NAME/scheduling` | nodes and plugins for a pod |
//! | `/controller/NAME` | queue, passes and errors of a controller |
//! | `/events` | events |
//! | `/what-if`, `/what-if/NUMBER` | changes of a copy of the cluster; the report of a run |
//! | `/simulation` | switches of the simulation |
//! | `/pending`, `/pending?namespace=…` | pods that wait for a node, in a scheduler |

use evenkeel_api::Kind;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// Characters that are not escaped in a segment of a path or a value of a query.
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Segment for the core group, whose name is empty.
const CORE: &str = "core";
/// Segment for no namespace.
const NO_NAMESPACE: &str = "-";

/// A page of the console.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Route {
    /// Nodes, controllers and plots.
    Overview,
    /// Kinds that the API server serves.
    Kinds,
    /// Objects of a kind.
    List(ListQuery),
    /// An object with its controllers and events.
    Object(ObjectPath),
    /// Preview of an edit of an object.
    Edit(ObjectPath),
    /// Changes of a copy of the cluster.
    WhatIf,
    /// Report of a run, by its number.
    WhatIfReport(u64),
    /// Switches of the simulation.
    Simulation,
    /// Scheduling of a pod.
    Scheduling {
        /// Namespace of the pod.
        namespace: String,
        /// Name of the pod.
        name: String,
    },
    /// A controller, by its name.
    Controller(String),
    /// Events of all objects.
    Events {
        /// Namespace of the events. Empty for all.
        namespace: String,
        /// Whether only warnings are listed.
        warnings: bool,
    },
    /// Pods that wait for a node.
    Pending {
        /// Namespace of the pods. Empty for all.
        namespace: String,
    },
}

/// Query of a list: its kind and its filters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ListQuery {
    /// Plural and group, such as `deployments.apps`.
    pub(crate) resource: String,
    /// Namespace. Empty for all.
    pub(crate) namespace: String,
    /// Label selector. Empty for all.
    pub(crate) labels: String,
    /// Status of the objects, as kubectl prints it. Empty for all.
    pub(crate) status: String,
    /// Node of the pods. Empty for all.
    pub(crate) node: String,
    /// Continue token of the previous page.
    pub(crate) after: String,
}

/// Coordinates of an object in the API.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ObjectPath {
    /// API group. Empty for the core group.
    pub(crate) group: String,
    /// Version within the group.
    pub(crate) version: String,
    /// Plural resource name.
    pub(crate) resource: String,
    /// Namespace. Empty for cluster-scoped objects.
    pub(crate) namespace: String,
    /// Name of the object.
    pub(crate) name: String,
}

impl ObjectPath {
    /// Returns the path of an object of this kind.
    pub(crate) fn of(kind: &Kind, namespace: &str, name: &str) -> Self {
        let [group, version, resource, namespace, name] =
            [&*kind.group, &kind.version, &kind.plural, namespace, name].map(str::to_owned);
        Self { group, version, resource, namespace, name }
    }

    /// Returns the path of the object's page.
    pub(crate) fn href(&self) -> String {
        self.below("object")
    }

    /// Returns the path of the preview of an edit of the object.
    pub(crate) fn edit_href(&self) -> String {
        self.below("edit")
    }

    fn below(&self, page: &str) -> String {
        let or = |text: &str, empty: &str| encode(if text.is_empty() { empty } else { text });
        format!(
            "/{page}/{}/{}/{}/{}/{}",
            or(&self.group, CORE),
            encode(&self.version),
            encode(&self.resource),
            or(&self.namespace, NO_NAMESPACE),
            encode(&self.name)
        )
    }
}

/// Percent-encodes a segment of a path or a value of a query.
pub(crate) fn encode(text: &str) -> String {
    utf8_percent_encode(text, UNRESERVED).to_string()
}

fn decode(text: &str) -> Option<String> {
    percent_decode_str(text).decode_utf8().ok().map(Into::into)
}

/// Returns the page of a list.
pub(crate) fn list_href(query: &ListQuery) -> String {
    let mut href = format!("/objects?kind={}", encode(&query.resource));
    let parameters = [
        ("namespace", &query.namespace),
        ("labels", &query.labels),
        ("status", &query.status),
        ("node", &query.node),
        ("after", &query.after),
    ];
    for (name, value) in parameters.iter().filter(|(_, value)| !value.is_empty()) {
        href.push_str(&format!("&{name}={}", encode(value)));
    }
    href
}

/// Returns the page of a pod's scheduling.
pub(crate) fn scheduling_href(namespace: &str, name: &str) -> String {
    format!("/pod/{}/{}/scheduling", encode(namespace), encode(name))
}

/// Returns the page of a controller.
pub(crate) fn controller_href(name: &str) -> String {
    format!("/controller/{}", encode(name))
}

/// Returns all values of a parameter of a form.
pub(crate) fn parameters(form: &str, wanted: &str) -> Vec<String> {
    let pairs = form.split('&').filter_map(|pair| pair.split_once('='));
    let of_name = pairs.filter(|(name, _)| *name == wanted);
    of_name.filter_map(|(_, value)| decode(&value.replace('+', " "))).collect()
}

/// Returns the value of a parameter of a query or of a form (`application/x-www-form-urlencoded`).
pub(crate) fn parameter(query: &str, wanted: &str) -> Option<String> {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let (_, value) = pairs.find(|(name, _)| *name == wanted)?;
    decode(&value.replace('+', " "))
}

impl Route {
    /// Returns the page of a path, or `None` if there is none.
    pub(crate) fn parse(path: &str, query: &str) -> Option<Self> {
        let value = |name| parameter(query, name).unwrap_or_default();
        let segments: Option<Vec<String>> = path.split('/').skip(1).map(decode).collect();
        let segments = segments?;
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        let unless = |text: &str, empty: &str| match text == empty {
            true => String::new(),
            false => text.to_owned(),
        };
        Some(match *segments {
            [""] => Self::Overview,
            ["objects"] => match value("kind") {
                resource if resource.is_empty() => Self::Kinds,
                resource => Self::List(ListQuery {
                    resource,
                    namespace: value("namespace"),
                    labels: value("labels"),
                    status: value("status"),
                    node: value("node"),
                    after: value("after"),
                }),
            },
            [page @ ("object" | "edit"), group, version, resource, namespace, name]
                if !name.is_empty() =>
            {
                let path = ObjectPath {
                    group: unless(group, CORE),
                    version: version.to_owned(),
                    resource: resource.to_owned(),
                    namespace: unless(namespace, NO_NAMESPACE),
                    name: name.to_owned(),
                };
                if page == "edit" { Self::Edit(path) } else { Self::Object(path) }
            }
            ["what-if"] => Self::WhatIf,
            ["what-if", number] => Self::WhatIfReport(number.parse().ok()?),
            ["simulation"] => Self::Simulation,
            ["pod", namespace, name, "scheduling"] if !namespace.is_empty() && !name.is_empty() => {
                Self::Scheduling { namespace: namespace.to_owned(), name: name.to_owned() }
            }
            ["controller", name] if !name.is_empty() => Self::Controller(name.to_owned()),
            ["events"] => {
                let warnings = value("warnings") == "true";
                Self::Events { namespace: value("namespace"), warnings }
            }
            ["pending"] => Self::Pending { namespace: value("namespace") },
            _ => return None,
        })
    }

    /// Returns the path of the page in the navigation that this page belongs to.
    pub(crate) fn section(&self) -> &'static str {
        match self {
            Self::Overview | Self::Controller(_) => "/",
            Self::Events { .. } => "/events",
            Self::Pending { .. } => "/pending",
            Self::WhatIf | Self::WhatIfReport(_) => "/what-if",
            Self::Simulation => "/simulation",
            Self::Kinds
            | Self::List(_)
            | Self::Object(_)
            | Self::Edit(_)
            | Self::Scheduling { .. } => "/objects",
        }
    }

    /// Returns whether the server streams changes of the page. A form with the user's input is not updated.
    pub(crate) fn is_live(&self) -> bool {
        !matches!(self, Self::Edit(_) | Self::WhatIfReport(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_found_by_their_links() {
        let role =
            Kind::new("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", false);
        let pod = Kind::new("", "v1", "Pod", "pods", true);
        for (kind, namespace, name) in
            [(&role, "", "system:node/%2e<x>"), (&pod, "shop", "web-1"), (&pod, "a", "..")]
        {
            let path = ObjectPath::of(kind, namespace, name);
            let href = path.href();
            let edit = Route::parse(&path.edit_href(), "").expect("a page");
            assert_eq!((edit.is_live(), &edit), (false, &Route::Edit(path.clone())));
            assert_eq!(Route::parse(&href, ""), Some(Route::Object(path)), "{href}");
            assert!(!href.contains(['<', '"', ' ']), "{href}");
        }
        assert_eq!(ObjectPath::of(&pod, "shop", "web-1").href(), "/object/core/v1/pods/shop/web-1");
        let list = ListQuery {
            resource: "deployments.apps".to_owned(),
            namespace: "a".to_owned(),
            labels: "a in (b,c)&x=1".to_owned(),
            status: "Init:0/1".to_owned(),
            node: "n".to_owned(),
            after: "t+/=".to_owned(),
        };
        let href = list_href(&list);
        let (path, query) = href.split_once('?').expect("a query");
        assert_eq!(Route::parse(path, query), Some(Route::List(list)));
        let scheduling = Route::Scheduling { namespace: "n".to_owned(), name: "p".to_owned() };
        assert_eq!(Route::parse(&scheduling_href("n", "p"), ""), Some(scheduling));
        let controller = Route::Controller("a b".to_owned());
        assert_eq!(Route::parse(&controller_href("a b"), ""), Some(controller));
    }

    #[test]
    fn other_paths_have_no_page() {
        for path in [
            "/what-if/x",
            "/edit/core/v1/pods/a",
            "",
            "/x",
            "/object/core/v1/pods/a",
            "/object/core/v1/pods/a/b/c",
            "/%ff",
        ] {
            assert_eq!(Route::parse(path, ""), None, "{path}");
        }
        assert_eq!(Route::parse("/", "x"), Some(Route::Overview));
        assert_eq!(Route::parse("/objects", ""), Some(Route::Kinds));
        let pending = Route::Pending { namespace: "a".to_owned() };
        assert_eq!(Route::parse("/pending", "namespace=a"), Some(pending));
        assert_eq!(Route::parse("/what-if/3", ""), Some(Route::WhatIfReport(3)));
        assert_eq!(parameters("a=1&b=2&a=x+y", "a"), ["1", "x y"]);
        assert_eq!(parameter("a=b+c%2Bd&e=", "a").as_deref(), Some("b c+d"));
    }
}
