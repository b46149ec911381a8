//! What the server tells of itself.

use bytes::Bytes;

use crate::Client;

#[tokio::test]
async fn deprecated_versions_are_warned_of_whatever_is_done() {
    let client = Client::start().await;
    for (path, words) in [
        ("/api/v1/componentstatuses", "v1 ComponentStatus is deprecated in v1.19+"),
        (
            "/api/v1/namespaces/default/endpoints/none",
            "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
        ),
    ] {
        let response = client.send("GET", path, &[], Bytes::new()).await;
        assert_eq!(response.headers()["warning"], format!("299 - \"{words}\""), "{path}");
    }
}
