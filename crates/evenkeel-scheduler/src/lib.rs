//! The drop-in kube-scheduler: queue, node table, framework, plugins.
