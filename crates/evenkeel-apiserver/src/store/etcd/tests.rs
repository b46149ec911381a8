//! Tests of the store in etcd without etcd.

use evenkeel_apimachinery::status::StatusError;
use serde_json::Value;
use tonic::Status;

use super::*;
use crate::resource::ResourcePrefix;
use crate::store::entry::Encoded;

#[test]
fn a_failed_call_is_never_a_success() {
    for (status, code, message) in [
        (Status::unavailable("tcp connect error"), 500, "tcp connect error"),
        (Status::unknown("connection reset"), 500, "connection reset"),
        (
            Status::deadline_exceeded("context deadline exceeded"),
            504,
            "Timeout: request did not complete within requested timeout - context deadline exceeded",
        ),
        (
            Status::invalid_argument("etcdserver: request is too large"),
            500,
            "etcdserver: request is too large",
        ),
    ] {
        let error = StatusError::from(unavailable(&status));
        assert_eq!((error.code().as_u16(), error.message()), (code, message));
    }
}

#[tokio::test]
async fn keys_have_the_prefix_and_the_range_ends_after_them() {
    struct Plain;
    impl Layout for Plain {
        fn path(&self, resource_prefix: &str) -> String {
            resource_prefix.to_owned()
        }
        fn locate<'p>(&self, path: &'p str) -> Option<(ResourcePrefix, &'p str)> {
            path.strip_prefix("/pods/").map(|key| ("/pods".into(), key))
        }
        fn encode(&self, _: &str, object: &Value) -> Result<Vec<u8>, String> {
            Ok(object.to_string().into_bytes())
        }
        fn decode(&self, _: &str, _: &[u8]) -> Result<Encoded, String> {
            Err("nothing is stored".to_owned())
        }
        fn expiring(&self) -> Vec<(ResourcePrefix, Duration)> {
            Vec::new()
        }
    }
    let options = EtcdOptions::new(["http://127.0.0.1:1".to_owned()]);
    let etcd = Etcd {
        client: Client::new(&options).expect("a URL"),
        prefix: "/registry/".to_owned(),
        leases: Vec::new(),
        layout: Arc::new(Plain),
        compaction_interval: Duration::ZERO,
        watch_requests: Mutex::default(),
        health: Mutex::new(Ok(())),
    };
    let key = etcd.key("/pods", "a/b");
    assert_eq!(key, b"/registry/pods/a/b");
    assert_eq!(etcd.locate(&key), Some(("/pods".into(), "a/b")));
    assert_eq!(etcd.locate(b"/other/pods/a/b"), None);
    assert_eq!(etcd.locate(b"/registry/pods\xff"), None);
    let end = etcd.range_end();
    assert!(key < end && b"/registry/\xff".to_vec() < end && b"/registry0".to_vec() <= end);
    for invalid in ["http://", "unix:///a b", "ftp://a"] {
        assert!(Client::new(&EtcdOptions::new([invalid.to_owned()])).is_err(), "{invalid}");
    }
}
