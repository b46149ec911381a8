//! The program's console in the browser, with the feature `console`.

use crate::options::Options;
use anyhow::Result;
#[cfg(not(feature = "console"))]
use evenkeel_component::flags::{Flags, Reader};
use evenkeel_component::process::Process;
#[cfg(feature = "console")]
pub(crate) use evenkeel_console::program::{address, with_flags};
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

/// Adds the console to the program, if the flag asks for it.
///
/// # Errors
/// Fails if the address is not available, or a certificate cannot be read.
#[cfg(feature = "console")]
pub(crate) fn serve(process: &Process, options: &Options) -> Result<()> {
    use evenkeel_console::program::{Contents, serve};

    let Some(address) = options.console else { return Ok(()) };
    let shown = Contents {
        name: crate::program::NAME,
        caches: process.manager.env().caches.clone(),
        scheduling: None,
        planners: Some(std::sync::Arc::new(crate::preview::Previews)),
    };
    serve(process, &options.serving, address, shown)
}

/// Does nothing: the program is built without its console.
#[cfg(not(feature = "console"))]
pub(crate) fn serve(_: &Process, options: &Options) -> Result<()> {
    debug_assert!(options.console.is_none(), "there is no flag");
    Ok(())
}
