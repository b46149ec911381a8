//! Tests of the store in etcd without etcd.
