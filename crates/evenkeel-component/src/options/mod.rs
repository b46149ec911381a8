//! Options that several programs have, checked.

mod client;
mod leader;
mod serving;

pub use client::ClientOptions;
pub use leader::LeaderOptions;
pub use serving::ServingOptions;
