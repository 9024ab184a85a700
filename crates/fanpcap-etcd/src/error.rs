//! Why a call to etcd failed, and why settings are not valid.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// gRPC's status codes, as etcd uses them.
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
pub struct CallError {
    /// The kind of failure.
    pub failure: Failure,
    /// The endpoint that was asked last.
    pub endpoint: String,
    /// The reason. If etcd refused the call, this is etcd's own text.
    pub reason: String,
}

/// Kinds of failures of calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// The endpoint did not answer in time.
    Unreachable,
    /// The client does not trust the endpoint's certificate, or is not trusted by the endpoint.
    Certificate,
    /// etcd refused the call with this status code of gRPC.
    Refused(u32),
    /// The answer is not an answer of etcd.
    Answer,
}

impl CallError {
    pub(crate) fn new(failure: Failure, at: impl fmt::Display, reason: impl fmt::Display) -> Self {
        Self {
            failure,
            endpoint: at.to_string(),
            reason: reason.to_string(),
        }
    }

    /// Whether another endpoint of etcd may be able to answer the call.
    pub(crate) fn is_elsewhere(&self) -> bool {
        match self.failure {
            Failure::Unreachable | Failure::Certificate | Failure::Answer => true,
            Failure::Refused(code) => matches!(
                code,
                code::DEADLINE_EXCEEDED
                    | code::RESOURCE_EXHAUSTED
                    | code::ABORTED
                    | code::UNAVAILABLE
            ),
        }
    }

    /// Whether waiting does not help: the settings of etcd or of the client must be changed.
    pub(crate) fn is_lasting(&self) -> bool {
        matches!(self.failure, Failure::Certificate | Failure::Refused(_))
    }

    /// Whether etcd wants a new token. etcd forgets all tokens when it restarts. etcd also refuses
    /// tokens that are older than the last change of users or roles (`ErrAuthOldRevision`).
    pub(crate) fn wants_token(&self) -> bool {
        let Failure::Refused(code) = self.failure else {
            return false;
        };
        let texts = [
            "user name is empty",
            "revision of auth store is old",
            "revision in header is old",
        ];
        code == code::UNAUTHENTICATED || texts.iter().any(|text| self.reason.contains(text))
    }

    /// Whether the client asked etcd for a token although etcd has authentication turned off.
    pub(crate) fn is_auth_off(&self) -> bool {
        self.failure == Failure::Refused(code::FAILED_PRECONDITION)
            && self.reason.contains("authentication is not enabled")
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (endpoint, reason) = (&self.endpoint, &self.reason);
        match self.failure {
            Failure::Unreachable => write!(f, "etcd at {endpoint} is not in reach: {reason}"),
            Failure::Certificate => {
                write!(f, "etcd at {endpoint}: certificates do not match: {reason}")
            }
            Failure::Refused(_) => write!(f, "etcd at {endpoint} refuses: {reason}"),
            Failure::Answer => write!(f, "{endpoint} does not answer as etcd does: {reason}"),
        }
    }
}

impl std::error::Error for CallError {}

/// Why a client can't be made.
#[derive(Debug)]
pub enum SetupError {
    /// There are no endpoints, or `https` endpoints lack certificates, or certificates are given
    /// for `http` endpoints.
    Endpoints,
    /// An endpoint's text is not `http://HOST:PORT` or `https://HOST:PORT`.
    Endpoint(String),
    /// A file of certificates or keys can't be read.
    File(PathBuf, io::Error),
    /// A file has no certificate or no key in PEM form.
    Pem(PathBuf, &'static str),
    /// The second file's key does not match the certificate in the first file, or has an unknown
    /// type.
    Pair(PathBuf, PathBuf),
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Endpoints => {
                write!(
                    f,
                    "give at least one endpoint of etcd: all by https and with a CA, or all by http"
                )
            }
            Self::Endpoint(text) => write!(
                f,
                "etcd endpoint {text:?}: write http://HOST:PORT or https://HOST:PORT"
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
