//! The program's console in the browser, with the feature `console`.

use crate::options::Options;
use anyhow::Result;
use evenkeel_component::{
    flags::{Flags, Reader},
    process::Process,
};
use std::net::SocketAddr;

/// Adds the console's flag.
#[cfg(feature = "console")]
pub(crate) fn with_flags(flags: Flags) -> Flags {
    flags.with_own(evenkeel_console::program::FLAGS, evenkeel_console::program::WORDS)
}

/// Adds no flag: the program is built without its console.
#[cfg(not(feature = "console"))]
pub(crate) fn with_flags(flags: Flags) -> Flags {
    flags
}

/// Returns the address of the console. `None` serves none.
#[cfg(feature = "console")]
pub(crate) fn address(read: &Reader) -> Option<SocketAddr> {
    read.socket_address(evenkeel_console::program::FLAG)
}

/// Returns no address: there is no flag.
#[cfg(not(feature = "console"))]
pub(crate) fn address(_: &Reader) -> Option<SocketAddr> {
    None
}

/// Adds the console to the program, if the flag asks for it.
///
/// # Errors
/// If the address is not available, or a certificate cannot be read.
#[cfg(feature = "console")]
pub(crate) fn serve(process: &Process, options: &Options) -> Result<()> {
    use anyhow::Context as _;
    use evenkeel_console::{
        Console,
        program::{Binding, Election, ProgramOptions},
    };

    let Some((address, anonymous)) = options.console.zip(process.connection.anonymous()) else {
        return Ok(());
    };
    let manager = &process.manager;
    let env = manager.env();
    let election = manager.elector().zip(process.election());
    let console = Console::of_program(ProgramOptions {
        name: crate::program::NAME,
        anonymous,
        clock: process.clock.clone(),
        caches: env.caches.clone(),
        introspection: env.introspection.clone(),
        registry: process.registry.clone(),
        scheduling: None,
        election: election.map(|(elector, lease)| Election {
            elector: elector.clone(),
            namespace: lease.namespace.clone(),
            name: lease.name.clone(),
        }),
    });
    let binding = Binding { address, tls: process.browser_tls(&options.serving)? };
    let added = console.add_to(manager, binding);
    added.with_context(|| format!("--console-bind-address: failed to listen on {address}"))?;
    Ok(())
}

/// Does nothing: the program is built without its console.
#[cfg(not(feature = "console"))]
pub(crate) fn serve(_: &Process, options: &Options) -> Result<()> {
    debug_assert!(options.console.is_none(), "there is no flag");
    Ok(())
}
