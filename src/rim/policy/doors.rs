//! Builders of doors with the settings of a policy.

#[cfg(feature = "fence")]
mod fence;
#[cfg(all(feature = "_queue", any(feature = "sqlite", feature = "postgres")))]
mod queue;
#[cfg(all(feature = "webhook", any(feature = "sqlite", feature = "postgres")))]
mod webhook;
