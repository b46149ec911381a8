//! The program's console in the browser, with the feature `console`.

use crate::{Registry, config::KubeSchedulerConfiguration, options::Options};
use anyhow::Result;
#[cfg(not(feature = "console"))]
use evenkeel_component::flags::{Flags, Reader};
use evenkeel_component::process::Process;
#[cfg(feature = "console")]
pub(crate) use evenkeel_console::program::{address, with_flags};
use evenkeel_runtime::cache::Caches;
#[cfg(not(feature = "console"))]
use std::net::SocketAddr;

/// Adds no flag: the program is built without its console.
#[cfg(not(feature = "console"))]
pub(crate) fn with_flags(flags: Flags) -> Flags {
    flags
}

/// Returns no address: there is no flag.
#[cfg(not(feature = "console"))]
pub(crate) fn address(_: &Reader) -> Option<SocketAddr> {
    None
}

/// Adds the console to the program if the flag enables it. `caches` are the caches of the scheduler. The dry runs of
/// pods use the plugins of the configuration, and do not call its extenders.
///
/// # Errors
/// Fails if the address is not available, or a certificate cannot be read.
#[cfg(feature = "console")]
pub(crate) fn serve(
    process: &Process,
    options: &Options,
    config: &KubeSchedulerConfiguration,
    plugins: &Registry,
    caches: &Caches,
) -> Result<()> {
    use crate::{NAME, configured_options, profiles::build_profiles};
    use evenkeel_console::{
        Scheduling,
        program::{Contents, serve},
    };
    use std::sync::Arc;

    let Some(address) = options.console else { return Ok(()) };
    let (config, gates, plugins) = (config.clone(), Arc::clone(&options.gates), plugins.clone());
    let scheduler_options = move || {
        // The program has started with the same configuration, so it is valid.
        let profiles = build_profiles(&config, &plugins, &gates).unwrap_or_default();
        vec![configured_options(&config, &gates, profiles)]
    };
    let kube = process.connection.transport.clone().into();
    let scheduling = Scheduling::new(kube, process.clock.clone(), Box::new(scheduler_options));
    let shown = Contents {
        name: NAME,
        caches: caches.clone(),
        scheduling: Some(scheduling),
        planners: None,
    };
    serve(process, &options.serving, address, shown)
}

/// Does nothing: the program is built without its console.
#[cfg(not(feature = "console"))]
pub(crate) fn serve(
    _: &Process,
    options: &Options,
    _: &KubeSchedulerConfiguration,
    _: &Registry,
    _: &Caches,
) -> Result<()> {
    debug_assert!(options.console.is_none(), "there is no flag");
    Ok(())
}
