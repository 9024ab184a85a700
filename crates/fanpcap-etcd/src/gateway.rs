//! Makes one call to one endpoint, by HTTP.

use std::io::{self, BufReader, Read};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use ureq::tls::TlsConfig;
use ureq::{Agent, BodyReader};

use crate::error::{CallError, Failure, SetupError};
use crate::settings::{Endpoint, Limits, Settings, TlsFiles};
use crate::tls::{self, Stamp};

/// Maximum size of an answer, in bytes. etcd's own limit for a write is 1.5 MB.
const ANSWER: u64 = 16 << 20;

/// The time between two checks whether the certificates' files have changed.
const LOOK: Duration = Duration::from_secs(1);

/// HTTP connections to all endpoints.
#[derive(Debug)]
pub(crate) struct Gateway {
    limits: Limits,
    files: Option<TlsFiles>,
    current: Mutex<Current>,
}

/// Connections that use the present certificates.
#[derive(Debug)]
struct Current {
    agent: Agent,
    stamps: Vec<Stamp>,
    looked: Instant,
}

impl Gateway {
    pub(crate) fn new(settings: &Settings) -> Result<Self, SetupError> {
        let stamps = settings.tls.as_ref().map(tls::stamps).unwrap_or_default();
        let config = settings.tls.as_ref().map(tls::load).transpose()?;
        Ok(Self {
            limits: settings.limits,
            files: settings.tls.clone(),
            current: Mutex::new(Current {
                agent: agent(&settings.limits, config),
                stamps,
                looked: Instant::now(),
            }),
        })
    }

    /// Calls `endpoint` and returns its answer.
    pub(crate) fn call<T: DeserializeOwned>(
        &self,
        endpoint: &Endpoint,
        path: &str,
        body: &str,
        token: Option<&str>,
        within: Duration,
    ) -> Result<T, CallError> {
        let request = self.post(endpoint, path, token);
        let request = request.config().timeout_global(Some(within)).build();
        let response = request.send(body);
        let response = response.map_err(|error| unreachable(endpoint, &error))?;
        let status = response.status();
        let body = response.into_body().into_with_config().limit(ANSWER);
        let body = body.read_to_vec();
        let body = body.map_err(|error| unreachable(endpoint, &error))?;
        if !status.is_success() {
            return Err(refused(endpoint, status.as_u16(), &body));
        }
        serde_json::from_slice(&body)
            .map_err(|error| CallError::new(Failure::Answer, endpoint, format!("{path}: {error}")))
    }

    /// Calls `endpoint` and returns the answer as a stream, which fails if it pauses too long.
    pub(crate) fn stream(
        &self,
        endpoint: &Endpoint,
        path: &str,
        body: &str,
        token: Option<&str>,
    ) -> Result<BufReader<BodyReader<'static>>, CallError> {
        let config = self.post(endpoint, path, token).config();
        let config = config.timeout_recv_response(Some(self.limits.attempt));
        let request = config.timeout_per_read(Some(self.limits.quiet)).build();
        let response = request
            .send(body)
            .map_err(|error| unreachable(endpoint, &error))?;
        let status = response.status();
        let mut reader = response.into_body().into_reader();
        if !status.is_success() {
            let mut body = Vec::new();
            // If the body can't be read, only the HTTP status is reported.
            let _ = (&mut reader).take(ANSWER).read_to_end(&mut body);
            return Err(refused(endpoint, status.as_u16(), &body));
        }
        Ok(BufReader::new(reader))
    }

    fn post(
        &self,
        endpoint: &Endpoint,
        path: &str,
        token: Option<&str>,
    ) -> ureq::RequestBuilder<ureq::typestate::WithBody> {
        let request = self.agent().post(format!("{endpoint}{path}"));
        let request = request.header("Content-Type", "application/json");
        match token {
            Some(token) => request.header("Authorization", token),
            None => request,
        }
    }

    /// The connections. If the certificates' files have changed, makes new connections. If the
    /// files can't be loaded, for example while they are written, the connections stay.
    fn agent(&self) -> Agent {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(files) = &self.files {
            if current.looked.elapsed() >= LOOK {
                current.looked = Instant::now();
                let stamps = tls::stamps(files);
                if stamps != current.stamps {
                    if let Ok(config) = tls::load(files) {
                        current.agent = agent(&self.limits, Some(config));
                        current.stamps = stamps;
                    }
                }
            }
        }
        current.agent.clone()
    }
}

fn agent(limits: &Limits, tls: Option<TlsConfig>) -> Agent {
    let config = Agent::config_builder()
        .http_status_as_error(false)
        .https_only(tls.is_some())
        .max_redirects(0)
        .proxy(None)
        .no_delay(true)
        .timeout_connect(Some(limits.connect))
        .timeout_resolve(Some(limits.attempt));
    let config = match tls {
        Some(tls) => config.tls_config(tls),
        None => config,
    };
    Agent::new_with_config(config.build())
}

fn unreachable(endpoint: &Endpoint, error: &ureq::Error) -> CallError {
    let failure = match is_of_tls(error) {
        true => Failure::Certificate,
        false => Failure::Unreachable,
    };
    CallError::new(failure, endpoint, error)
}

/// Whether the connection failed because of TLS: rustls ended it, or the other side sent an alert.
fn is_of_tls(error: &ureq::Error) -> bool {
    let is_inner = |error: &io::Error| {
        let inner = error.get_ref();
        inner.is_some_and(|inner| inner.is::<rustls::Error>())
    };
    matches!(error, ureq::Error::Rustls(_) | ureq::Error::Tls(_))
        || matches!(error, ureq::Error::Io(error) if is_inner(error))
}

/// The error for an answer with this HTTP status.
fn refused(endpoint: &Endpoint, status: u16, body: &[u8]) -> CallError {
    /// etcd's answer with an error. Up to etcd 3.5 its text is in `error`, later in `message`.
    #[derive(Deserialize)]
    struct Refusal {
        #[serde(default)]
        error: Value,
        #[serde(default)]
        message: String,
        #[serde(default)]
        code: u32,
    }
    let Ok(refusal) = serde_json::from_slice::<Refusal>(body) else {
        return CallError::new(Failure::Answer, endpoint, format!("HTTP status {status}"));
    };
    let words = match refusal.error.as_str() {
        Some(error) if refusal.message.is_empty() => error,
        _ => &refusal.message,
    };
    CallError::new(Failure::Refused(refusal.code), endpoint, words)
}
