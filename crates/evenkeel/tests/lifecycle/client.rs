//! A client of a cluster's API server, with one of its kubeconfigs.

use bytes::Bytes;
use evenkeel_runtime::{
    client::{self, Client, ConnectOptions},
    clock::Clock,
};
use http::Request;
use serde_json::Value;
use std::path::Path;

/// Maximum number of reads until a condition must hold.
const MAX_READS: usize = 5000;

/// Sends a request. The error is the status code.
pub(crate) fn request(kubeconfig: &Path, method: &str, path: &str) -> Result<Value, u16> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let options =
            ConnectOptions { kubeconfig: Some(kubeconfig.to_owned()), ..ConnectOptions::default() };
        let config = client::config(&options).await.expect("a configuration");
        let kube = client::transport(&config).expect("a client");
        let request = Request::builder().method(method).uri(path).body(Bytes::new());
        let answer = Client::new(kube, Clock::system()).raw(request.expect("a request")).await;
        match answer {
            Ok(answer) => Ok(serde_json::from_slice(answer.body()).expect("JSON")),
            Err(error) => Err(error.code()),
        }
    })
}

pub(crate) fn get(kubeconfig: &Path, path: &str) -> Result<Value, u16> {
    request(kubeconfig, "GET", path)
}

/// Reads an object until a condition holds.
pub(crate) fn until(kubeconfig: &Path, path: &str, is_met: impl Fn(&Value) -> bool) -> Value {
    let mut last = Value::Null;
    for _ in 0..MAX_READS {
        last = get(kubeconfig, path).expect("read");
        if is_met(&last) {
            return last;
        }
    }
    panic!("{path} stays {last}")
}
