//! How a device is opened by PF_RING ZC, and what its errors mean.

use super::{OpenError, Opened, ensure_receives, refused};
use crate::source::Source;
use crate::zc::{self, ZcError};
use fanpcap_linux::netlink::link::Link;
use fanpcap_pfring::OpenError as PfringError;
use fanpcap_poll::LANES_MAX;
use std::io;

pub(super) fn open(link: &Link) -> Result<Opened, OpenError> {
    ensure_receives(link)?;
    let sources = zc::open(link.index, &link.name).map_err(|error| told(&link.name, error))?;
    if sources.len() > LANES_MAX as usize {
        let queues = u32::try_from(sources.len()).unwrap_or(u32::MAX);
        return Err(OpenError::Queues(link.name.clone(), queues));
    }
    let sources = sources.into_iter();
    Ok(Opened {
        sources: sources
            .map(|it| -> Box<dyn Source + Send> { Box::new(it) })
            .collect(),
        way: "PF_RING ZC",
        last: Vec::new(),
    })
}

fn told(device: &str, error: ZcError) -> OpenError {
    match error {
        ZcError::Socket(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            OpenError::Privilege {
                capabilities: "CAP_NET_RAW and CAP_NET_ADMIN",
                error,
            }
        }
        ZcError::Socket(error) => refused(error),
        ZcError::Pfring(PfringError::Failed(function, error)) => OpenError::Told(format!(
            "PF_RING does not open zc:{device} ({function}: {error}): the device needs a ZC \
             driver of ntop (the package of its driver, such as ixgbe-zc-dkms), huge pages, and \
             no other process that has it open"
        )),
        ZcError::Pfring(error) => OpenError::Told(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_pf_ring_lacks_is_told() {
        let said = |error| told("eth3", ZcError::Pfring(error)).to_string();
        let failed = PfringError::Failed("pfring_open", io::Error::from_raw_os_error(19));
        for (error, expected) in [
            (
                PfringError::Library("no such file"),
                "(no such file): install the package pfring",
            ),
            (PfringError::Module, "'modprobe pf_ring'"),
            (PfringError::Privilege, "CAP_NET_RAW and CAP_NET_ADMIN"),
            (failed, "zc:eth3 (pfring_open: No such device"),
        ] {
            let text = said(error);
            assert!(text.contains(expected), "{text}");
        }
        let socket = ZcError::Socket(io::Error::from_raw_os_error(1));
        assert!(matches!(told("eth3", socket), OpenError::Privilege { .. }));
    }
}
