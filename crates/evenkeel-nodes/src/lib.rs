//! Simulated kubelets: leases, node status, pod life cycle.
