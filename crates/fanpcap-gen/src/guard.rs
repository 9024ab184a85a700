//! Refuses devices that must not be flooded by mistake.

use anyhow::{Context, Result, bail, ensure};
use fanpcap_linux::interface;
use fanpcap_linux::netlink::link;

use crate::route::carries_default_route;

/// Refuses a device through which the machine is reached, and the loopback device, because a
/// mistake must not flood such a device.
///
/// # Errors
/// The message contains the reason. With `force`, the only error is that there is no device of this
/// name.
pub fn guard(device: &str, force: bool) -> Result<()> {
    let index = interface::find(device).context("looking for the device")?;
    let index = index.with_context(|| interface::missing(device))?;
    if force {
        return Ok(());
    }
    if let Some(carried) = carries_default_route(index).context("reading the routes")? {
        let name = &carried.name;
        let how = if interface::index(name) == Some(index) {
            "carries the default route".to_owned()
        } else if carried.is_above {
            format!("is below {name}, which carries the default route")
        } else {
            format!("sends by the same device as {name}, which carries the default route")
        };
        bail!("{device} {how}: traffic there reaches other machines; --force sends it anyway");
    }
    let link = link::get(index).with_context(|| device.to_owned())?;
    ensure!(
        link.flags & IFF_LOOPBACK == 0,
        "{device} is the loopback device, which every application on this machine uses; \
         --force sends there anyway"
    );
    Ok(())
}

const IFF_LOOPBACK: u32 = 1 << 3;
