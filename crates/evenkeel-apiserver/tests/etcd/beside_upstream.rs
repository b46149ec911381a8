//! One server beside upstream's kube-apiserver on the same etcd.

