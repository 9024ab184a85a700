//! Waits that end early when a signal asks the bench for its end.

use std::time::Duration;

use anyhow::{Result, ensure};
use fanpcap_linux::wait::stop;

/// Waits for so long.
///
/// # Errors
/// When somebody has asked for the end: what was begun is to be undone.
pub(crate) fn pause(time: Duration) -> Result<()> {
    ensure!(!stop::wait(time)?, "told to stop");
    Ok(())
}

/// Goes on, unless somebody has asked for the end.
pub(crate) fn go_on() -> Result<()> {
    ensure!(!stop::is_requested(), "told to stop");
    Ok(())
}
