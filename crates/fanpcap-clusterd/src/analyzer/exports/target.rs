//! Parses the targets of exports: the values of the analyzer's option `--export`.

use std::net::{SocketAddr, ToSocketAddrs};

use anyhow::{Context, Result, bail};
use fanpcap_ipfix::{Form, Transport};

/// A collector: its address, the transport, and the form of the exported data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::analyzer) struct Target {
    pub(super) transport: Transport,
    pub(super) address: SocketAddr,
    pub(super) form: Form,
}

const SCHEMES: [(&str, Transport, Form); 4] = [
    ("ipfix://", Transport::Udp, Form::Sections),
    ("ipfix+tcp://", Transport::Tcp, Form::Sections),
    ("ipfix-flows://", Transport::Udp, Form::Flows),
    ("ipfix-flows+tcp://", Transport::Tcp, Form::Flows),
];

impl Target {
    /// Reads `ipfix://HOST:PORT`, or one of the other schemes.
    pub(in crate::analyzer) fn read(text: &str) -> Result<Self> {
        for (scheme, transport, form) in SCHEMES {
            let Some(host) = text.strip_prefix(scheme) else {
                continue;
            };
            let found = host.to_socket_addrs();
            let mut found = found.with_context(|| match host.rsplit_once(':') {
                Some((name, port)) if port.parse::<u16>().is_ok() => {
                    format!("--export {text}: no address of host '{name}' is known")
                }
                _ => format!("--export {text}: write {scheme}HOST:PORT"),
            })?;
            return Ok(Self {
                transport,
                address: found
                    .next()
                    .with_context(|| format!("'{host}' has no address"))?,
                form,
            });
        }
        let schemes = SCHEMES.map(|(scheme, ..)| scheme).join(", ");
        bail!(
            "--export {text}: this is no target of an export; write one of {schemes}, and then \
             HOST:PORT"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_read() {
        let target = Target::read("ipfix://127.0.0.1:4739").unwrap();
        let expected = Target {
            transport: Transport::Udp,
            address: "127.0.0.1:4739".parse().unwrap(),
            form: Form::Sections,
        };
        assert_eq!(target, expected);
        let target = Target::read("ipfix-flows+tcp://127.0.0.1:4739").unwrap();
        assert_eq!(
            (target.transport, target.form),
            (Transport::Tcp, Form::Flows)
        );
        for (wrong, said) in [
            ("http://127.0.0.1:4739", "one of ipfix://"),
            ("127.0.0.1:4739", "one of ipfix://"),
            ("ipfix://127.0.0.1", "write ipfix://HOST:PORT"),
        ] {
            let error = format!("{:#}", Target::read(wrong).unwrap_err());
            assert!(error.contains(said), "{error}");
        }
    }
}
