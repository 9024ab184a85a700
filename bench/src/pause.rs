//! Waits that end early when a signal asks the bench to end.

use std::time::Duration;

use anyhow::{Result, ensure};
use fanpcap_linux::wait::stop;

/// Waits for this time.
///
/// # Errors
/// A signal asked the bench to end; the caller cleans up.
pub(crate) fn pause(time: Duration) -> Result<()> {
    ensure!(!stop::wait(time)?, "told to stop");
    Ok(())
}

/// Fails if a signal asked the bench to end.
pub(crate) fn go_on() -> Result<()> {
    ensure!(!stop::is_requested(), "told to stop");
    Ok(())
}
