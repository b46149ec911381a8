//! Simulated network of pods: finds the container that listens on a port, and builds its HTTP responses.
//!
//! A running container listens on the TCP ports that it declares. A container of a well-known web server also listens
//! on the port of its image. Probes of a container, and HTTP requests to it, succeed
//! while it is ready.

use evenkeel_api::views::{Container, Pod};
use std::fmt::Write as _;

/// Image of a web server.
#[derive(Debug, Clone, Copy)]
struct WebServer {
    /// Name of the image without registry and tag.
    image: &'static str,
    /// Port that the image listens on.
    port: u16,
    /// Folder whose files the image serves; `None` if it serves no files.
    folder: Option<&'static str>,
}

const fn web_server(image: &'static str, port: u16, folder: Option<&'static str>) -> WebServer {
    WebServer { image, port, folder }
}

/// Well-known web servers.
const WEB_SERVERS: [WebServer; 9] = [
    web_server("caddy", 80, Some("/usr/share/caddy")),
    web_server("echoserver", 8080, None),
    web_server("hello-app", 8080, None),
    web_server("httpd", 80, Some("/usr/local/apache2/htdocs")),
    web_server("nginx", 80, Some("/usr/share/nginx/html")),
    web_server("nginx-unprivileged", 8080, Some("/usr/share/nginx/html")),
    web_server("podinfo", 9898, None),
    web_server("traefik", 80, None),
    web_server("whoami", 80, None),
];

/// Container that listens on a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listener {
    /// Namespace of its pod.
    pub(crate) namespace: String,
    /// Name of its pod.
    pub(crate) pod: String,
    /// Name of the container.
    pub(crate) container: String,
    image: String,
    address: String,
    port: u16,
    is_ready: bool,
    /// Folder whose files it serves over HTTP.
    folder: Option<&'static str>,
}

/// Method, target and headers of an HTTP request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RequestHead {
    /// HTTP method, such as `GET`.
    pub(crate) method: String,
    /// Path and query.
    pub(crate) target: String,
    /// Names and values of the headers.
    pub(crate) headers: Vec<(String, String)>,
}

/// Returns the container that listens on a port of a pod; `None` if no running container does.
pub(crate) fn listener(pod: &Pod, port: u16) -> Option<Listener> {
    let statuses = pod.status.container_statuses.iter().chain(&*pod.status.init_container_statuses);
    let running_status = |container: &&Container| {
        statuses
            .clone()
            .find(|status| status.name == container.name && status.state.running.is_some())
    };
    let sidecars = pod.spec.init_containers.iter().filter(|init| &*init.restart_policy == "Always");
    let mut containers = pod.spec.containers.iter().chain(sidecars);
    let (container, status) = containers.find_map(|container| {
        let status = running_status(&container)?;
        listens_on(container, port).then_some((container, status))
    })?;
    Some(Listener {
        namespace: pod.meta.namespace.to_string(),
        pod: pod.meta.name.to_string(),
        container: container.name.to_string(),
        image: container.image.to_string(),
        address: pod.status.pod_ip.to_string(),
        port,
        is_ready: status.ready,
        folder: web_server_of(&container.image).and_then(|server| server.folder),
    })
}

/// Returns whether a running container listens on a port.
fn listens_on(container: &Container, port: u16) -> bool {
    let declared = container.ports.iter().any(|declared| {
        declared.container_port == i32::from(port) && matches!(&*declared.protocol, "" | "TCP")
    });
    // A command replaces the server of the image.
    let runs_entrypoint = container.command.is_empty();
    declared
        || runs_entrypoint
            && web_server_of(&container.image).is_some_and(|server| server.port == port)
}

/// Returns the well-known web server of an image.
fn web_server_of(image: &str) -> Option<&'static WebServer> {
    let name = image.rsplit('/').next()?.split(['@', ':']).next()?;
    WEB_SERVERS.iter().find(|server| server.image == name)
}

impl Listener {
    /// Returns whether the container is ready. Otherwise its probes and requests fail.
    pub(crate) fn is_ready(&self) -> bool {
        self.is_ready
    }

    /// Returns the path of the requested file in the container; `None` if the container serves no files. The path of a
    /// folder refers to its `index.html`.
    pub(crate) fn file(&self, path: &str) -> Option<String> {
        let folder = self.folder?;
        if !path.starts_with('/') || path.split('/').any(|part| part == "..") {
            return None;
        }
        let index = if path.ends_with('/') { "index.html" } else { "" };
        Some(format!("{folder}{path}{index}"))
    }

    /// Returns the page that describes the container and repeats the request.
    pub(crate) fn page(&self, head: &RequestHead) -> String {
        let Self { namespace, pod, container, image, address, port, .. } = self;
        let RequestHead { method, target, headers } = head;
        let mut page = format!(
            "Hostname: {pod}\nPod: {namespace}/{pod}\nContainer: {container}\nImage: {image}\nAddress: {address}:{port}\n\n{method} {target} HTTP/1.1\n"
        );
        for (name, value) in headers {
            let _ = writeln!(page, "{name}: {value}");
        }
        page
    }
}

/// Returns the media type of a file by its name.
pub(crate) fn media_type(path: &str) -> &'static str {
    match path.rsplit_once('.').map(|(_, extension)| extension) {
        Some("html" | "htm") => "text/html",
        Some("css") => "text/css",
        Some("js") => "text/javascript",
        Some("json") => "application/json",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        Some("txt") => "text/plain",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_api::{Encoding, View};
    use serde_json::json;

    fn pod() -> Pod {
        let running = json!({"running": {}});
        let body = json!({
            "metadata": {"name": "web-1", "namespace": "ns"},
            "spec": {
                "initContainers": [
                    {"name": "first", "image": "i", "ports": [{"containerPort": 1}]},
                    {"name": "side", "image": "i", "restartPolicy": "Always", "ports": [{"containerPort": 2}]},
                ],
                "containers": [
                    {"name": "app", "image": "docker.io/library/nginx:1.27"},
                    {"name": "db", "image": "i", "ports": [{"containerPort": 53, "protocol": "UDP"}, {"containerPort": 54}]},
                    {"name": "down", "image": "i", "ports": [{"containerPort": 55}]},
                    {"name": "shell", "image": "podinfo", "command": ["sh"]},
                ],
            },
            "status": {
                "podIP": "10.244.0.7",
                "initContainerStatuses": [{"name": "side", "ready": true, "state": running}],
                "containerStatuses": [
                    {"name": "app", "ready": true, "state": running}, {"name": "db", "state": running},
                    {"name": "down", "state": {"waiting": {}}}, {"name": "shell", "state": running},
                ],
            },
        });
        Pod::decode(body.to_string().as_bytes(), Encoding::Json).expect("a pod")
    }

    #[test]
    fn running_containers_listen_on_their_ports() {
        let pod = pod();
        for (port, expected) in [
            (80, Some(("app", true))),
            (54, Some(("db", false))),
            (2, Some(("side", true))),
            (1, None),
            (53, None),
            (55, None),
            (9898, None),
            (81, None),
        ] {
            let found = listener(&pod, port);
            let found = found.as_ref().map(|found| (&*found.container, found.is_ready()));
            assert_eq!(found, expected, "{port}");
        }
    }

    #[test]
    fn a_listener_says_who_it_is_and_which_file_is_asked_for() {
        let listener = listener(&pod(), 80).expect("a listener");
        let headers = vec![("host".to_owned(), "localhost".to_owned())];
        let head = RequestHead { method: "GET".to_owned(), target: "/a?b=c".to_owned(), headers };
        assert_eq!(
            listener.page(&head),
            "Hostname: web-1\nPod: ns/web-1\nContainer: app\nImage: docker.io/library/nginx:1.27\nAddress: 10.244.0.7:80\n\nGET /a?b=c HTTP/1.1\nhost: localhost\n"
        );
        for (path, file) in [
            ("/", Some("/usr/share/nginx/html/index.html")),
            ("/a/b.css", Some("/usr/share/nginx/html/a/b.css")),
            ("/../../etc/passwd", None),
            ("*", None),
        ] {
            assert_eq!(listener.file(path).as_deref(), file, "{path}");
        }
        let other = super::listener(&pod(), 54).expect("a listener");
        assert_eq!(other.file("/"), None);
        assert_eq!(
            (media_type("/a.html"), media_type("/a")),
            ("text/html", "application/octet-stream")
        );
    }
}
