//! Rules that several programs of the control plane share: controllers, scheduler, simulated kubelets and API
//! server. Everything is a pure function of views and values of [`evenkeel_api`], without I/O, clock, async or
//! state.
//!
//! The modules are named as in upstream's `k8s.io/component-helpers`, except `quota` and `cron`, which upstream has in
//! other packages.

pub mod apps;
pub mod cron;
pub mod quota;
pub mod resource;
pub mod scheduling;
pub mod storage;
