//! Creates the objects in both servers, in the same order.

use http::Method;
use serde_json::{Value, json};

use crate::KnownObjects;
use crate::parity::servers::{Answer, Connection, Oracle, Sent};

const OBJECTS: &str = include_str!("objects.yaml");

/// Paths that are served once the servers have processed all definitions.
const SERVED: [&str; 4] = [
    "/apis/reads.example.com/v1/racks",
    "/apis/reads.example.com/v2beta1/widgets",
    "/openapi/v3/apis/reads.example.com/v1",
    "/openapi/v3/apis/reads.example.com/v2beta1",
];

/// Size in bytes of an object that makes responses with it large enough to compress.
const BIG: usize = 150 * 1024;

/// Creates all objects, and returns the resource versions of each server's objects.
pub(crate) async fn prepare(oracles: &[Oracle; 2]) -> [KnownObjects; 2] {
    let objects: Vec<Value> = OBJECTS
        .split("\n---\n")
        .map(|text| evenkeel_apimachinery::decode::file(text.as_bytes()).expect("an object"))
        .collect();
    [make(&objects, &oracles[0]).await, make(&objects, &oracles[1]).await]
}

async fn make(objects: &[Value], oracle: &Oracle) -> KnownObjects {
    let mut connection = oracle.connect().await;
    let mut made = Vec::new();
    for object in objects {
        let path = object["path"].as_str().expect("a path");
        let mut body = object["object"].clone();
        if body["metadata"]["name"] == "c5" {
            body["data"] = json!({"big": "x".repeat(BIG)});
        }
        let name = body["metadata"]["name"].as_str().expect("a name").to_owned();
        let answer = post(&mut connection, path, body).await;
        assert_eq!(answer.code, 201, "{path} {name}: {}", answer.body);
        let one = format!("{path}/{name}");
        if let Some(status) = object.get("status") {
            let mut body = answer.body.clone();
            body["status"] = status.clone();
            let answer = send(&mut connection, Method::PUT, &format!("{one}/status"), body).await;
            assert_eq!(answer.code, 200, "{one}: {}", answer.body);
        }
        if object["delete"] == true {
            send(&mut connection, Method::DELETE, &one, Value::Null).await;
        } else {
            made.push(one);
        }
    }
    for path in SERVED {
        connection.until_served(path).await;
    }
    let mut ordered = Vec::new();
    for path in made {
        let object = connection.ask(&Sent::get(&path)).await.body;
        let version = object["metadata"]["resourceVersion"].as_str().map(str::to_owned);
        ordered.push(version.unwrap_or_else(|| panic!("{path} is not there")));
    }
    let at = |part: usize| ordered[ordered.len() * part / 10].clone();
    let (old, mid) = (at(2), at(6));
    let current = ordered.last().expect("objects").clone();
    let versions = ordered.into_iter().enumerate().map(|(number, version)| (version, number));
    KnownObjects { versions: versions.collect(), old, mid, current }
}

/// Creates an object; one of a kind that was defined a moment ago, as soon as that is served.
async fn post(connection: &mut Connection, path: &str, body: Value) -> Answer {
    if path.starts_with("/apis/reads.example.com/") {
        connection.until_served(path).await;
    }
    connection.ask(&Sent::post(path, body)).await
}

async fn send(connection: &mut Connection, method: Method, path: &str, body: Value) -> Answer {
    let sent = Sent { method, path: path.to_owned(), media: "application/json", body };
    connection.ask(&sent).await
}
