//! Why a call to etcd failed, and why settings are no good.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// gRPC's status codes, as etcd gives them.
pub(crate) mod code {
    pub(crate) const DEADLINE_EXCEEDED: u32 = 4;
    pub(crate) const PERMISSION_DENIED: u32 = 7;
    pub(crate) const RESOURCE_EXHAUSTED: u32 = 8;
    pub(crate) const FAILED_PRECONDITION: u32 = 9;
    pub(crate) const ABORTED: u32 = 10;
    pub(crate) const UNAVAILABLE: u32 = 14;
    pub(crate) const UNAUTHENTICATED: u32 = 16;
}

/// Why a call failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CallError {
    /// The endpoint did not answer, or not in time.
    Unreachable {
        /// The endpoint that was asked last.
        endpoint: String,
        /// What happened there.
        reason: String,
    },
    /// The client does not trust the endpoint's certificate, or the endpoint not the client's.
    Certificate {
        /// The endpoint that was asked last.
        endpoint: String,
        /// What is wrong with the certificate.
        reason: String,
    },
    /// etcd refused the call.
    Refused {
        /// The endpoint that was asked last.
        endpoint: String,
        /// gRPC's status code.
        code: u32,
        /// etcd's own words.
        message: String,
    },
    /// The answer is not etcd's.
    Answer {
        /// The endpoint that was asked last.
        endpoint: String,
        /// What is wrong with the answer.
        reason: String,
    },
}

impl CallError {
    /// Whether another endpoint may do what this one did not.
    pub(crate) fn is_elsewhere(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Certificate { .. } | Self::Answer { .. } => true,
            Self::Refused { code, .. } => matches!(
                *code,
                code::DEADLINE_EXCEEDED
                    | code::RESOURCE_EXHAUSTED
                    | code::ABORTED
                    | code::UNAVAILABLE
            ),
        }
    }

    /// Whether waiting mends nothing: somebody must change settings, etcd's or the client's.
    pub(crate) fn is_lasting(&self) -> bool {
        match self {
            Self::Certificate { .. } | Self::Refused { .. } => true,
            Self::Unreachable { .. } | Self::Answer { .. } => false,
        }
    }

    /// Whether etcd wants a new token: it forgets all tokens when it restarts, and holds those for
    /// old that are older than the last change of users or roles (`ErrAuthOldRevision`).
    pub(crate) fn wants_token(&self) -> bool {
        let Self::Refused { code, message, .. } = self else {
            return false;
        };
        let texts = [
            "user name is empty",
            "revision of auth store is old",
            "revision in header is old",
        ];
        *code == code::UNAUTHENTICATED || texts.iter().any(|text| message.contains(text))
    }

    /// Whether etcd was asked for a token, but has authentication turned off.
    pub(crate) fn is_auth_off(&self) -> bool {
        matches!(self, Self::Refused { code: code::FAILED_PRECONDITION, message, .. }
            if message.contains("authentication is not enabled"))
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable { endpoint, reason } => {
                write!(f, "etcd at {endpoint} is not in reach: {reason}")
            }
            Self::Certificate { endpoint, reason } => {
                write!(f, "etcd at {endpoint}: certificates do not match: {reason}")
            }
            Self::Refused {
                endpoint, message, ..
            } => write!(f, "etcd at {endpoint} refuses: {message}"),
            Self::Answer { endpoint, reason } => {
                write!(f, "{endpoint} does not answer as etcd does: {reason}")
            }
        }
    }
}

impl std::error::Error for CallError {}

/// Why a client can't be made.
#[derive(Debug)]
pub enum SetupError {
    /// There are no endpoints, or more than [`crate::Settings::ENDPOINTS`].
    Endpoints,
    /// An endpoint's text is not `http://HOST:PORT` or `https://HOST:PORT`.
    Endpoint(String),
    /// An endpoint is `https`, and no CA was named.
    NoCa(String),
    /// Certificates, or a password, would go over a connection that is not encrypted.
    Plain(String),
    /// A file of certificates or keys can't be read.
    File(PathBuf, io::Error),
    /// A file has no certificate or no key in PEM form.
    Pem(PathBuf, &'static str),
    /// The key of the second file is not that of the first file's certificate, or of a kind that is
    /// not known.
    Pair(PathBuf, PathBuf),
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Endpoints => write!(f, "etcd needs between 1 and 16 endpoints"),
            Self::Endpoint(text) => write!(
                f,
                "etcd endpoint {text:?}: write http://HOST:PORT or https://HOST:PORT"
            ),
            Self::NoCa(text) => {
                write!(f, "etcd endpoint {text}: https needs the CA's certificate")
            }
            Self::Plain(text) => write!(
                f,
                "etcd endpoint {text}: certificates are set, so write https in the place of http"
            ),
            Self::File(path, error) => write!(f, "reading {}: {error}", path.display()),
            Self::Pem(path, what) => write!(f, "{}: no {what} in PEM form", path.display()),
            Self::Pair(certificate, key) => {
                let [certificate, key] = [certificate.display(), key.display()];
                write!(
                    f,
                    "{key} is not the private key of the certificate in {certificate}"
                )
            }
        }
    }
}

impl std::error::Error for SetupError {}
