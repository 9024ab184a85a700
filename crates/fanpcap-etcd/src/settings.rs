//! A client's settings: endpoints, user, certificates, limits.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use crate::error::SetupError;

/// The address at which a member of etcd serves clients.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Endpoint {
    /// Whether the endpoint uses `https`.
    pub is_tls: bool,
    /// The host and port, as in a URL.
    pub authority: String,
}

impl FromStr for Endpoint {
    type Err = SetupError;

    fn from_str(text: &str) -> Result<Self, SetupError> {
        let error = || SetupError::Endpoint(text.to_owned());
        let (scheme, authority) = text.split_once("://").ok_or_else(error)?;
        let authority = authority.strip_suffix('/').unwrap_or(authority);
        let (host, port) = authority.rsplit_once(':').ok_or_else(error)?;
        let in_brackets = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        let is_host = match in_brackets {
            Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
            None => is_name(host),
        };
        if !is_host || port.parse::<u16>().is_err() || text.len() > 300 {
            return Err(error());
        }
        Ok(Self {
            is_tls: match scheme {
                "http" => false,
                "https" => true,
                _ => return Err(error()),
            },
            authority: authority.to_owned(),
        })
    }
}

/// Whether `host` is a host's name or an IPv4 address.
fn is_name(host: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    !host.is_empty() && host.chars().all(is_part)
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_tls { "https" } else { "http" };
        write!(f, "{scheme}://{}", self.authority)
    }
}

/// A user of etcd, with password.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The user's name.
    pub user: String,
    /// The user's password.
    pub password: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credentials({:?})", self.user)
    }
}

/// Files in PEM form. When the files change, the client reads them again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlsFiles {
    /// The certificates of the authorities that sign etcd's certificates.
    pub ca: PathBuf,
    /// The client's own certificate and its private key. etcd needs them with `--client-cert-auth`.
    pub own: Option<(PathBuf, PathBuf)>,
}

/// Time limits of a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// The time limit for making a connection.
    pub connect: Duration,
    /// The limit for one endpoint's answer to one call, including the connection.
    pub attempt: Duration,
    /// The limit for one call, over all endpoints.
    pub call: Duration,
    /// The longest wait for an event of a watch. After this time, the watch continues on a new
    /// connection, because a stopped member of etcd keeps connections open and sends nothing.
    pub quiet: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connect: Duration::from_millis(500),
            attempt: Duration::from_secs(1),
            call: Duration::from_secs(4),
            quiet: Duration::from_secs(3),
        }
    }
}

/// A client's settings.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Settings {
    /// etcd's members. The first call begins with the first endpoint.
    pub endpoints: Vec<Endpoint>,
    /// The client's user; `None` if etcd has no authentication. Client certificates do not replace
    /// the user, because etcd's gateway ignores the user that a certificate names.
    pub credentials: Option<Credentials>,
    /// The files for `https` endpoints.
    pub tls: Option<TlsFiles>,
    /// The time limits.
    pub limits: Limits,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_urls_of_a_host_and_a_port() {
        for text in [
            "http://127.0.0.1:2379",
            "https://etcd-1.example:2379",
            "http://[::1]:2379",
        ] {
            let endpoint: Endpoint = text.parse().unwrap();
            assert_eq!(endpoint.to_string(), text);
        }
        let bad = [
            "127.0.0.1:2379",
            "ftp://a:1",
            "http://a",
            "http://a:70000",
            "http://u@a:1",
            "http://[::1:2379",
            "http://a/b:1",
            "http://:1",
        ];
        for text in bad {
            assert!(text.parse::<Endpoint>().is_err(), "{text}");
        }
    }
}
